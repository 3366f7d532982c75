"""What a syncer carries: all SyncerConfigs and EdgeSyncConfigs of its mailbox as one value.

A syncer builds it anew when one of them changes, and `plan` and `upsync` take it. Invariant: objects that parts of a
whole set name (`syncerconfigs.whole_number`) are protected, so that one which is missing in the mailbox for a while is
not deleted at the edge; what wildcards, EdgeSyncConfigs and other SyncerConfigs list counts while it is in the mailbox.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple
from weakref import WeakValueDictionary

import msgspec

from atoll.machinery.edge.associated import AssociatedQuery, query_of
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.edge.placements import ANY, UpsyncSet, upsync_set
from atoll.machinery.edge.syncerconfigs import is_part, whole_number
from atoll.machinery.meta.objects import Object, spec_of

#: Sets of objects that are in use, by their hashes.
_in_use: WeakValueDictionary[int, frozenset[ObjectRef]] = WeakValueDictionary()


def _shared(refs: Iterable[ObjectRef]) -> frozenset[ObjectRef]:
    """Return a set that is one with all equal ones: thousands of mailboxes may list the same hundred objects."""
    made = frozenset(refs)
    known = _in_use.get(hash(made))
    if known == made:
        return known
    _in_use[hash(made)] = made
    return made


class _Row(NamedTuple):
    """One object, or with ANY all of a namespace or kind. `namespace` is empty for cluster-scoped kinds."""

    group: str
    resource: str
    version: str
    namespace: str
    name: str


class SyncSet(msgspec.Struct, frozen=True):
    """The objects that go down, with the version of each kind, the sets that come up, and what is asked beside them.

    `number` is that of the whole set, 0 while it is not whole; `protected` are the objects that it names.
    """

    versions: Mapping[tuple[str, str], str]
    objects: frozenset[ObjectRef]
    patterns: Mapping[tuple[str, str], frozenset[tuple[str, str]]]
    upsync: tuple[UpsyncSet, ...]
    protected: frozenset[ObjectRef]
    number: int
    associated: tuple[AssociatedQuery, ...] = ()

    def lists(self, ref: ObjectRef) -> bool:
        """Whether an object goes down."""
        if ref in self.objects:
            return True
        for namespace, name in self.patterns.get(ref.kind, ()):
            is_in_namespace = namespace == ref.namespace or (namespace == ANY and bool(ref.namespace))
            if is_in_namespace and name in (ANY, ref.name):
                return True
        return False

    def comes_up(self, ref: ObjectRef) -> bool:
        """Whether a set asks for an object of the edge."""
        return any(each.matches(ref) for each in self.upsync)


def sync_set(
    configs: Iterable[Object], edge_sync_configs: Iterable[Object] = (), resources: Mapping[tuple[str, str], str] = {}
) -> SyncSet:
    """Return what these list. `resources` has the resource of each group and kind; rows of others have no effect."""
    configs = sorted(configs, key=lambda each: str(each["metadata"]["name"]))
    number = whole_number(configs)
    protected = [row for each in configs if number and is_part(each) for row in _rows(spec_of(each))]
    rows = [row for each in configs for row in _rows(spec_of(each))]
    upsync = {upsync_set(each) for config in configs for each in spec_of(config).get("upsync") or ()}
    for config in edge_sync_configs:
        spec = spec_of(config)
        rows += _named_rows(spec.get("downSyncedResources") or (), resources)
        for row in _named_rows(spec.get("upSyncedResources") or (), resources):
            upsync.add(UpsyncSet(row.group, (row.resource,), (row.namespace,), (row.name,)))
    patterns = defaultdict[tuple[str, str], set[tuple[str, str]]](set)
    for row in rows:
        if ANY in (row.namespace, row.name):
            patterns[row.group, row.resource].add((row.namespace, row.name))
    return SyncSet(
        {(row.group, row.resource): row.version for row in reversed(rows)},
        _shared(_refs(rows)),
        {kind: frozenset(found) for kind, found in patterns.items()},
        tuple(sorted(upsync)),
        _shared(_refs(protected)),
        number,
        tuple(found for each in configs for row in spec_of(each).get("associated") or () if (found := query_of(row))),
    )


def _refs(rows: Iterable[_Row]) -> Iterator[ObjectRef]:
    for row in rows:
        if ANY not in (row.namespace, row.name):
            yield ObjectRef(row.group, row.resource, row.namespace, row.name)


def _rows(spec: Object) -> Iterator[_Row]:
    scope = spec.get("namespaceScope") or {}
    for entry in scope.get("resources") or ():
        for namespace in scope.get("namespaces") or ():
            yield _row(entry, namespace, ANY)
    for entry in spec.get("namespacedObjects") or ():
        for place in entry.get("objectsByNamespace") or ():
            for name in place.get("names") or ():
                yield _row(entry, place["namespace"], name)
    for entry in spec.get("clusterScope") or ():
        names = entry.get("objects")
        # Without a list it is all of the kind, with an empty one none.
        for name in [ANY] if names is None else names:
            yield _row(entry, "", name)


def _row(entry: Object, namespace: str, name: str) -> _Row:
    return _Row(entry.get("group") or "", entry["resource"], entry["apiVersion"], namespace, name)


def _named_rows(entries: Iterable[Object], resources: Mapping[tuple[str, str], str]) -> Iterator[_Row]:
    for entry in entries:
        group = entry.get("group") or ""
        if resource := resources.get((group, entry["kind"])):
            yield _Row(group, resource, entry["version"], entry.get("namespace") or "", entry["name"])
