"""Resolve which shard owns a logical cluster, from the rows that shards publish.

Followers of other shards come here with every Workspace and LogicalCluster that arrives and write what is decided as
routes beside the rows; a row counts where its shard of origin is where its cluster's route leads. Shards are not
trusted about each other: a cluster belongs to the shard that its Workspace names, if the Workspace was sent by the
owner of its own cluster and is proven to be the one; afterwards only the current owner can hand the cluster over. A
cluster without a Workspace belongs to the shard that it begins at (`root` for a home, for a root the one that its Shard
object names), or to the last one in the chain of markers that begins there.
Nothing here reads a store: `Rows` is the input. Invariant: the same rows lead to the same owners in any order of
arrival, and rows of other shards do not count at any moment. Rows that arrive before their owner is known are kept by
the follower, and resolved when it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from atoll.machinery.kcp.sharding.ownership import (
    ROOT_SHARD,
    Claim,
    ClusterRecord,
    Owner,
    Rows,
    claim_of,
    is_claimable,
    record_of,
)
from atoll.machinery.meta.names import ROOT

#: Workspaces of one cluster that are looked at in one step, and steps at once.
PAGE = 200


class _Cluster(NamedTuple):
    """An origin's LogicalCluster is to be looked at; `gone` is what it was before it ceased to be."""

    origin: str
    cluster: str
    gone: ClusterRecord | None = None


class _WorkspaceClaim(NamedTuple):
    """An origin's Workspace is to be looked at."""

    origin: str
    cluster: str
    name: str


class _Chain(NamedTuple):
    """Where a root begins may have changed."""

    cluster: str


class _Unclaimed(NamedTuple):
    """A Workspace that named this cluster does so no more."""

    cluster: str


class _OwnedCluster(NamedTuple):
    """What the new owner of a cluster sent from it is to be looked at, Workspaces behind a name."""

    cluster: str
    after: str


_Work: TypeAlias = "_Cluster | _WorkspaceClaim | _Chain | _Unclaimed | _OwnedCluster"


class Resolution:
    """What lasts from one step to the next: owners decided, and work left."""

    def __init__(self) -> None:
        self.decided: dict[str, Owner | None] = {}
        self.work: deque[_Work] = deque()

    @property
    def pending(self) -> bool:
        """Whether work is left."""
        return bool(self.work)


