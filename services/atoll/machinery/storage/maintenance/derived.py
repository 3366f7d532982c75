"""Rows that follow from objects: indexes, counters and gates, as they should be.

`fsck` compares them with the rows of a store, `rebuild` writes them. Invariant: they follow from the objects and the
retained versions alone, by the functions that the writer uses. Memory: a key an object with owners or system labels.
"""

from __future__ import annotations

from collections.abc import Iterable

from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.storage.contract import Gate
from atoll.machinery.storage.encoding import keys, object_facts
from atoll.machinery.storage.encoding.object_facts import ObjectFacts
from atoll.machinery.storage.encoding.rows import Counter
from atoll.machinery.storage.environment.type_table import NO_TYPE


class DerivedRows:
    """The rows that follow from the objects given so far."""

    def __init__(self) -> None:
        self.owners: set[bytes] = set()
        self.labels: set[bytes] = set()
        #: By the key in `clusters`; their last revisions are 0: see `last_revisions`.
        self.counters: dict[bytes, Counter] = {}
        #: The generation of a gate is the revision of its LogicalCluster.
        self.gates: dict[bytes, Gate] = {}

    def count(self, key: bytes, size_bytes: int) -> None:
        """Add a record to the counters of its cluster and of its type."""
        for row_key in _counter_keys(key):
            row = self.counters.get(row_key, Counter(0, 0, 0))
            self.counters[row_key] = Counter(row.count + 1, row.size_bytes + size_bytes, 0)

    def index(self, key: bytes, facts: ObjectFacts) -> None:
        """Add the index rows of an object."""
        cluster = keys.split(key).cluster
        self.owners.update(keys.owner_prefix(cluster, uid) + key for uid in facts.owners)
        self.labels.update(keys.label_prefix(*pair) + key for pair in facts.labels)

    def gate(self, where: ObjectKey, plain: bytes, revision: int) -> None:
        """Add the gate that an object sets, if it is a LogicalCluster that this shard has."""
        if where.type != LOGICAL_CLUSTERS or where.name != "cluster":
            return
        state = object_facts.gate_state(plain)
        if state is not None:
            self.gates[keys.cluster_row_key(where.cluster, NO_TYPE)] = Gate(state, revision)


def last_revisions(last: Iterable[tuple[bytes, int]], compacted: int) -> dict[bytes, int]:
    """Return the last retained revision of each cluster and type, and of each type, by the key in `clusters`, given
    the last revision of each object. What was compacted is not known any more."""
    found: dict[bytes, int] = {}
    for key, revision in last:
        for row_key in _counter_keys(key) if revision > compacted else ():
            found[row_key] = max(found.get(row_key, 0), revision)
    return found


def _counter_keys(key: bytes) -> Iterable[bytes]:
    parts = keys.split(key)
    return (keys.cluster_row_key(cluster, parts.type_number) for cluster in (parts.cluster, ""))
