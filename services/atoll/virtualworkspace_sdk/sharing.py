"""Which workspaces bind the export, and with which others they share what follows from their objects.

A workspace shares by an annotation of its APIBinding, which names logical clusters, separated by commas. The export's
view serves these bindings without a claim. Invariant: nothing is shared but by an annotation that is there now, and
sharing goes one way.
"""

from __future__ import annotations

from atoll.machinery.meta import wellknown
from atoll.machinery.meta.objects import Object, annotations_of

MAX_SHARED = 64


def shared_with(binding: Object | None) -> frozenset[str]:
    """Return the clusters that a binding shares with: the first MAX_SHARED that it names."""
    names = annotations_of(binding or {"metadata": {}}).get(wellknown.SHARED_WITH, "").split(",")[:MAX_SHARED]
    return frozenset(name.strip() for name in names if name.strip())


class Sharing:
    """The bindings of all consumers."""

    def __init__(self) -> None:
        self._given: dict[str, dict[str, frozenset[str]]] = {}
        self._taken: dict[str, set[str]] = {}

    def put(self, cluster: str, name: str, binding: Object | None) -> frozenset[str]:
        """Record a binding, None for a deleted one; return the clusters with which sharing began or ended."""
        before = self.of(cluster)
        bindings = self._given.setdefault(cluster, {})
        if binding is None:
            bindings.pop(name, None)
        else:
            bindings[name] = shared_with(binding)
        if not bindings:
            del self._given[cluster]
        now = self.of(cluster)
        for other in now - before:
            self._taken.setdefault(other, set()).add(cluster)
        for other in before - now:
            self._taken[other].discard(cluster)
            if not self._taken[other]:
                del self._taken[other]
        return before ^ now

    def of(self, cluster: str) -> frozenset[str]:
        """Return the clusters that a cluster shares with."""
        return frozenset().union(*self._given.get(cluster, {}).values()) - {cluster}

    def readable(self, cluster: str) -> tuple[str, ...]:
        """Return a cluster and those that share with it, in order."""
        return (cluster, *sorted(self._taken.get(cluster, ())))
