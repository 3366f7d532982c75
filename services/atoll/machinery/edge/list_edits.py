"""A list with a few objects more or less, made of the list before in place of all its objects.

The placement translator asks for it before `syncerconfigs.specs_of`, whose cost is that of everything in a mailbox.
Invariant: what is returned equals what `specs_of` makes of the same objects.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from atoll.machinery.edge.categories import goes_to_edge
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.edge.syncerconfigs import MAX_SPEC_BYTES, names_bytes, row_bytes
from atoll.machinery.meta.objects import Object

#: Field with the entries, and field of an entry with its members, of objects with a namespace and of others.
_NAMESPACED, _CLUSTER_SCOPED = ("namespacedObjects", "objectsByNamespace"), ("clusterScope", "objects")


def edited(spec: Object, changes: Mapping[ObjectRef, str], limit: int = MAX_SPEC_BYTES) -> Object | None:
    """Return the spec of a list of one part, of `specs_of`, with these objects by their version, "" for unlisted ones.

    None where that is not told by the list before: a kind is listed in several versions, or it takes several parts.
    """
    found = dict(spec)
    for ref, version in changes.items():
        if not goes_to_edge(*ref.kind):
            continue
        field, members = _NAMESPACED if ref.namespace else _CLUSTER_SCOPED
        entries = _with_object(found.get(field) or [], members, ref, version)
        if entries is None:
            return None
        if entries:
            found[field] = entries
        else:
            found.pop(field, None)
    return found if _size(found) <= limit else None


def _with_object(entries: list[Object], members: str, ref: ObjectRef, version: str) -> list[Object] | None:
    """Return the entries with an object or without it; None if its kind is in several, or in another version."""
    at = bisect_left(entries, ref.kind, key=_kind)
    same = [each for each in entries[at : at + 2] if _kind(each) == ref.kind]
    if len(same) > 1 or (same and version and same[0]["apiVersion"] != version):
        return None
    before: Object = same[0] if same else {"group": ref.group, "resource": ref.resource, "apiVersion": version}
    inside = before.get(members) or []
    inside = _with_place(inside, ref, version) if ref.namespace else _with_name(inside, ref.name, version)
    after = [{**before, members: inside}] if inside else []
    return [*entries[:at], *after, *entries[at + len(same) :]]


def _with_place(places: list[Object], ref: ObjectRef, version: str) -> list[Object]:
    at = bisect_left(places, ref.namespace, key=lambda place: place["namespace"])
    is_there = at < len(places) and places[at]["namespace"] == ref.namespace
    names = _with_name(places[at]["names"] if is_there else [], ref.name, version)
    after = [{"namespace": ref.namespace, "names": names}] if names else []
    return [*places[:at], *after, *places[at + is_there :]]


def _with_name(names: list[str], name: str, version: str) -> list[str]:
    at = bisect_left(names, name)
    is_there = at < len(names) and names[at] == name
    return [*names[:at], *([name] if version else []), *names[at + is_there :]]


def _kind(entry: Object) -> tuple[str, str]:
    return entry["group"], entry["resource"]


def _size(spec: Object) -> int:
    """Return the upper bound of the bytes of a spec by which `specs_of` divides lists."""
    rows = (*(spec.get("upsync") or ()), *(spec.get("associated") or ()))
    size = sum(map(row_bytes, rows))
    for entry in spec.get("clusterScope") or ():
        size += names_bytes(entry["objects"], *_texts(entry))
    for entry in spec.get("namespacedObjects") or ():
        texts = _texts(entry)
        size += sum(names_bytes(place["names"], *texts, place["namespace"]) for place in entry["objectsByNamespace"])
    return size


def _texts(entry: Object) -> tuple[str, str, str]:
    return entry["group"], entry["resource"], entry["apiVersion"]
