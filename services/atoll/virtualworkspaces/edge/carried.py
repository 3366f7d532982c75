"""What the syncer of a mailbox carries: its SyncerConfigs and EdgeSyncConfigs as one value, and the types of it.

Rows, cursors and rules of the mailbox view ask here. Values are cached by the revisions of the objects that they derive
from, two of a mailbox and bounded in bytes, so that an idle mailbox keeps nothing. Invariant: what does not go to edge
clusters, and the system's own objects, are never carried, whatever a SyncerConfig lists; and what came up never goes
down.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.catalog.catalog import Catalog
from atoll.machinery.apiserver.filtered_rows.row_filter import Reader
from atoll.machinery.edge.categories import goes_to_edge
from atoll.machinery.edge.names import GROUP, REPORT_NAMESPACE, UPSYNCED, ObjectRef
from atoll.machinery.edge.syncset import SyncSet, sync_set
from atoll.machinery.edge.system_objects import is_system_object, may_be_system
from atoll.machinery.edge.upsync import is_upsynced
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import partial
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.storage.contract import Scope
from atoll.machinery.storage.pages import each_record

#: The resources that say what is carried.
SYNCER_CONFIGS, EDGE_SYNC_CONFIGS = (GROUP, "syncerconfigs"), (GROUP, "edgesyncconfigs")
CONFIGS = (SYNCER_CONFIGS, EDGE_SYNC_CONFIGS)
MAX_BYTES = 64 << 20
#: Memory of a set in proportion to the JSON that it is made of.
_GROWTH = 8
#: Looking for it is a hundredth of decoding.
_MARK = UPSYNCED.encode()


class _Revision(msgspec.Struct, frozen=True, gc=False):
    resource_version: str = msgspec.field(default="", name="resourceVersion")


class _UpsyncMark(msgspec.Struct, frozen=True, gc=False):
    value: str = msgspec.field(default="", name=UPSYNCED)


_revision = msgspec.json.Decoder(partial.Partial[_Revision])
_marked = msgspec.json.Decoder(partial.Partial[partial.SomeAnnotations[_UpsyncMark]])


class Carried(msgspec.Struct, frozen=True, eq=False):
    """What is carried. Values with equal `mark` carry the same."""

    mark: tuple[int, ...]
    set: SyncSet
    size_bytes: int

    def lists(self, ref: ObjectRef, value: bytes | None) -> bool:
        """Whether an object goes down; without its value, whether one of that name may. What came up never does."""
        if not self.set.lists(ref) or not goes_to_edge(*ref.kind):
            return False
        return value is None or not (_is_system(ref, value) or (_MARK in value and came_up(ref, value)))


#: By the marks of the kinds and of the objects that they are of, the last one first.
_Newest: TypeAlias = tuple[tuple[tuple[bytes, tuple[int, ...]], Carried], ...]


class Mailbox:
    """One mailbox with the kinds that it serves now."""

    def __init__(self, cluster: str, catalog: Catalog) -> None:
        self.cluster, self.catalog = cluster, catalog

    def kind(self, group: str, resource: str, version: str = "") -> Kind | None:
        """Return a kind in a version, by default in any; None if it is not served."""
        if version:
            return self.catalog.find(group, version, resource)
        return self.catalog.by_resource.get((group, resource))

    def type(self, group: str, resource: str) -> ResourceType | None:
        """Return the type under which objects of a resource are stored here; None if it is not served."""
        kind = self.kind(group, resource)
        return None if kind is None or kind.virtual is not None else kind.type

    def scope(self, resource: tuple[str, str]) -> Scope:
        """Return the scope of SyncerConfigs or EdgeSyncConfigs, which a mailbox serves."""
        found = self.type(*resource)
        assert found is not None, "the view is not served without them"
        return Scope(found, self.cluster)

    def scopes(self, carried: Carried) -> list[Scope]:
        """Return the scopes of everything that goes down, in the order of the names of items."""
        kinds = {*CONFIGS, *(kind for kind in carried.set.versions if goes_to_edge(*kind))}
        types = (self.type(*kind) for kind in sorted(kinds, key=lambda kind: type_name(*kind)))
        return [Scope(type, self.cluster) for type in types if type is not None]


class CarriedReader:
    """Reads what is carried. Of each mailbox it keeps the last value and the one before, which a watch compares."""

    def __init__(self) -> None:
        self._kept: LruCache[str, _Newest] = LruCache(MAX_BYTES, _size_bytes)

    def current(self, view: Reader | View, mailbox: Mailbox) -> Carried:
        """Return what is carried in a view."""
        return self.of(mailbox, [row.value for of in CONFIGS for row in each_record(view, mailbox.scope(of))])

    def of(self, mailbox: Mailbox, configs: Sequence[bytes]) -> Carried:
        """Return what these SyncerConfigs and EdgeSyncConfigs list, which are in the order of their types and names."""
        mark = tuple(map(revision_of, configs))
        key = mailbox.catalog.mark, mark
        newest = self._kept.get(mailbox.cluster) or ()
        for known, carried in newest:
            if known == key:
                return carried
        found = _sync_set(mailbox, configs)
        # A report of the syncer changes none of it.
        shared = next((carried.set for _, carried in newest if carried.set == found), found)
        made = Carried(mark, shared, 1024 + _GROWTH * sum(map(len, configs)))
        self._kept.put(mailbox.cluster, ((key, made), *newest[:1]))
        return made


def _size_bytes(newest: _Newest) -> int:
    return sum({id(carried.set): carried.size_bytes for _, carried in newest}.values())


def _sync_set(mailbox: Mailbox, configs: Sequence[bytes]) -> SyncSet:
    resources = {(kind.group, kind.kind): kind.plural for kind in mailbox.catalog.kinds.values()}
    found: list[Object] = [decode(value) for value in configs]
    older = [each for each in found if each["kind"] == "EdgeSyncConfig"]
    return sync_set((each for each in found if each["kind"] == "SyncerConfig"), older, resources)


def type_name(group: str, resource: str) -> str:
    """Return a resource as the names of items have it: `deployments.apps`, `configmaps.`."""
    return f"{resource}.{group}"


def revision_of(value: bytes) -> int:
    """Return the revision of a stored object."""
    return int(_revision.decode(value).metadata.resource_version)


def ref_of(type: ResourceType, value: bytes) -> ObjectRef:
    """Return the reference to a stored object."""
    found = partial.name(value)
    return ObjectRef(type.group, type.resource, found.namespace, found.name)


def came_up(ref: ObjectRef, value: bytes) -> bool:
    """Whether a stored object came up from the edge: it has the mark with its own name."""
    annotations = _marked.decode(value).metadata.annotations
    return annotations is not None and bool(annotations.value) and is_upsynced(ref, decode(value))


def _is_system(ref: ObjectRef, value: bytes) -> bool:
    if ref.namespace != REPORT_NAMESPACE and not may_be_system(ref.kind):
        return False
    return is_system_object(ref, decode(value))
