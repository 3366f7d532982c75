"""The clusters of other shards whose Workspaces and LogicalClusters this shard needs, and from which shards.

`needed_rows` reports what happened; the consumers' filters follow from the answers. A cluster is needed while a shard
sends other rows of it, while an own LogicalCluster has its Workspace there or moved away from here, while an own
Workspace names it, for a while after a request here depended on its owner, and while it is the parent of a needed
cluster. Held in memory, without I/O. Invariant: the parents
of a needed cluster are needed as far as they are known, so what its ownership rests on is followed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeAlias

from atoll.machinery.kcp.sharding.ownership import is_claimable
from atoll.machinery.meta.names import ROOT

#: Kinds of reasons: rows of other types, the LogicalCluster of a child, an own one that moved, an own Workspace, and a
#: request here that depends on the cluster's owner.
ROWS, CHILD, MOVED, NAMED, SOUGHT = "rows", "child", "moved", "named", "sought"
#: Cluster and name of the Workspace that owns a LogicalCluster.
Workspace: TypeAlias = tuple[str, str]


class Reason(NamedTuple):
    """Why a cluster is needed: the kind, and the shard ("": this one) and the object that give the reason."""

    kind: str
    origin: str
    cluster: str
    name: str = ""


class NeededClusters:
    """The needed clusters of one process.

    `seat_of` returns the shard that owns a cluster now, "" if it is not known. `held_of` yields the shards whose
    LogicalCluster of a cluster is held, each with its owner. `changed` is called with a shard whose followed objects
    may be others now, "" for every shard.
    """

    def __init__(
        self,
        seat_of: Callable[[str], str],
        held_of: Callable[[str], Iterable[tuple[str, Workspace | None]]],
        changed: Callable[[str], None],
    ) -> None:
        self._seat_of, self._held_of, self._changed = seat_of, held_of, changed
        #: By cluster and reason, the name of the Workspace there that is needed for it, or "".
        self._reasons: dict[str, dict[Reason, str]] = {}
        self._seats: dict[str, str] = {}
        #: The needed clusters of each shard; under "" those whose shard is not known.
        self._at: dict[str, set[str]] = {}
        #: By shard and needed cluster, the owner that the LogicalCluster names.
        self._held: dict[str, dict[str, Workspace | None]] = {}
        self._added: deque[str] = deque()

    def __len__(self) -> int:
        return len(self._reasons)

    def needs(self, cluster: str) -> bool:
        """Whether the LogicalCluster of a cluster is needed."""
        return cluster in self._reasons

    def needs_workspace(self, cluster: str, name: str) -> bool:
        """Whether a Workspace is needed."""
        return bool(name) and name in self._reasons.get(cluster, {}).values()

    def clusters_of(self, origin: str) -> Iterator[str]:
        """Yield the clusters whose LogicalCluster is followed from a shard: the owner, every shard while no owner is
        known, and each that sent one, since after a move the former owner's names the successor."""
        yield from self._at.get(origin, ())
        yield from self._at.get("", ())
        for cluster in self._held.get(origin, ()):
            if self._seats[cluster] not in ("", origin):
                yield cluster

    def workspaces_of(self, origin: str) -> Iterator[Workspace]:
        """Yield cluster and name of the Workspaces followed from a shard: those in clusters that it owns."""
        for cluster in self._at.get(origin, ()):
            for name in set(self._reasons[cluster].values()):
                if name:
                    yield cluster, name

    # --- what happened ---

    def add(self, cluster: str, reason: Reason, name: str = "") -> None:
        """Add a reason; `name` is the Workspace of the cluster that is needed for it."""
        self._add(cluster, reason, name)
        self._follow_added()

    def remove(self, cluster: str, reason: Reason) -> None:
        """Remove a reason. A cluster without any is needed no more, and gives no reason itself."""
        work = deque([(cluster, reason)])
        while work:
            cluster, reason = work.popleft()
            reasons = self._reasons.get(cluster, {})
            if reasons.pop(reason, None) is None:
                continue
            seat = self._seats[cluster]
            if not reasons:
                work.extend(self._forget(cluster))
            self._changed(seat)

    def held(self, origin: str, cluster: str, owner: Workspace | None) -> None:
        """A shard's LogicalCluster is held now, and names its owner."""
        if not self.needs(cluster):
            return
        before = self._held.get(origin, {}).get(cluster)
        self._hold(origin, cluster, owner)
        self._follow_added()
        if before is not None and (owner is None or owner[0] != before[0]):
            self.remove(before[0], Reason(CHILD, origin, cluster))

    def dropped(self, origin: str, cluster: str) -> None:
        """A shard's LogicalCluster is held no more."""
        owner = self._held.get(origin, {}).pop(cluster, None)
        self._changed(origin)
        if owner is not None:
            self.remove(owner[0], Reason(CHILD, origin, cluster))

    def seated(self, cluster: str) -> None:
        """The owner of a cluster may have changed."""
        if not self.needs(cluster):
            return
        before, now = self._seats[cluster], self._seat_of(cluster)
        if before != now:
            self._seats[cluster] = now
            self._at[before].discard(cluster)
            self._at.setdefault(now, set()).add(cluster)
            self._changed(before)
            self._changed(now)

    # --- what follows ---

    def _add(self, cluster: str, reason: Reason, name: str) -> None:
        if not (cluster == ROOT or is_claimable(cluster)):
            return
        reasons = self._reasons.setdefault(cluster, {})
        if not reasons:
            seat = self._seats[cluster] = self._seat_of(cluster)
            self._at.setdefault(seat, set()).add(cluster)
            self._added.append(cluster)
        elif reasons.get(reason) == name:
            return
        reasons[reason] = name
        self._changed(self._seats[cluster])

    def _follow_added(self) -> None:
        """Take in the LogicalClusters held of new clusters. A loop, not a recursion: other shards say how long a chain
        of parents is."""
        while self._added:
            cluster = self._added.popleft()
            for origin, owner in self._held_of(cluster):
                self._hold(origin, cluster, owner)

    def _hold(self, origin: str, cluster: str, owner: Workspace | None) -> None:
        held = self._held.setdefault(origin, {})
        if cluster not in held:
            self._changed(origin)
        held[cluster] = owner
        if owner is not None:
            self._add(owner[0], Reason(CHILD, origin, cluster), owner[1])

    def _forget(self, cluster: str) -> Iterator[tuple[str, Reason]]:
        """Forget a cluster; yield the reasons that it gave, with the clusters they were for."""
        del self._reasons[cluster]
        self._at[self._seats.pop(cluster)].discard(cluster)
        for origin, held in self._held.items():
            if cluster not in held:
                continue
            owner = held.pop(cluster)
            self._changed(origin)
            if owner is not None:
                yield owner[0], Reason(CHILD, origin, cluster)
