"""One reading of a workspace: lists of the kinds that its placements ask for, and what is selected of them.

`contents` makes one for each reconcile. Invariant: what a workspace sends depends on what was read last, kind by kind,
never on what it sent before; a kind that may not be read sends nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Iterable
from typing import TypeAlias

from atoll.edge.kinds import CUSTOMIZERS
from atoll.edge.placement_translator.content import DEFINERS, NAMESPACES, Content, CustomizerState, Item, Kind
from atoll.edge.placement_translator.defined import Defined, defined_by
from atoll.machinery.client.client import Client
from atoll.machinery.client.discovery import ServedKind, served_kinds
from atoll.machinery.edge.categories import BuiltIns, goes_to_mailbox
from atoll.machinery.edge.customization import CUSTOMIZERS as CUSTOMIZER_KIND
from atoll.machinery.edge.customization import customizer_of, expands
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.edge.placements import ANY, Placement
from atoll.machinery.edge.what import NONE, Selection, definers, selection
from atoll.machinery.meta.objects import Object, labels_of, owner_references_of
from atoll.machinery.meta.status import Forbidden, NotFound

#: Objects read in a page, and objects of a kind that are read one by one; more are listed.
PAGE, MAX_SINGLE = 500, 16
#: How long a reading works before others go on.
SLICE_S = 0.005
#: What is forbidden in a workspace that lets nobody in.
EVERY_KIND: Kind = ("*", "*")
#: Keeps an object for its copies; returns what it gives to them.
Keep: TypeAlias = Callable[[ObjectRef, Object], bytes]
#: Returns the revision since which an object gives what has a digest, of its revision now; digest "" if it is not sent.
Since: TypeAlias = Callable[[ObjectRef, str, int], int]


class Reading:
    """One reading of a workspace."""

    def __init__(
        self, client: Client, content: Content, rules: tuple[list[Placement], BuiltIns], keep: Keep, since: Since
    ) -> None:
        self._client, self._content, self._keep, self._since = client, content, keep, since
        self._placements, self._built_ins = rules
        self._slice_end_s = time.monotonic() + SLICE_S
        #: Objects that are sent otherwise than before, with their placements before and after.
        self.changed: dict[ObjectRef, set[str]] = {}

    async def everything(self) -> None:
        """Read all kinds that placements ask for."""
        content = self._content
        try:
            content.kinds, content.forbidden = await served_kinds(self._client), set()
        except Forbidden:
            content.kinds, content.forbidden = {}, {EVERY_KIND}
        await self._read_namespaces()
        wanted = []
        for kind in content.kinds.values():
            if self._is_wanted(kind):
                wanted.append(kind)
            await self._yield()
        for kind in wanted:
            await self._list(kind)
        read = {(each.resource.group, each.resource.plural) for each in wanted}
        self._drop(ref for ref in content.items if ref.kind not in read and ref.kind not in DEFINERS)
        await self._define()
        await self._read_customizers(content.named_customizers())

    async def some(self, refs: set[ObjectRef]) -> None:
        """Read some objects again; many of one kind by its list."""
        by_kind: dict[Kind, list[ObjectRef]] = {}
        for ref in sorted(refs):
            by_kind.setdefault(ref.kind, []).append(ref)
        customizers = set(by_kind.pop(CUSTOMIZER_KIND, ()))
        for key, members in by_kind.items():
            kind = self._content.kinds.get(key)
            if kind is None or not self._is_wanted(kind):
                continue
            if len(members) > MAX_SINGLE:
                await self._list(kind)
                continue
            for ref in members:
                try:
                    self._take(kind, await self._client.get(kind.resource, ref.name, ref.namespace))
                except NotFound:
                    self._drop([ref])
                except Forbidden:
                    await self._list(kind)
        if self._selected() != self._content.selected:
            await self._define()
        await self._read_customizers(customizers | self._content.named_customizers() - self._content.customizers.keys())

    async def _read_customizers(self, refs: set[ObjectRef]) -> None:
        """Read Customizers; what names one that says something else than before is sent otherwise."""
        content, named = self._content, self._content.named_customizers()
        for ref in content.customizers.keys() - named:
            del content.customizers[ref]
        for ref in sorted(refs & named):
            state = await self._customizer(ref)
            if content.customizers.get(ref) == state:
                continue
            content.customizers[ref] = state
            for each in content.customized_by(ref):
                self.changed.setdefault(each, set()).update(content.items[each].selection.placements)

    async def _customizer(self, ref: ObjectRef) -> CustomizerState:
        if not ref.namespace or not ref.name:
            return CustomizerState(problem="is not named by namespace and name")
        try:
            obj = await self._client.get(CUSTOMIZERS, ref.name, ref.namespace)
        except NotFound:
            return CustomizerState(problem="is not there")
        except Forbidden:
            return CustomizerState(problem="may not be read by the account of the placement translator")
        return CustomizerState(_digest(self._keep(ref, obj)), expands(obj))

    async def _yield(self) -> None:
        """Let others go on after a while: of many placements each is tried for each kind and object."""
        if time.monotonic() > self._slice_end_s:
            await asyncio.sleep(0)
            self._slice_end_s = time.monotonic() + SLICE_S

    def _is_wanted(self, kind: ServedKind) -> bool:
        key = kind.resource.group, kind.resource.plural
        is_carried = "list" in kind.verbs and goes_to_mailbox(*key) and key not in DEFINERS
        return is_carried and self._covers(*key)

    def _covers(self, group: str, resource: str) -> bool:
        return any(test.covers(group, resource) for each in self._placements for test in each.downsync)

    async def _read_namespaces(self) -> None:
        has_selectors = any(test.namespace_selectors for each in self._placements for test in each.downsync)
        objs = await self._listed(NAMESPACES) if has_selectors else []
        self._content.namespaces = {
            obj["metadata"]["name"]: {"metadata": {"labels": dict(labels_of(obj))}} for obj in objs
        }

    async def _list(self, kind: ServedKind) -> None:
        """Read all objects of a kind; those that are not there any more are not sent."""
        key, seen = (kind.resource.group, kind.resource.plural), set[ObjectRef]()
        try:
            async for page in self._client.pages(kind.resource, limit=str(PAGE)):
                for obj in page["items"]:
                    seen.add(self._take(kind, obj))
                    await self._yield()
        except (Forbidden, NotFound):
            self._content.forbidden.add(key)
            seen.clear()
        self._drop(ref for ref in self._content.items if ref.kind == key and ref not in seen)

    async def _listed(self, key: Kind) -> list[Object]:
        """Return all objects of a kind; none if it is not served, or may not be read."""
        kind = self._content.kinds.get(key)
        if kind is None:
            return []
        try:
            found = await self._client.list(kind.resource, limit=str(PAGE))
        except Forbidden:
            self._content.forbidden.add(key)
            return []
        return list(found["items"])

    async def _define(self) -> None:
        """Send the definitions of the kinds that are sent, beside those that placements select."""
        content, found = self._content, dict[Kind, list[Object]]()
        content.select(self._selected())
        for key in DEFINERS:
            is_asked = bool(content.selected) or self._covers(*key)
            found[key] = await self._listed(key) if is_asked else []
        needed = definers(content.selected, found[DEFINERS[0]], found[DEFINERS[1]], self._built_ins)
        defined: dict[ObjectRef, Defined] = {}
        for key, objs in found.items():
            for obj in objs:
                ref = ObjectRef(*key, "", obj["metadata"]["name"])
                defined[ref] = defined_by(obj)
                chosen = selection(self._placements, ref, obj, None, self._built_ins)
                self._put(content.kinds[key], ref, obj, chosen | needed.get(ref, NONE))
            names = {obj["metadata"]["name"] for obj in objs}
            self._drop(ref for ref in content.items if ref.kind == key and ref.name not in names)
        self._set_defined({ref: each for ref, each in defined.items() if ref in content.items})

    def _set_defined(self, defined: dict[ObjectRef, Defined]) -> None:
        """Note what definers define; one that defines something else is sent otherwise."""
        content = self._content
        for ref, each in defined.items():
            if ref in content.defined and content.defined[ref] != each:
                self.changed.setdefault(ref, set()).update(content.items[ref].selection.placements)
        content.defined = defined

    def _selected(self) -> dict[Kind, Selection]:
        found = self._content.placements_of_kinds()
        return {kind: Selection(names) for kind, names in found.items() if kind not in DEFINERS}

    def _take(self, kind: ServedKind, obj: Object) -> ObjectRef:
        metadata = obj["metadata"]
        namespace = metadata.get("namespace", "")
        ref = ObjectRef(kind.resource.group, kind.resource.plural, namespace, metadata["name"])
        chosen = selection(self._placements, ref, obj, self._content.namespaces.get(namespace), self._built_ins)
        self._put(kind, ref, obj, chosen)
        return ref

    def _put(self, kind: ServedKind, ref: ObjectRef, obj: Object, chosen: Selection) -> None:
        if not chosen.placements:
            self._drop([ref])
            return
        data = self._keep(ref, obj)
        owners = tuple(sorted(each["uid"] for each in owner_references_of(obj)))
        digest, metadata = _digest(data), obj["metadata"]
        before, revision = self._content.items.get(ref), int(metadata["resourceVersion"])
        if before is not None and before.digest == digest and before.revision <= revision:
            since = before.revision
        else:
            since = self._since(ref, digest, revision)
        rules = customizer_of(obj), expands(obj), since
        self._set(ref, Item(chosen, kind.versions, digest, metadata["uid"], owners, *rules))

    def _drop(self, refs: Iterable[ObjectRef]) -> None:
        for ref in list(refs):
            if ref in self._content.items:
                self._since(ref, "", 0)
            self._set(ref, None)

    def _set(self, ref: ObjectRef, item: Item | None) -> None:
        before = self._content.items.get(ref)
        if before == item:
            return
        names = self.changed.setdefault(ref, set())
        for each in (before, item):
            names.update(each.selection.placements if each is not None else ())
        self._content.put(ref, item)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


def not_carried(placements: Iterable[Placement]) -> set[Kind]:
    """Return kinds that placements name and that are for the center alone."""
    return {
        (test.api_group or "", resource)
        for each in placements
        for test in each.downsync
        for resource in test.resources
        if resource != ANY and not goes_to_mailbox(test.api_group or "", resource)
    }
