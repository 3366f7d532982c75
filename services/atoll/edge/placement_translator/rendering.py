"""What one source gives to its copy in one mailbox: customized for the destination, with owners of the mailbox.

`composition` merges it. Invariants: `digest` tells a rendering by what it depends on, so it costs no read; of what
cannot be rendered the last rendering counts that the mailbox took, and without one nothing is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from atoll.edge.placement_translator.content import CustomizerState, Item
from atoll.edge.placement_translator.contents import Contents
from atoll.edge.placement_translator.records import CopyRecords
from atoll.edge.placement_translator.topology import Topology
from atoll.machinery.edge.customization import CustomizationError, customized
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.edge.projection import render
from atoll.machinery.meta.objects import Object, decode, encode_json
from atoll.machinery.meta.status import ApiError

UNDEFINED = "UndefinedParameter"
#: Called with a workspace, an object that it sends, a reason and a text that its owner should know.
Tell: TypeAlias = Callable[[str, ObjectRef, str, str], None]


class Unrendered(ApiError):
    """An object cannot be customized for a destination."""

    code, reason = 422, "CustomizationFailed"


class Rendered(msgspec.Struct, frozen=True):
    """What a source gives, None if nothing is known of it, and why it is not what the source says now.

    `customized` is what to keep of it, once the mailbox took it.
    """

    obj: Object | None
    customized: bytes = b""
    problem: Unrendered | None = None


class Rendering:
    """Renderings of all sources. `render` raises ApiError, ClientError, TimeoutError."""

    def __init__(self, topology: Topology, contents: Contents, records: CopyRecords, tell: Tell) -> None:
        self._topology, self._contents, self._records, self._tell = topology, contents, records, tell

    def digest(self, mailbox: str, cluster: str, item: Item, version: str) -> list[object]:
        """Return all that a rendering depends on, by digests."""
        found: list[object] = [item.digest, version, self._owners(mailbox, cluster, item)]
        if item.customizer is None and not item.expands:
            return found
        state, parameters = self._customizer(cluster, item), None
        if item.expands or state.expands:
            parameters = self._topology.parameters(mailbox, cluster, item.selection.placements)
        return [*found, state.digest, state.problem, parameters and parameters[1]]

    async def render(self, mailbox: str, cluster: str, ref: ObjectRef, version: str) -> Rendered:
        """Return what a source gives; nothing if it is gone, which is told soon."""
        content = self._contents.get(cluster)
        item = content.items.get(ref) if content is not None else None
        obj = await self._contents.source(cluster, ref, version) if item is not None else None
        if item is None or obj is None:
            return Rendered(None)
        kept, problem = b"", None
        if item.customizer is not None or item.expands:
            try:
                obj = await self._customized(mailbox, cluster, ref, item, obj)
                kept = encode_json(obj)
            except Unrendered as error:
                kept, problem = self._records.renderings(mailbox, ref).get(cluster, b""), error
                before: Object = decode(kept) if kept else {}
                if before.get("apiVersion") != obj["apiVersion"]:
                    return Rendered(None, problem=problem)
                obj = before
        # What it owns or is owned by is asked anew: uids of a mailbox may be others.
        return Rendered(render(obj, self._owners(mailbox, cluster, item)), kept, problem)

    async def _customized(self, mailbox: str, cluster: str, ref: ObjectRef, item: Item, obj: Object) -> Object:
        rules, name = None, item.customizer
        if name is not None:
            problem = self._customizer(cluster, item).problem
            rules = None if problem else await self._contents.customizer(cluster, name)
            if rules is None:
                title = "/".join(filter(None, (name.namespace, name.name)))
                raise self._unrendered(cluster, ref, f"Customizer {title} {problem or 'is not there'}")
        parameters = self._topology.parameters(mailbox, cluster, item.selection.placements)
        try:
            found = customized(obj, rules, None if parameters is None else parameters[0])
        except CustomizationError as error:
            raise self._unrendered(cluster, ref, str(error)) from error
        if found.undefined:
            self._tell(cluster, ref, UNDEFINED, f"not defined by a Location: {', '.join(found.undefined)}")
        return found.obj

    def _unrendered(self, cluster: str, ref: ObjectRef, text: str) -> Unrendered:
        self._tell(cluster, ref, Unrendered.reason, text)
        return Unrendered(text)

    def _customizer(self, cluster: str, item: Item) -> CustomizerState:
        content = self._contents.get(cluster)
        if item.customizer is None or content is None:
            return CustomizerState()
        return content.customizers.get(item.customizer, CustomizerState(problem="was not read yet"))

    def _owners(self, mailbox: str, cluster: str, item: Item) -> dict[str, str]:
        """Return uids of the owners of an object in its workspace, and of their copies."""
        content, found = self._contents.get(cluster), dict[str, str]()
        for uid in item.owners if content is not None else ():
            owner = content.by_uid.get(uid) if content is not None else None
            record = self._records.get(mailbox, owner) if owner is not None else None
            if record is not None:
                found[uid] = record.uid
        return found
