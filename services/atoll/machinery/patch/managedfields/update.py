"""Ownership of fields on create, update and the patches that are not apply.

Verb handlers call `track_update` after admission changed the object; the object then goes on to validation
and encoding. Invariants: a write that changes no field leaves managedFields as they were, byte for byte; what
a write changes belongs to its manager alone.
"""

from __future__ import annotations

from atoll.machinery.meta.objects import Object
from atoll.machinery.patch.equality import same
from atoll.machinery.patch.fieldset import union
from atoll.machinery.patch.managedfields.managers import (
    ManagedFieldsEntry,
    Manager,
    Owners,
    cap,
    decode,
    decode_request,
    encode,
    is_reset,
    only_times_differ,
)
from atoll.machinery.patch.managedfields.options import TrackOptions, Versions
from atoll.machinery.patch.managedfields.ownership import VersionedChanges, reconcile_with_schema, transfer_ownership
from atoll.machinery.patch.structuredmerge.fieldset_builder import created_set
from atoll.machinery.patch.structuredmerge.topology import TypeSchema

_DEFAULTS = TrackOptions()
_IGNORED: Object = {"managedFields": None, "resourceVersion": None}


def track_update(
    live: Object | None, new: Object, manager: Manager, schema: TypeSchema, now: str, options: TrackOptions = _DEFAULTS
) -> None:
    """Set new["metadata"]["managedFields"] after a write other than apply.

    `live` is None on create; `now` is RFC 3339 in UTC, to the second. managedFields the client sent are taken
    over, `[]` or `[{}]` forget all owners, none keep the live ones, as do unreadable ones and those sent to a
    subresource. An object without owners (they were reset) stays so until somebody applies.
    """
    metadata = new["metadata"]
    owners, is_kept = _given(live, metadata, manager)
    if live is None and not owners:
        _set(new, _created(new, manager, schema, now, options))
        return
    if live is not None and not owners:
        _set(new, {})
        return
    versions = Versions(manager.api_version, schema, options)
    before = live if live is not None else {"apiVersion": manager.api_version, "metadata": {}}
    changes = VersionedChanges(before, new, versions, options.reset)
    if changes.own.is_empty:
        if is_kept and live is not None:
            metadata["managedFields"] = live["metadata"]["managedFields"]
        else:
            _set(new, owners)
        return
    _set(new, _attributed(owners, changes, manager, versions, now))


def _created(new: Object, manager: Manager, schema: TypeSchema, now: str, options: TrackOptions) -> Owners:
    fields = options.reset.filter(created_set(new, schema.root))
    return {manager.key: ManagedFieldsEntry(manager, now, fields)} if fields else {}


def _given(live: Object | None, metadata: Object, manager: Manager) -> tuple[Owners, bool]:
    """The owners to start from, and whether they are the live object's own."""
    kept = live["metadata"].get("managedFields") if live is not None else None
    sent = metadata.get("managedFields")
    if sent is None or manager.subresource or sent == kept:
        return decode(kept), True
    if is_reset(sent):
        return {}, False
    given = decode_request(sent)
    return (decode(kept), True) if given is None else (given, False)


def _attributed(owners: Owners, changes: VersionedChanges, manager: Manager, versions: Versions, now: str) -> Owners:
    owners = transfer_ownership(reconcile_with_schema(owners, versions), changes).owners
    touched = changes.own.touched
    if touched:
        mine = owners.get(manager.key)
        fields = union(mine.fields, touched) if mine is not None else touched
        owners[manager.key] = ManagedFieldsEntry(manager, now, fields)
    return cap(owners)


def _set(new: Object, owners: Owners) -> None:
    if owners:
        new["metadata"]["managedFields"] = encode(owners)
    else:
        new["metadata"].pop("managedFields", None)


def keep_timestamps(live: Object, new: Object) -> None:
    """Give `new` the managedFields of `live` where they differ in nothing but times.

    For the end of a write: what the handler resets or defaults after tracking may make it a no-op, and a
    no-op must not move a timestamp.
    """
    before, after = live["metadata"].get("managedFields"), new["metadata"].get("managedFields")
    if before != after and only_times_differ(before, after) and _same_but_managed(live, new):
        new["metadata"]["managedFields"] = before


def _same_but_managed(a: Object, b: Object) -> bool:
    stripped = ({**obj, "metadata": {**obj["metadata"], **_IGNORED}} for obj in (a, b))
    first, second = stripped
    return same(first, second)
