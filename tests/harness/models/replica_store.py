"""A store's replicas as plain dicts: the expected rows, routes and sweeps."""

from __future__ import annotations

from typing import NamedTuple

from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.storage.contract import ClusterRoute, Mark, Mutation, Replica, Scope, SweepReplicas
from atoll.machinery.storage.encoding.keys import relative_key


class Row(NamedTuple):
    """One object as an origin sent it."""

    generation: int
    revision: int
    value: bytes


class ReplicaModel:
    """Rows by origin and key, routes by cluster, marks by name."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, ObjectKey], Row] = {}
        self.routes: dict[str, ClusterRoute] = {}
        self.marks: dict[str, bytes] = {}
        #: The apply count.
        self.count = 0

    def apply(self, mutation: Mutation) -> int:
        """Apply one mutation; return the result that `submit` returns."""
        match mutation:
            case Replica():
                return self._replica(mutation)
            case ClusterRoute():
                return self._route(mutation)
            case SweepReplicas():
                doomed = self.below(mutation.origin, mutation.generation)
                for where in doomed:
                    del self.rows[where]
                self.count += len(doomed)
                return len(doomed)
            case Mark():
                self.marks[mutation.name] = mutation.value
                return 0
        raise AssertionError(mutation)

    def below(self, origin: str, generation: int) -> list[tuple[str, ObjectKey]]:
        """The rows that a sweep deletes."""
        return [where for where, row in self.rows.items() if where[0] == origin and row.generation < generation]

    def _replica(self, sent: Replica) -> int:
        where, new = (sent.origin, sent.key), Row(sent.generation, sent.revision, sent.value)
        old = self.rows.get(where)
        if old is not None and new[:2] <= old[:2]:
            return 0
        if new.value:
            self.rows[where] = new
        else:
            self.rows.pop(where, None)
        return self._counted(old[1:] != new[1:] if old else bool(new.value))

    def _route(self, new: ClusterRoute) -> int:
        present = self.routes.get(new.cluster, ClusterRoute(new.cluster, ""))
        if new.generation < present.generation:
            return 0
        if new.shard:
            self.routes[new.cluster] = new
        else:
            self.routes.pop(new.cluster, None)
        return self._counted(new.shard != present.shard)

    def _counted(self, changed: bool) -> int:
        self.count += changed
        return self.count if changed else 0

    def counting(self, scope: Scope, origin: str = "") -> list[tuple[ObjectKey, int, bytes]]:
        """Valid rows of a scope, or rows that an origin sent of it, in key order."""
        found = [
            (where, row.revision, row.value)
            for (sender, where), row in self.rows.items()
            if (sender == origin if origin else self._counts(sender, where))
            and where.type == scope.type
            and scope.cluster in ("", where.cluster)
            and scope.namespace in ("", where.namespace)
        ]
        return sorted(found, key=lambda row: relative_key(row[0].cluster, row[0].namespace, row[0].name))

    def _counts(self, sender: str, where: ObjectKey) -> bool:
        route = self.routes.get(where.cluster)
        return route is not None and route.shard == sender
