"""SyncerConfigs: the list of what a syncer carries, in objects of at most 1 MiB, and what a syncer reads from them.

The placement translator writes what `plan_parts` returns, in this order, once the objects that they name are in the
mailbox; a syncer reads all SyncerConfigs of its mailbox into one `SyncSet`. Invariant: while parts change, their
numbers (WHOLE) differ, so that a set of parts with one number, `the-one` among them, lists everything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import groupby
from typing import TypeAlias

import msgspec

from atoll.machinery.edge.applied import digest
from atoll.machinery.edge.categories import goes_to_edge
from atoll.machinery.edge.names import API_VERSION, PROJECTED, PROJECTED_VALUE, THE_ONE, VERSIONS, WHOLE, ObjectRef
from atoll.machinery.edge.placements import UpsyncSet
from atoll.machinery.meta.objects import Object, annotations_of, encode_json, labels_of, spec_of

#: Encoded specs stay below 1 MiB together with their metadata and managedFields.
MAX_SPEC_BYTES = 1024 * 1024 - 64 * 1024
#: What an object adds to its spec beside its own texts, at most: each may begin a new entry and a new namespace.
ROW_BYTES = 120

#: An object with the version of its kind, a set of objects that come up, or what a collector asks for.
_Row: TypeAlias = "tuple[ObjectRef, str] | UpsyncSet | Object"


#: Field of what `brief` returns.
DIGEST = "digestOfSpec"


class PartWrites(msgspec.Struct, frozen=True):
    """SyncerConfigs to create, then to apply, then to delete; none while all is as it should be."""

    create: tuple[Object, ...] = ()
    apply: tuple[Object, ...] = ()
    delete: tuple[Object, ...] = ()


def next_number(parts: Iterable[Object], now_ms: int) -> int:
    """Return the number of the next content: above all there are, and above those of a mailbox that is lost."""
    return max([now_ms, *(number_of(part) + 1 for part in parts)])


def number_of(part: Object) -> int:
    """Return the number of a SyncerConfig, 0 if it has none."""
    text = annotations_of(part).get(WHOLE, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0


def specs_of(
    objects: Mapping[ObjectRef, str],
    upsync: Collection[UpsyncSet],
    limit: int = MAX_SPEC_BYTES,
    associated: Iterable[Object] = (),
) -> list[Object]:
    """Return the specs that list these objects, by their version; at least one. What ends in mailboxes is not listed.

    `associated` are rows of `associated.query_row`. Everything else is sorted, so equal content gives equal specs.
    """
    rows: list[_Row] = [(ref, version) for ref, version in sorted(objects.items()) if goes_to_edge(*ref.kind)]
    rows += sorted(set(upsync))
    rows += associated
    specs: list[Object] = []
    part: list[tuple[ObjectRef, str]] = []
    ups: list[UpsyncSet] = []
    queries: list[Object] = []
    size = 0
    for row in rows:
        cost = _cost(row)
        if size + cost > limit and size:
            specs.append(_spec(part, ups, queries))
            part, ups, queries, size = [], [], [], 0
        size += cost
        if isinstance(row, UpsyncSet):
            ups.append(row)
        elif isinstance(row, dict):
            queries.append(row)
        else:
            part.append(row)
    return [*specs, _spec(part, ups, queries)]


def _cost(row: _Row) -> int:
    """Return an upper bound of the bytes that a row adds."""
    if isinstance(row, UpsyncSet):
        return row_bytes(row.as_object())
    if isinstance(row, dict):
        return row_bytes(row)
    ref, version = row
    return names_bytes((ref.name,), ref.group, ref.resource, version, ref.namespace)


def row_bytes(row: Object) -> int:
    """Return the bytes that a row of `upsync` or `associated` adds to a spec."""
    return len(encode_json(row)) + 1


def names_bytes(names: Collection[str], *texts: str) -> int:
    """Return an upper bound of the bytes that names add, each with these texts: group, resource, version, namespace."""
    return len(names) * (ROW_BYTES + sum(map(len, texts))) + sum(map(len, names))


def _spec(rows: list[tuple[ObjectRef, str]], upsync: list[UpsyncSet], queries: list[Object]) -> Object:
    spec: Object = {"namespaceScope": {}}
    namespaced, cluster_scoped = [], []
    for (group, resource, version), members in groupby(rows, key=lambda row: (*row[0].kind, row[1])):
        entry = {"group": group, "resource": resource, "apiVersion": version}
        refs = [ref for ref, _ in members]
        if plain := [ref.name for ref in refs if not ref.namespace]:
            cluster_scoped.append({**entry, "objects": plain})
        places = [
            {"namespace": namespace, "names": [ref.name for ref in inside]}
            for namespace, inside in groupby((ref for ref in refs if ref.namespace), key=lambda ref: ref.namespace)
        ]
        if places:
            namespaced.append({**entry, "objectsByNamespace": places})
    if namespaced:
        spec["namespacedObjects"] = namespaced
    if cluster_scoped:
        spec["clusterScope"] = cluster_scoped
    if upsync:
        spec["upsync"] = [each.as_object() for each in upsync]
    if queries:
        spec["associated"] = queries
    return spec


def brief(config: Object) -> Object:
    """Return a SyncerConfig with a digest of its spec, of which only what it asks of associated objects is left.

    `plan_parts` needs no more: a spec names thousands of objects.
    """
    spec = spec_of(config)
    asked = {"associated": spec["associated"]} if spec.get("associated") else {}
    return {**config, "spec": asked, DIGEST: digest(spec)}


def replaced(stored: Object, part: Object) -> Object:
    """Return a stored part, whole or brief, with the content of another; its revision has to be current."""
    metadata = {
        **stored["metadata"],
        "labels": {**labels_of(stored), **labels_of(part)},
        "annotations": {**annotations_of(stored), **annotations_of(part)},
    }
    kept = {key: value for key, value in stored.items() if key != DIGEST}
    return {**kept, "metadata": metadata, "spec": part["spec"]}


def digest_of(config: Object) -> str:
    """Return a digest of the spec of a SyncerConfig, whole or brief."""
    return str(config[DIGEST]) if DIGEST in config else digest(spec_of(config))


def part_name(number: int) -> str:
    """Return the name of a part; the first, number 1, is `the-one`."""
    return THE_ONE if number == 1 else f"{THE_ONE}-{number}"


def is_part(obj: Object) -> bool:
    """Whether the placement translator keeps a SyncerConfig."""
    return obj["metadata"]["name"] == THE_ONE or labels_of(obj).get(PROJECTED) == PROJECTED_VALUE


def plan_parts(specs: list[Object], existing: Iterable[Object], now_ms: int, versions: str = "") -> PartWrites:
    """Return the writes after which the parts in a mailbox are these specs, with one number; `the-one` comes last.

    It has the choice of versions. Other SyncerConfigs of the mailbox are not touched. Existing ones are whole or brief.
    """
    parts = {each["metadata"]["name"]: each for each in existing if is_part(each)}
    wanted = {part_name(number): spec for number, spec in enumerate(specs, 1)}
    chosen = annotations_of(parts[THE_ONE]).get(VERSIONS, "") if THE_ONE in parts else ""
    is_same = chosen == versions and _digests(parts) == {name: digest(spec) for name, spec in wanted.items()}
    if is_same and whole_number(parts.values()):
        return PartWrites()
    number = next_number(parts.values(), now_ms)
    written = {name: _part(name, spec, number) for name, spec in wanted.items()}
    if chosen or versions:
        written[THE_ONE]["metadata"]["annotations"][VERSIONS] = versions
    in_order = [*(name for name in written if name != THE_ONE), THE_ONE]
    return PartWrites(
        tuple(written[name] for name in in_order if name not in parts),
        tuple(written[name] for name in in_order if name in parts),
        tuple(part for name, part in sorted(parts.items()) if name not in wanted),
    )


def _digests(parts: Mapping[str, Object]) -> dict[str, str]:
    return {name: digest_of(part) for name, part in parts.items()}


def _part(name: str, spec: Object, number: int) -> Object:
    metadata = {"name": name, "labels": {PROJECTED: PROJECTED_VALUE}, "annotations": {WHOLE: str(number)}}
    return {"apiVersion": API_VERSION, "kind": "SyncerConfig", "metadata": metadata, "spec": spec}


def unwritten_list() -> Object:
    """Return `the-one` of a new mailbox: without a number, so that nothing is deleted by it."""
    metadata = {"name": THE_ONE, "labels": {PROJECTED: PROJECTED_VALUE}}
    (spec,) = specs_of({}, ())
    return {"apiVersion": API_VERSION, "kind": "SyncerConfig", "metadata": metadata, "spec": spec}


def whole_number(configs: Iterable[Object]) -> int:
    """Return the number that all parts have; 0 while they differ, have none, or `the-one` is not there."""
    parts = [each for each in configs if is_part(each)]
    numbers = {number_of(each) for each in parts}
    has_first = any(each["metadata"]["name"] == THE_ONE for each in parts)
    return numbers.pop() if has_first and len(numbers) == 1 else 0