class OwnershipResolver:
    """Resolves owners from the rows of one moment. Report what arrived, then take `decisions`.

    `rows` holds the arrived rows already. Work that one step leaves is in `resolution`; the next step needs a resolver
    over later rows, which may or may not hold the decisions so far.
    """

    def __init__(self, rows: Rows, resolution: Resolution) -> None:
        self._rows = rows
        self._decided, self._work = resolution.decided, resolution.work

    # --- what arrived ---

    def workspace(self, origin: str, cluster: str, name: str, before: Claim | None) -> None:
        """A Workspace arrived, or ceased to be. `before` is what it said."""
        now = self._claim(origin, cluster, name)
        left = before if now is None or before is None or now.cluster != before.cluster else None
        if left is not None and self._counts(origin, cluster, left):
            self._work.append(_Unclaimed(left.cluster))
        self._work.append(_WorkspaceClaim(origin, cluster, name))

    def logical_cluster(self, origin: str, cluster: str, before: bytes | None) -> None:
        """A LogicalCluster arrived, or ceased to be. `before` is what it was."""
        gone = None
        if self._rows.logical_cluster(origin, cluster) is None:
            gone = record_of(cluster, before) or ClusterRecord(None, is_home=False)
        self._work.append(_Cluster(origin, cluster, gone))

    def held(self, cluster: str) -> None:
        """The shard that may hold a root is another one now, or there is none any more."""
        self._work.append(_Chain(cluster))

    def seated(self, cluster: str) -> None:
        """Report an owner that was decided outside of this resolver: the cluster's rows are checked again."""
        self._work.append(_OwnedCluster(cluster, ""))

    # --- what follows ---

    def decisions(self, limit: int = PAGE) -> Iterator[tuple[str, Owner | None]]:
        """Yield clusters with a new owner, None where there is none any more, after at most `limit` steps."""
        changed: dict[str, None] = {}
        for _ in range(limit):
            if not self._work:
                break
            changed.update(dict.fromkeys(self._step(self._work.popleft())))
        for cluster in changed:
            if self._decided[cluster] != self._rows.seat(cluster):
                yield cluster, self._decided[cluster]

    def owner(self, cluster: str) -> str:
        """Return the shard that owns a cluster; "" where it is not known."""
        if cluster == ROOT:
            return ROOT_SHARD
        if not is_claimable(cluster):
            return ""
        if self._is_here(cluster):
            return self._rows.own
        seat = self._seat(cluster)
        return seat.shard if seat is not None else ""

    def _step(self, work: _Work) -> Iterator[str]:
        match work:
            case _Cluster(origin, cluster, gone) if self._is_chained(origin, cluster, gone):
                yield from self._resolve_chain(cluster)
            case _Cluster(origin, cluster, None):
                yield from self._resolve_cluster(origin, cluster)
            case _Cluster(origin, cluster, ClusterRecord() as gone):
                yield from self._resolve_departure(origin, cluster, gone)
            case _Chain(cluster):
                yield from self._resolve_chain(cluster)
            case _WorkspaceClaim(origin, cluster, name):
                yield from self._resolve_claim(origin, cluster, self._claim(origin, cluster, name))
            case _Unclaimed(cluster):
                yield from self._unclaimed(cluster)
            case _OwnedCluster(cluster, after):
                yield from self._resolve_owned_rows(cluster, after)

    def _unclaimed(self, cluster: str) -> Iterator[str]:
        """Handle a cluster that no Workspace names any more. It keeps its owner while its content is deleted."""
        seat = self._seat(cluster)
        standing = self._record(seat.shard, cluster) if seat is not None else None
        if seat is not None and (standing is None or standing.successor):
            yield from self._decide(cluster, None)

    def _counts(self, origin: str, parent: str, claim: Claim) -> bool:
        """Return whether a Workspace's claim counts: a local one passed admission, and root may claim for all."""
        return self.owner(parent) == origin and (claim.proven or origin in {ROOT_SHARD, self._rows.own})

    def _resolve_claim(self, origin: str, parent: str, claim: Claim | None) -> Iterator[str]:
        """Apply the claim of a Workspace of `parent`. It sets the first owner of a cluster, never a later one."""
        if claim is None or self._seat(claim.cluster) is not None or self._is_here(claim.cluster):
            return
        if self._counts(origin, parent, claim):
            yield from self._decide(claim.cluster, Owner(claim.shard, 0))

    def _resolve_cluster(self, origin: str, cluster: str) -> Iterator[str]:
        """Apply a LogicalCluster: it exists at its origin, or names a successor."""
        standing = self._record(origin, cluster)
        if standing is None or not is_claimable(cluster):
            return
        seat = self._seat(cluster) or (Owner(origin, 0) if origin == self._rows.own else None)
        if seat is None:
            if standing.owner is not None:
                # Its Workspace may have arrived first.
                yield from self._follow_workspace(cluster, standing.owner, 0)
        elif seat.shard == origin and standing.successor and standing.generation > seat.generation:
            yield from self._decide(cluster, Owner(standing.successor, standing.generation))

    def _resolve_departure(self, origin: str, cluster: str, gone: ClusterRecord) -> Iterator[str]:
        """Handle the end of a LogicalCluster at its owner: its Workspace names the owner, or there is none."""
        seat = self._seat(cluster)
        if seat is None or seat.shard != origin:
            return
        yield from self._decide(cluster, None)
        if gone.owner is not None:
            yield from self._follow_workspace(cluster, gone.owner, seat.generation)

    # --- clusters without a Workspace ---

    def _is_chained(self, origin: str, cluster: str, gone: ClusterRecord | None) -> bool:
        """Return whether a cluster whose LogicalCluster arrived, or ceased to be, is a root, or a home that begins."""
        if self._rows.holder(cluster):
            return True
        head = self._record(ROOT_SHARD, cluster)
        if head is None and origin == ROOT_SHARD:
            head = gone
        return head is not None and head.is_home

    def _resolve_chain(self, cluster: str) -> Iterator[str]:
        """Set the owner of a home or of a root. It follows from the rows alone, whatever was decided before; only the
        generation never falls, as a store refuses a route of a lower one."""
        owner, seat = None if self._is_here(cluster) else self._chain_end(cluster), self._seat(cluster)
        if owner is None or seat is None:
            if owner != seat:
                yield from self._decide(cluster, owner)
        elif owner.shard != seat.shard:
            yield from self._decide(cluster, Owner(owner.shard, max(owner.generation, seat.generation)))

    def _chain_end(self, cluster: str) -> Owner | None:
        """Return the last shard in the chain of markers. Each shard has one marker, with a higher generation than the
        one before, so the chain ends."""
        holder = self._rows.holder(cluster)
        shard, generation = holder or ROOT_SHARD, 0
        found = self._record(shard, cluster)
        if found is None or found.owner is not None or not (holder or found.is_home):
            return None
        while found is not None and found.successor and found.generation > generation:
            shard, generation = found.successor, found.generation
            found = self._record(shard, cluster)
        return Owner(shard, generation)

    # --- clusters of Workspaces ---

    def _follow_workspace(self, cluster: str, owner: tuple[str, str], generation: int) -> Iterator[str]:
        """Set the owner that the cluster's Workspace names."""
        parent, name = owner
        origin = self.owner(parent)
        claim = self._claim(origin, parent, name)
        if claim is None or claim.cluster != cluster or self._is_here(cluster):
            return
        record = self._record(claim.shard, cluster)
        if record is not None and record.successor and record.generation <= generation:
            # The Workspace has not caught up: from there the cluster came.
            return
        if self._counts(origin, parent, claim):
            yield from self._decide(cluster, Owner(claim.shard, generation))

    def _resolve_owned_rows(self, cluster: str, after: str) -> Iterator[str]:
        """Check the rows that the owner of a cluster sent before it was known to be the owner."""
        owner = self.owner(cluster)
        if not owner:
            return
        if not after and not self._is_chained(owner, cluster, None):
            yield from self._resolve_cluster(owner, cluster)
        page = self._rows.workspaces(owner, cluster, after, PAGE)
        for _, value in page:
            yield from self._resolve_claim(owner, cluster, claim_of(cluster, value))
        if len(page) == PAGE:
            self._work.append(_OwnedCluster(cluster, page[-1][0]))

    def _decide(self, cluster: str, seat: Owner | None) -> Iterator[str]:
        self._decided[cluster] = seat
        if seat is not None:
            self._work.append(_OwnedCluster(cluster, ""))
        yield cluster

    # --- what is known, with what was decided ---

    def _seat(self, cluster: str) -> Owner | None:
        return self._decided[cluster] if cluster in self._decided else self._rows.seat(cluster)

    def _record(self, origin: str, cluster: str) -> ClusterRecord | None:
        return record_of(cluster, self._rows.logical_cluster(origin, cluster)) if origin else None

    def _claim(self, origin: str, cluster: str, name: str) -> Claim | None:
        return claim_of(cluster, self._rows.workspace(origin, cluster, name)) if origin else None

    def _is_here(self, cluster: str) -> bool:
        """Return whether this shard has the cluster itself."""
        here = self._record(self._rows.own, cluster)
        return here is not None and not here.successor
