"""Field tracking of create, update and the patches other than apply.

Verb handlers call `track_update` before mutating admission; the object then goes on to validation and encoding.
Invariants: a write that changes no field leaves managedFields unchanged, byte for byte; the fields that a write changes
belong to its manager alone.
"""

from __future__ import annotations

import msgspec

from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.patch.fieldset import covers, union
from atoll.machinery.patch.managedfields.managers import (
    ManagedFieldsEntry,
    Manager,
    Owners,
    cap,
    decode,
    decode_request,
    is_reset,
    new_entry,
    only_times_differ,
    set_managed_fields,
)
from atoll.machinery.patch.managedfields.options import NO_RESET, TrackOptions, Versions
from atoll.machinery.patch.managedfields.ownership import VersionedChanges, reconcile_with_schema, without_changes
from atoll.machinery.patch.structuredmerge.fieldset_builder import created_set
from atoll.machinery.patch.structuredmerge.topology import TypeSchema

_DEFAULTS = TrackOptions()
_IGNORED: Object = {"managedFields": None, "resourceVersion": None}


def track_update(
    live: Object | None, new: Object, manager: Manager, schema: TypeSchema, now: str, options: TrackOptions = _DEFAULTS
) -> None:
    """Set new["metadata"]["managedFields"] after a write other than apply.

    `live` is None on create; `now` is RFC 3339 in UTC, to the second. managedFields that the client sent replace the
    live ones; `[]` and `[{}]` remove all owners. The live ones stay if the client sent none or invalid ones, or wrote
    to a subresource. An object whose owners were removed has none until the next apply.
    """
    metadata = new["metadata"]
    if live is None and not metadata.get("managedFields"):
        _own_all(new, manager, schema, now, options)
        return
    initial = _initial_owners(live, metadata, manager)
    owners = initial.owners
    if live is None and not owners:
        _own_all(new, manager, schema, now, options)
        return
    if live is not None and not owners:
        set_managed_fields(metadata, {})
        return
    versions = Versions(manager.api_version, schema, options)
    before = live if live is not None else {"apiVersion": manager.api_version, "metadata": {}}
    changes = VersionedChanges(before, new, versions, options.reset)
    own = changes.own
    if not (own.added or own.modified or own.removed):
        if initial.are_live and live is not None:
            metadata["managedFields"] = live["metadata"]["managedFields"]
        else:
            set_managed_fields(metadata, owners)
        return
    set_managed_fields(metadata, _attributed(owners, changes, manager, versions, now))


def _own_all(new: Object, manager: Manager, schema: TypeSchema, now: str, options: TrackOptions) -> None:
    """Make the creator the owner of all fields of a new object."""
    fields = created_set(new, schema.root)
    if options.reset is not NO_RESET:
        fields = options.reset.filter(fields)
    if fields:
        new["metadata"]["managedFields"] = [new_entry(ManagedFieldsEntry(manager, now, fields))]
    else:
        new["metadata"].pop("managedFields", None)


class _InitialOwners(msgspec.Struct, frozen=True):
    """The owners before the change of a write, and whether they are those of the live object."""

    owners: Owners
    are_live: bool


def _initial_owners(live: Object | None, metadata: Object, manager: Manager) -> _InitialOwners:
    stored = live["metadata"].get("managedFields") if live is not None else None
    sent = metadata.get("managedFields")
    if sent is None or manager.subresource or sent == stored:
        return _InitialOwners(decode(stored), True)
    owners = {} if is_reset(sent) else decode_request(sent)
    return _InitialOwners(decode(stored), True) if owners is None else _InitialOwners(owners, False)


def _attributed(owners: Owners, changes: VersionedChanges, manager: Manager, versions: Versions, now: str) -> Owners:
    key = manager.key
    owners = without_changes(reconcile_with_schema(owners, versions), changes, key)
    touched = changes.own.touched
    if touched:
        entry = owners.get(key)
        fields = touched
        if entry is not None:
            # Most updates change what their manager owns.
            fields = entry.fields if covers(entry.fields, touched) else union(entry.fields, touched)
        owners[key] = ManagedFieldsEntry(manager, now, fields)
    return cap(owners)


def keep_timestamps(live: Object, new: Object) -> None:
    """Set the managedFields of `new` to those of `live` if the objects differ in nothing but their times.

    Called at the end of a write: fields that the handler resets or defaults after tracking may make the write a no-op,
    and a no-op must not change a timestamp.
    """
    before, after = live["metadata"].get("managedFields"), new["metadata"].get("managedFields")
    if before != after and _same_but_managed(live, new) and only_times_differ(before, after):
        new["metadata"]["managedFields"] = before


def _same_but_managed(a: Object, b: Object) -> bool:
    first, second = ({**obj, "metadata": {**obj["metadata"], **_IGNORED}} for obj in (a, b))
    # Compared by type, as Go compares decoded objects: 1.0 in place of 1 is a write.
    return first == second and encode_json(first) == encode_json(second)
