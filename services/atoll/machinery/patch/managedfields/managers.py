"""Field managers and their entries in `metadata.managedFields`: decoding, sorting, capping, encoding.

`update` and `apply` decode the entries of the live object into Owners, change them and write them back. Invariant: an
unchanged entry is written back as the same dictionary that was read, so a no-op keeps its bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import msgspec

from atoll.machinery.meta.objects import Object
from atoll.machinery.patch.fieldset import FieldSet, InvalidFieldSet, parse, union
from atoll.machinery.patch.path_elements import InvalidPathElement

APPLY, UPDATE = "Apply", "Update"
#: Maximum of Update entries of an object; beyond it the oldest are merged.
MAX_UPDATE_MANAGERS = 10
ANCIENT_CHANGES = "ancient-changes"
BEFORE_FIRST_APPLY = "before-first-apply"
_TEXTS = ("manager", "operation", "apiVersion", "time", "fieldsType", "subresource")

#: name, operation, apiVersion, subresource. The apiVersion of an Apply is empty: an applier that changes its version
#: keeps its one entry.
ManagerKey: TypeAlias = tuple[str, str, str, str]


class Manager(msgspec.Struct, frozen=True):
    """A writer: field manager name, operation (`Apply` or `Update`), version and subresource of the request."""

    name: str
    operation: str
    api_version: str
    subresource: str = ""

    @property
    def key(self) -> ManagerKey:
        """The identity of this manager's entry."""
        version = "" if self.operation == APPLY else self.api_version
        return (self.name, self.operation, version, self.subresource)


class ManagedFieldsEntry(msgspec.Struct, frozen=True):
    """The fields of one manager. `time` is RFC 3339 or empty; `wire` is the entry as read, if unchanged."""

    manager: Manager
    time: str
    fields: FieldSet
    wire: Object | None = None

    def owning(self, fields: FieldSet, time: str | None = None) -> ManagedFieldsEntry:
        """Return the entry with other fields; itself if nothing changes."""
        time = self.time if time is None else time
        if time == self.time and fields == self.fields:
            return self
        return ManagedFieldsEntry(self.manager, time, fields)


Owners: TypeAlias = dict[ManagerKey, ManagedFieldsEntry]


def decode(entries: Iterable[Object] | None) -> Owners:
    """Decode managedFields that this package wrote, which are canonical."""
    owners: Owners = {}
    for wire in entries or ():
        manager = Manager(wire.get("manager", ""), wire["operation"], wire["apiVersion"], wire.get("subresource", ""))
        owners[manager.key] = ManagedFieldsEntry(manager, wire.get("time") or "", wire.get("fieldsV1") or {}, wire)
    return owners


def encode(owners: Owners) -> list[Object]:
    """Encode owners as managedFields: Apply before Update, then by time, name, version, subresource."""
    entries: Iterable[ManagedFieldsEntry] = owners.values()
    if len(owners) > 1:
        entries = sorted(entries, key=_sort_key)
    return [entry.wire or new_entry(entry) for entry in entries]


def set_managed_fields(metadata: Object, owners: Owners) -> None:
    """Set `managedFields` of an object's metadata, or remove it when there are no owners."""
    if owners:
        metadata["managedFields"] = encode(owners)
    else:
        metadata.pop("managedFields", None)


def _sort_key(entry: ManagedFieldsEntry) -> tuple[str, str, str, str, str]:
    manager = entry.manager
    return (manager.operation, entry.time, manager.name, manager.api_version, manager.subresource)


def new_entry(entry: ManagedFieldsEntry) -> Object:
    """Encode one entry that changed."""
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
    """Whether a client asks to remove all owners: an empty list, or one empty entry."""
    return isinstance(entries, list) and (not entries or (len(entries) == 1 and entries[0] == {}))


def decode_request(entries: object) -> Owners | None:
    """Decode managedFields that a client wrote, in canonical form.

    Return None when an entry cannot be decoded: Kubernetes then keeps the live entries and reports no error. Lengths
    and characters of names are validated with the rest of metadata.
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
    """Merge the oldest Update entries of each version into `ancient-changes` until at most ten are left.

    The first entry of a version keeps its name until a second one is merged with it; the bucket has the time of the
    entry merged last.
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
    """Whether two managedFields differ in nothing but times."""
    return _timeless(a) == _timeless(b)


def _timeless(entries: list[Object] | None) -> dict[ManagerKey, tuple[str, FieldSet]]:
    return {key: (entry.manager.api_version, entry.fields) for key, entry in decode(entries).items()}
