"""Who owns an object's replicas, told of its Scale: entries of managedFields from one to the other and back.

The scale's handler shows a Scale with `to_scale`, lets update or apply track the write on it, and stores what
`to_parent` makes of the result. Invariant: nothing but the ownership of the replicas differs after the round trip.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from atoll.machinery.meta.objects import Object
from atoll.machinery.patch.fieldset import FieldSet, contains, difference, from_paths, union
from atoll.machinery.patch.managedfields.managers import ManagedFieldsEntry, Manager, ManagerKey, Owners, decode, encode

SCALE_VERSION = "autoscaling/v1"
_REPLICAS = ("f:spec", "f:replicas")
_OWNED: FieldSet = from_paths([_REPLICAS])

Entries = Iterable[Object]
#: apiVersion of the object to the path of its replicas, empty for a version that has no scale.
Paths = Mapping[str, tuple[str, ...]]


def replicas_path(path: str) -> tuple[str, ...]:
    """`.spec.replicas` as path elements."""
    return tuple(f"f:{name}" for name in path.removeprefix(".").split(".")) if path else ()


def to_scale(entries: Entries | None, paths: Paths) -> list[Object]:
    """The entries that own the replicas, as owners of the Scale's own field."""
    owners: Owners = {}
    for entry in decode(entries).values():
        if contains(entry.fields, paths.get(entry.manager.api_version, ())):
            manager = _on_scale(entry.manager)
            owners[manager.key] = ManagedFieldsEntry(manager, entry.time, _OWNED)
    return encode(owners)


def to_parent(entries: Entries | None, scale_entries: Entries | None, paths: Paths, api_version: str) -> list[Object]:
    """The object's entries after a write of its Scale left these.

    Who is no owner there any more loses the field; new owners get an entry in `api_version`. Entries of versions that
    are not in `paths` go, as they do with every change.
    """
    scaled = {key: entry for key, entry in decode(scale_entries).items() if contains(entry.fields, _REPLICAS)}
    owners: Owners = {}
    known: set[ManagerKey] = set()
    for key, entry in decode(entries).items():
        path = paths.get(entry.manager.api_version)
        if path is None:
            continue
        there = _on_scale(entry.manager).key
        if not contains(entry.fields, path) or there in scaled:
            owners[key] = entry
            known |= {there} if contains(entry.fields, path) else set()
        elif fields := difference(entry.fields, from_paths([path])):
            owners[key] = entry.owning(fields)
    for key, entry in scaled.items():
        if key not in known:
            _take(owners, entry, api_version, paths)
    return encode(owners)


def _on_scale(manager: Manager) -> Manager:
    return Manager(manager.name, manager.operation, SCALE_VERSION, manager.subresource)


def _take(owners: Owners, scaled: ManagedFieldsEntry, api_version: str, paths: Paths) -> None:
    manager = Manager(scaled.manager.name, scaled.manager.operation, api_version, scaled.manager.subresource)
    fields, before = from_paths([paths[api_version]]), owners.get(manager.key)
    owners[manager.key] = ManagedFieldsEntry(
        manager, scaled.time, union(before.fields, fields) if before is not None else fields
    )
