"""managedFields of a Scale: conversion of the entries that own an object's replicas, in both directions.

The handler of `/scale` fills the Scale's entries with `to_scale`, tracks the write on the Scale with `update` or
`apply`, and stores the object with the entries of `to_parent`. Invariant: only the ownership of the replicas differs
after the round trip.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from atoll.machinery.meta.objects import Object
from atoll.machinery.patch.fieldset import FieldSet, contains, difference, from_paths, union
from atoll.machinery.patch.managedfields.managers import ManagedFieldsEntry, Manager, ManagerKey, Owners, decode, encode

SCALE_VERSION = "autoscaling/v1"
_REPLICAS = ("f:spec", "f:replicas")
_REPLICAS_FIELD: FieldSet = from_paths([_REPLICAS])

Entries = Iterable[Object]
#: apiVersion of the object to the path of its replicas, empty for a version that has no scale.
Paths = Mapping[str, tuple[str, ...]]


def replicas_path(path: str) -> tuple[str, ...]:
    """Return a JSON path such as `.spec.replicas` as path elements."""
    return tuple(f"f:{name}" for name in path.removeprefix(".").split(".")) if path else ()


def to_scale(entries: Entries | None, paths: Paths) -> list[Object]:
    """Return the entries that own the replicas, as owners of the Scale's `spec.replicas`."""
    owners: Owners = {}
    for entry in decode(entries).values():
        if contains(entry.fields, paths.get(entry.manager.api_version, ())):
            manager = _on_scale(entry.manager)
            owners[manager.key] = ManagedFieldsEntry(manager, entry.time, _REPLICAS_FIELD)
    return encode(owners)


def to_parent(entries: Entries | None, scale_entries: Entries | None, paths: Paths, api_version: str) -> list[Object]:
    """Return the object's entries after a write of its Scale that resulted in `scale_entries`.

    Managers that no longer own the Scale's field lose the replicas; new owners get an entry in `api_version`. Entries
    of versions that are not in `paths` are dropped, as they are with every change.
    """
    scale_owners = {key: entry for key, entry in decode(scale_entries).items() if contains(entry.fields, _REPLICAS)}
    owners: Owners = {}
    known: set[ManagerKey] = set()
    for key, entry in decode(entries).items():
        path = paths.get(entry.manager.api_version)
        if path is None:
            continue
        scale_key = _on_scale(entry.manager).key
        if not contains(entry.fields, path):
            owners[key] = entry
        elif scale_key in scale_owners:
            owners[key] = entry
            known.add(scale_key)
        elif fields := difference(entry.fields, from_paths([path])):
            owners[key] = entry.owning(fields)
    for key, entry in scale_owners.items():
        if key not in known:
            _add_owner(owners, entry, api_version, paths)
    return encode(owners)


def _on_scale(manager: Manager) -> Manager:
    return Manager(manager.name, manager.operation, SCALE_VERSION, manager.subresource)


def _add_owner(owners: Owners, scale_entry: ManagedFieldsEntry, api_version: str, paths: Paths) -> None:
    on_scale = scale_entry.manager
    manager = Manager(on_scale.name, on_scale.operation, api_version, on_scale.subresource)
    fields, entry = from_paths([paths[api_version]]), owners.get(manager.key)
    if entry is not None:
        fields = union(entry.fields, fields)
    owners[manager.key] = ManagedFieldsEntry(manager, scale_entry.time, fields)
