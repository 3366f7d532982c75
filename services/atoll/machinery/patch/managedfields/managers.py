"""Managers and their entries in `metadata.managedFields`: reading, sorting, capping, writing.

update and apply read the entries of the live object into Owners, change them and write them back. Invariant:
an entry that did not change is written back as the very dictionary that was read, so a no-op keeps its bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import msgspec

from atoll.machinery.meta.objects import Object
from atoll.machinery.patch.fieldset import FieldSet, InvalidFieldSet, parse, union
from atoll.machinery.patch.path_elements import InvalidPathElement

APPLY, UPDATE = "Apply", "Update"
#: Update entries an object may have; the oldest are merged beyond that.
MAX_UPDATE_MANAGERS = 10
ANCIENT_CHANGES = "ancient-changes"
BEFORE_FIRST_APPLY = "before-first-apply"
_TEXTS = ("manager", "operation", "apiVersion", "time", "fieldsType", "subresource")

#: name, operation, apiVersion, subresource. No apiVersion for Apply: an applier whose version moves keeps its
#: one entry.
ManagerKey: TypeAlias = tuple[str, str, str, str]


class Manager(msgspec.Struct, frozen=True):
    """Who writes: field manager, `Apply` or `Update`, in which version, through which subresource."""

    name: str
    operation: str
    api_version: str
    subresource: str = ""

    @property
    def key(self) -> ManagerKey:
        version = "" if self.operation == APPLY else self.api_version
        return (self.name, self.operation, version, self.subresource)


class ManagedFieldsEntry(msgspec.Struct, frozen=True):
    """What one manager owns. `time` is RFC 3339 or empty; `wire` is the entry as read, if unchanged."""

    manager: Manager
    time: str
    fields: FieldSet
    wire: Object | None = None

    def owning(self, fields: FieldSet, time: str | None = None) -> ManagedFieldsEntry:
        """The entry with other fields; itself if nothing changes."""
        time = self.time if time is None else time
        if time == self.time and fields == self.fields:
            return self
        return ManagedFieldsEntry(self.manager, time, fields)


Owners: TypeAlias = dict[ManagerKey, ManagedFieldsEntry]


def decode(entries: Iterable[Object] | None) -> Owners:
    """Owners from managedFields that this package wrote, which are canonical."""
    owners: Owners = {}
    for wire in entries or ():
        manager = Manager(wire.get("manager", ""), wire["operation"], wire["apiVersion"], wire.get("subresource", ""))
        owners[manager.key] = ManagedFieldsEntry(manager, wire.get("time") or "", wire.get("fieldsV1") or {}, wire)
    return owners


def encode(owners: Owners) -> list[Object]:
    """The managedFields of these owners: Apply before Update, then by time, name, version, subresource."""
    return [entry.wire or _wire(entry) for entry in sorted(owners.values(), key=_order)]


def _order(entry: ManagedFieldsEntry) -> tuple[str, str, str, str, str]:
    manager = entry.manager
    return (manager.operation, entry.time, manager.name, manager.api_version, manager.subresource)


def _wire(entry: ManagedFieldsEntry) -> Object:
    manager = entry.manager
    wire: Object = {
        "manager": manager.name,
        "operation": manager.operation,
        "apiVersion": manager.api_version,
        "fieldsType": "FieldsV1",
        "fieldsV1": entry.fields,
    }
    if entry.time:
        wire["time"] = entry.time
    if manager.subresource:
        wire["subresource"] = manager.subresource
    return wire


def is_reset(entries: object) -> bool:
    """Whether a client asks to forget all owners: an empty list, or one empty entry."""
    return isinstance(entries, list) and (not entries or (len(entries) == 1 and entries[0] == {}))


def decode_request(entries: object) -> Owners | None:
    """Owners from managedFields that a client wrote, brought to canonical form.

    None where an entry cannot be read: Kubernetes then goes on with what it knew, and tells nobody. Lengths and
    characters of names are judged with the rest of metadata.
    """
    if not isinstance(entries, list):
        return None
    canonical = [_canonical(entry) for entry in entries]
    return decode(entry for entry in canonical if entry is not None) if None not in canonical else None


def _canonical(entry: Any) -> Object | None:
    if not isinstance(entry, dict) or entry.get("operation") not in (APPLY, UPDATE):
        return None
    if entry.get("fieldsType") != "FieldsV1" or not entry.get("apiVersion"):
        return None
    if not all(isinstance(entry.get(name) or "", str) for name in _TEXTS):
        return None
    try:
        fields = parse(entry.get("fieldsV1") or {})
    except (InvalidFieldSet, InvalidPathElement):
        return None
    return {name: entry[name] for name in _TEXTS if entry.get(name)} | {"fieldsV1": fields}


def cap(owners: Owners) -> Owners:
    """Merge the oldest Update entries, by version, into `ancient-changes` until no more than ten are left.

    The first of a version stays under its own name until a second one joins it; the bucket takes the time of
    the last that went in.
    """
    if len(owners) <= MAX_UPDATE_MANAGERS:
        return owners
    updates = [entry for entry in owners.values() if entry.manager.operation == UPDATE]
    updates.sort(key=lambda entry: (entry.time, entry.manager.key))
    excess = len(updates) - MAX_UPDATE_MANAGERS
    out = dict(owners)
    first: dict[str, ManagedFieldsEntry] = {}
    for entry in updates:
        if excess <= 0:
            break
        version = entry.manager.api_version
        bucket = Manager(ANCIENT_CHANGES, UPDATE, version)
        if version not in first:
            first[version] = entry
            continue
        older = out.get(bucket.key) or out.pop(first[version].manager.key)
        del out[entry.manager.key]
        out[bucket.key] = ManagedFieldsEntry(bucket, entry.time, union(older.fields, entry.fields))
        excess -= 1
    return out


def only_times_differ(a: list[Object] | None, b: list[Object] | None) -> bool:
    """Whether two managedFields say the same about ownership."""
    return _timeless(a) == _timeless(b)


def _timeless(entries: list[Object] | None) -> dict[ManagerKey, tuple[str, FieldSet]]:
    return {key: (entry.manager.api_version, entry.fields) for key, entry in decode(entries).items()}
