"""What workspaces send: the controller that reads them, and the objects for their copies.

It reads a workspace with placements when something of it may have changed, under the translator's account; `projection`
takes objects from here. Memory: one `Item` an object that is sent, objects in a cache of a fixed size, nothing of a
workspace without placements. Invariant: after a failure what was to be read is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from atoll.edge.edge_data import Clusters
from atoll.edge.kinds import CUSTOMIZERS
from atoll.edge.placement_translator.content import DEFINERS, NAMESPACES, Content
from atoll.edge.placement_translator.reading import Keep, Reading, Since
from atoll.edge.placement_translator.records import CopyRecords, LastChange
from atoll.edge.placement_translator.topology import Topology
from atoll.machinery.control.queue import Requeue, WorkQueue
from atoll.machinery.edge.categories import BuiltIns, goes_to_mailbox
from atoll.machinery.edge.customization import CUSTOMIZERS as CUSTOMIZER_KIND
from atoll.machinery.edge.names import EXPAND, ObjectRef
from atoll.machinery.edge.projection import render
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.objects import Object, annotations_of, encode_json, owner_references_of
from atoll.machinery.meta.status import NotFound

#: Bytes of objects that are kept for their copies.
CACHE_BYTES = 32 * 1024 * 1024
_decode = msgspec.json.Decoder().decode

#: Called with a workspace that was read, and its objects that changed with their placements before and after.
Changed = Callable[[str, Mapping[ObjectRef, set[str]]], None]


class Contents:
    """The controller. Keys are logical clusters of workspaces."""

    name = "placement-translator-contents"

    def __init__(
        self, base: Clusters, topology: Topology, built_ins: BuiltIns, records: CopyRecords, changed: Changed
    ) -> None:
        self._base, self._topology, self._built_ins, self._changed = base, topology, built_ins, changed
        self._records = records
        self.queue: WorkQueue[str] = WorkQueue()
        self._contents: dict[str, Content] = {}
        self._objects: LruCache[tuple[str, ObjectRef], bytes] = LruCache(CACHE_BYTES, len)

    # --- changes

    def reread(self, cluster: str) -> None:
        """Everything of a workspace may have changed, its placements among it."""
        if cluster in self._contents or self._topology.names(cluster):
            self._contents.setdefault(cluster, Content()).is_stale = True
            self.queue.add(cluster)

    def reread_all(self) -> None:
        """Everything of all workspaces may have changed."""
        for cluster in self._topology.workspaces() | self._contents.keys():
            self.reread(cluster)

    def object_changed(self, cluster: str, ref: ObjectRef) -> None:
        """An object of a workspace changed."""
        content = self._contents.get(cluster)
        if content is None:
            return
        if ref.kind in DEFINERS or ref.kind == NAMESPACES:
            content.is_stale = True
        elif goes_to_mailbox(*ref.kind) or content.customized_by(ref):
            content.stale_refs.add(ref)
        else:
            return
        self.queue.add(cluster)

    # --- answers

    @property
    def cached(self) -> int:
        """How many objects are kept."""
        return len(self._objects)

    def get(self, cluster: str) -> Content | None:
        """Return what a workspace sends; None without placements, and before it was first looked at."""
        return self._contents.get(cluster)

    async def source(self, cluster: str, ref: ObjectRef, version: str = "") -> Object | None:
        """Return an object that is sent, without what belongs to its workspace; owners have their uids there.

        By default at the version that it was read at. None if it is gone, which is then told soon. Raises ApiError,
        ClientError, TimeoutError.
        """
        content = self._contents.get(cluster)
        kind = content.kinds.get(ref.kind) if content is not None else None
        is_read_version = kind is None or version in ("", kind.resource.version)
        cached = self._objects.get((cluster, ref)) if is_read_version else None
        if cached is None:
            if kind is None:
                return None
            resource = kind.resource if is_read_version else msgspec.structs.replace(kind.resource, version=version)
            try:
                obj = await self._base.cluster(cluster).get(resource, ref.name, ref.namespace)
            except NotFound:
                return None
            cached = self._keeper(cluster)(ref, obj) if is_read_version else _portable(obj)
        found: Object = _decode(cached)
        return found

    async def customizer(self, cluster: str, ref: ObjectRef) -> Object | None:
        """Return what counts of a Customizer; None if it is gone, which is then told soon.

        Raises ApiError, ClientError, TimeoutError.
        """
        cached = self._objects.get((cluster, ref))
        if cached is None:
            try:
                obj = await self._base.cluster(cluster).get(CUSTOMIZERS, ref.name, ref.namespace)
            except NotFound:
                return None
            cached = self._keeper(cluster)(ref, obj)
        found: Object = _decode(cached)
        return found

    # --- reconcile

    async def synced(self) -> None:
        """Wait until all placements and mailboxes were seen."""
        await self._topology.complete.wait()

    async def reconcile(self, cluster: str) -> Requeue:
        """Read what may have changed, and tell what did."""
        content = self._contents.get(cluster)
        if content is None:
            return None
        if not self._topology.names(cluster):
            await self._forget(cluster, content)
            return None
        is_stale, refs = content.is_stale, content.stale_refs
        content.is_stale, content.stale_refs = False, set()
        rules, content.edited = (self._topology.placements(cluster), self._built_ins), set()
        reading = Reading(
            self._base.cluster(cluster), content, rules, self._keeper(cluster), self._since(cluster, content)
        )
        content.changing = reading.changed
        try:
            await (reading.everything() if is_stale else reading.some(refs))
            if not content.is_complete:
                self._sweep(cluster, content)
            content.is_complete = True
        except BaseException:
            content.is_stale, content.stale_refs = content.is_stale or is_stale, content.stale_refs | refs
            raise
        finally:
            self._changed(cluster, reading.changed)
            content.changing = {}
            await self._records.flush()
        return None

    def _sweep(self, cluster: str, content: Content) -> None:
        """Forget the last changes of what is not sent any more."""
        for ref in self._records.changed(cluster):
            if ref not in content.items:
                self._records.put_last_change(cluster, ref, None)

    async def _forget(self, cluster: str, content: Content) -> None:
        del self._contents[cluster]
        for ref in content.items:
            self._objects.drop((cluster, ref))
        self._sweep(cluster, Content())
        self._changed(cluster, {ref: set(item.selection.placements) for ref, item in content.items.items()})
        await self._records.flush()

    def _since(self, cluster: str, content: Content) -> Since:
        def since(ref: ObjectRef, digest: str, revision: int) -> int:
            before = self._records.last_change(cluster, ref)
            # An object with an earlier revision was put back by a restore, and its later changes are lost.
            if before is not None and before.digest == digest and before.revision <= revision:
                return before.revision
            if before is not None and digest:
                content.edited.add(ref)
            self._records.put_last_change(cluster, ref, LastChange(digest, revision) if digest else None)
            return revision

        return since

    def _keeper(self, cluster: str) -> Keep:
        def keep(ref: ObjectRef, obj: Object) -> bytes:
            data = _rules(obj) if ref.kind == CUSTOMIZER_KIND else _portable(obj)
            self._objects.put((cluster, ref), data)
            return data

        return keep


def _portable(obj: Object) -> bytes:
    """Return what an object gives to its copies; owners have their uids in its workspace."""
    return encode_json(render(obj, {each["uid"]: each["uid"] for each in owner_references_of(obj)}))


def _rules(customizer: Object) -> bytes:
    """Return what counts of a Customizer."""
    name, namespace = (customizer["metadata"][field] for field in ("name", "namespace"))
    annotations = {key: text for key, text in annotations_of(customizer).items() if key == EXPAND}
    metadata = {"name": name, "namespace": namespace, "annotations": annotations}
    return encode_json({"metadata": metadata, "replacements": customizer.get("replacements") or []})
