"""The mailbox: its objects as the edge is to have them, and what its SyncerConfigs list.

One list and one watch of `downsyncitems` bring all of it, in the order of the log. Who works on objects is told by the
callbacks of `Listener`. Invariant: an object that an item named stays until an item or a complete list says that it is
gone, whatever becomes of the connection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Protocol

from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import Resource
from atoll.machinery.edge.conversions import renamed
from atoll.machinery.edge.names import EDGE_REVISION, GROUP, THE_ONE, VERSION, ObjectRef
from atoll.machinery.edge.syncset import SyncSet, sync_set
from atoll.machinery.meta.objects import Object, annotations_of
from atoll.machinery.meta.times import parse_time
from atoll.machinery.meta.types import CRDS
from atoll.syncer.follower import Follower, Key
from atoll.syncer.packed import pack, unpack

ITEMS = Resource(GROUP, VERSION, "downsyncitems", namespaced=False)
CONFIGS = Resource(GROUP, VERSION, "syncerconfigs", namespaced=False)
_CONFIG, _EDGE_SYNC_CONFIG = (GROUP, "syncerconfigs"), (GROUP, "edgesyncconfigs")
NOTHING = SyncSet({}, frozenset(), {}, (), frozenset(), 0)


class Listener(Protocol):
    """Told what changes. Its methods must not block."""

    def wanted(self, ref: ObjectRef, revision: int) -> None:
        """Something else is wanted of the object that the edge has under this reference."""

    def reported(self, ref: ObjectRef) -> None:
        """The mailbox has a new object, or another status."""

    def reconfigured(self, before: SyncSet, revision: int) -> None:
        """Other objects are listed than `before`."""


class Mailbox:
    """The state of one mailbox. `is_complete` once a list was read whole; `revision` is what was read up to."""

    def __init__(self, client: Client) -> None:
        self._follower = Follower(client, ITEMS, self)
        self._packed: dict[ObjectRef, bytes] = {}
        self._configs: dict[str, Object] = {}
        self._edge_configs: dict[str, Object] = {}
        #: Revisions that our own writes gave, until the watch has them.
        self._written: dict[ObjectRef, int] = {}
        #: Reference in the mailbox of those that have another at the edge.
        self._origins: dict[ObjectRef, ObjectRef] = {}
        self._resources: Mapping[tuple[str, str], str] = {}
        self.listener: Listener | None = None
        self.carried = NOTHING
        self.is_complete = False
        self.revision = 0
        #: Revision of the last change of what the edge is to have: of no status, which the syncer writes itself.
        self.last_change = 0
        self._resumed_at = 0

    @property
    def failure(self) -> str:
        """Why the mailbox is not followed now, empty while it is."""
        return self._follower.failure

    def resume(self, revision: int, last_change: int) -> None:
        """Take what an earlier process knew: up to `revision` nothing changed after `last_change`. Before `run`."""
        self._resumed_at, self.last_change = revision, last_change

    async def run(self) -> None:
        """Follow until cancelled."""
        await self._follower.run()

    def refs(self) -> Iterator[ObjectRef]:
        """Yield the references of all objects, as the edge has them."""
        converted = set(self._origins.values())
        yield from self._origins
        for ref in self._packed:
            if ref not in converted:
                yield ref

    def get(self, ref: ObjectRef) -> Object | None:
        """Return an object as the edge is to have it, None if there is none."""
        origin = self._origins.get(ref)
        held = self.held(origin or ref)
        if held is None or origin is None:
            return held if ref not in self._origins.values() else None
        return renamed({origin: held}, self._edge_configs.values(), self._resources).objects.get(ref)

    def has(self, ref: ObjectRef) -> bool:
        """Whether there is an object that the edge is to have."""
        return (self._origins.get(ref) or ref) in self._packed

    def held(self, ref: ObjectRef) -> Object | None:
        """Return an object by its reference in the mailbox, as it is there."""
        packed = self._packed.get(ref)
        return None if packed is None else unpack(packed)

    def origin(self, ref: ObjectRef) -> ObjectRef:
        """Return the reference in the mailbox of an object of the edge."""
        return self._origins.get(ref, ref)

    def keep(self, ref: ObjectRef, obj: Object) -> None:
        """Take what the mailbox answered to a write, before its watch says it."""
        revision = int(obj["metadata"]["resourceVersion"])
        if ref in self._packed and revision > self.revision:
            self._written[ref] = revision
            self._packed[ref] = pack(obj)

    def keep_config(self, config: Object) -> None:
        """Take the SyncerConfig that the mailbox answered to a write of its status."""
        self._configs[config["metadata"]["name"]] = config

    def the_one(self) -> Object | None:
        """Return the SyncerConfig that has the status, None before it is there."""
        return self._configs.get(THE_ONE)

    def edge_kinds(self) -> set[tuple[str, str, str]]:
        """Return group, version and kind of all that EdgeSyncConfigs name."""
        rows: list[Object] = []
        for config in self._edge_configs.values():
            spec = config.get("spec") or {}
            for name in ("downSyncedResources", "upSyncedResources"):
                rows += spec.get(name) or ()
            rows += [each["downstream"] for each in spec.get("conversions") or ()]
        return {(each.get("group") or "", each["version"], each["kind"]) for each in rows}

    def resolve(self, resources: Mapping[tuple[str, str], str]) -> None:
        """Take the resource of each group and kind that EdgeSyncConfigs name."""
        if resources != self._resources:
            self._resources = resources
            self._read_configs()

    # --- what the follower reads

    def changed(self, obj: Object) -> None:
        """Take an item."""
        ref, held = _ref(obj), obj["object"]
        if ref.kind in (_CONFIG, _EDGE_SYNC_CONFIG):
            self._note_change(self._configs_of(ref).get(ref.name), held)
            self._configs_of(ref)[ref.name] = held
            self._read_configs()
            return
        if int(held["metadata"]["resourceVersion"]) < self._written.get(ref, 0):
            return
        self._written.pop(ref, None)
        packed, before = pack(held), self._packed.get(ref)
        if before == packed:
            return
        self._note_change(unpack(before) if before is not None else None, held)
        self._packed[ref] = packed
        self._convert(ref, held)
        if before is None or _content(unpack(before)) != _content(held):
            self._tell(ref, int(obj["metadata"]["resourceVersion"]))
        if self.listener is not None and self.is_complete:
            for each in self._converted(ref):
                self.listener.reported(each)

    def _note_change(self, before: Object | None, held: Object) -> None:
        if before is None or _wanted_part(before) != _wanted_part(held):
            # What is listed at first may have had a status after its last change.
            revision = int(held["metadata"]["resourceVersion"]) if self.is_complete else written_by(held)
            if revision > self._resumed_at:
                self.last_change = max(self.last_change, revision)

    def gone(self, obj: Object) -> None:
        """Forget the object of an item."""
        self._forget(_ref(obj), int(obj["metadata"]["resourceVersion"]))

    def complete(self, keys: Set[Key]) -> None:
        """Forget what a list does not have."""
        names = {name for _, name in keys}
        known = [
            *self._packed,
            *(ObjectRef(*_CONFIG, "", name) for name in self._configs),
            *(ObjectRef(*_EDGE_SYNC_CONFIG, "", name) for name in self._edge_configs),
        ]
        for ref in known:
            if item_name(ref) not in names:
                self._forget(ref, self.revision)
        was_complete, self.is_complete = self.is_complete, True
        if not was_complete and self.listener is not None:
            self.listener.reconfigured(NOTHING, self.revision)

    def reached(self, revision: str) -> None:
        """Take the revision up to which all is known."""
        self.revision = int(revision)

    def _configs_of(self, ref: ObjectRef) -> dict[str, Object]:
        return self._configs if ref.kind == _CONFIG else self._edge_configs

    def _forget(self, ref: ObjectRef, revision: int) -> None:
        self.last_change = max(self.last_change, revision)
        if ref.kind in (_CONFIG, _EDGE_SYNC_CONFIG):
            if self._configs_of(ref).pop(ref.name, None) is not None:
                self._read_configs()
        elif self._packed.pop(ref, None) is not None:
            self._tell(ref, revision)
            for new in self._converted(ref):
                self._origins.pop(new, None)

    def _tell(self, ref: ObjectRef, revision: int) -> None:
        if self.listener is not None and self.is_complete:
            for each in self._converted(ref):
                self.listener.wanted(each, revision)

    def _converted(self, ref: ObjectRef) -> list[ObjectRef]:
        """Return the references that the edge has of an object."""
        return [new for new, origin in self._origins.items() if origin == ref] or [ref]

    def _convert(self, ref: ObjectRef, obj: Object) -> None:
        """Note under which reference the edge has an object."""
        for new in renamed({ref: obj}, self._edge_configs.values(), self._resources).objects:
            if new != ref:
                self._origins.setdefault(new, ref)

    def _read_configs(self) -> None:
        before = self.carried
        carried = sync_set(self._configs.values(), self._edge_configs.values(), self._resources)
        self._origins.clear()
        if any((each.get("spec") or {}).get("conversions") for each in self._edge_configs.values()):
            for ref in sorted(self._packed):
                self._convert(ref, unpack(self._packed[ref]))
        self.carried = _with_origins(carried, self._origins)
        if self.listener is not None and self.is_complete and before != self.carried:
            self.listener.reconfigured(before, self.revision)


def item_name(ref: ObjectRef) -> str:
    """Return the name of the item of an object."""
    return f"{ref.resource}.{ref.group}:{ref.namespace}:{ref.name}"


def definition_of(kind: tuple[str, str]) -> ObjectRef:
    """Return the definition that a kind would have."""
    return ObjectRef(CRDS.group, CRDS.resource, "", f"{kind[1]}.{kind[0]}")


def _ref(item: Object) -> ObjectRef:
    obj = item["object"]
    group = obj["apiVersion"].rpartition("/")[0]
    metadata = obj["metadata"]
    return ObjectRef(group, item["resource"], metadata.get("namespace", ""), metadata["name"])


def _content(obj: Object) -> Object:
    """Return an object without its status and what changes with it."""
    left_out = ("resourceVersion", "managedFields")
    annotations = {key: value for key, value in annotations_of(obj).items() if key != EDGE_REVISION}
    metadata = {key: value for key, value in obj["metadata"].items() if key not in left_out}
    return {key: value for key, value in obj.items() if key != "status"} | {
        "metadata": {**metadata, "annotations": annotations}
    }


def _wanted_part(obj: Object) -> Object:
    """Return what counts as a change: the content, and who wrote it."""
    return {**_content(obj), "fields": _entries(obj)}


def _entries(obj: Object) -> list[Object]:
    """Return the owners of fields, but for those of the status."""
    return [each for each in obj["metadata"].get("managedFields") or () if each.get("subresource") != "status"]


def written_by(obj: Object) -> int:
    """Return a revision by which an object had its content, whatever status it got since.

    Revisions count microseconds of the clock that gives the times of fields, in whole seconds.
    """
    revision = int(obj["metadata"]["resourceVersion"])
    times = [time_s for each in _entries(obj) if (time_s := parse_time(str(each.get("time") or ""))) is not None]
    return min(revision, int((max(times) + 1) * 1e6)) if times else revision


def _with_origins(carried: SyncSet, origins: Mapping[ObjectRef, ObjectRef]) -> SyncSet:
    """Return a set that also lists what another reference at the edge is listed by."""
    if not origins:
        return carried
    listed = {new: ref for new, ref in origins.items() if carried.lists(ref)}
    versions = {new.kind: carried.versions[ref.kind] for new, ref in listed.items()}
    return SyncSet(
        {**versions, **carried.versions},
        carried.objects | listed.keys(),
        carried.patterns,
        carried.upsync,
        carried.protected,
        carried.number,
        carried.associated,
    )
