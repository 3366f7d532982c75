"""Ownership claims of Workspaces and LogicalClusters: the shard of a logical cluster, and whether it is proven.

`ownership_resolver` combines them. A Workspace names its logical cluster and that cluster's shard; the cluster's name
is derived from the Workspace (`hashes.cluster_name_of`), so no other Workspace can name it. A LogicalCluster without a
Workspace is a home if its name is derived from its user, or a root if a Shard object names its path. After a move the
source shard keeps the LogicalCluster, with successor and generation, for as long as the stream keeps tombstones (of
homes and roots always); the target clears both annotations, and the writer of the Workspace sets `BORN_ON`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from atoll.machinery.kcp.sharding.shards import root_paths
from atoll.machinery.meta import hashes
from atoll.machinery.meta.names import ROOT, is_cluster_name, is_system_cluster
from atoll.machinery.meta.wellknown import BORN_ON, MOVED_GENERATION, MOVED_TO, SHARD

#: Name of the shard that owns the cluster `root`.
ROOT_SHARD = "root"


class Owner(NamedTuple):
    """The owning shard of a cluster, and the known number of its moves."""

    shard: str
    generation: int


class Claim(NamedTuple):
    """A Workspace's claim that `shard` owns `cluster`; `proven`: the cluster's name is derived from this Workspace."""

    cluster: str
    shard: str
    proven: bool = True


class ClusterRecord(NamedTuple):
    """The owner of a LogicalCluster, and the shard that it moved to; `successor` is empty if it did not move."""

    owner: tuple[str, str] | None
    is_home: bool
    successor: str = ""
    generation: int = 0


class Rows(Protocol):
    """The known rows, all at one revision. An origin is a shard, this one (`own`, "" for none) included.

    LogicalClusters and Workspaces are returned as the origin sent them, whether or not the origin owns the cluster.
    """

    @property
    def own(self) -> str: ...

    def seat(self, cluster: str) -> Owner | None:
        """Return the owner decided last; None if none was."""

    def origins(self) -> Sequence[str]:
        """Return all followed shards."""

    def holder(self, cluster: str) -> str:
        """Return the shard that the operator lets hold the root of this name; "" for any other cluster."""

    def logical_cluster(self, origin: str, cluster: str) -> bytes | None: ...

    def workspace(self, origin: str, cluster: str, name: str) -> bytes | None: ...

    def workspaces(self, origin: str, cluster: str, after: str, limit: int) -> Sequence[tuple[str, bytes]]:
        """Return name and object of up to `limit` Workspaces of a cluster after a name, in order."""


class _Metadata(msgspec.Struct, frozen=True):
    annotations: dict[str, str] = {}
    uid: str = ""


class _Reference(msgspec.Struct, frozen=True):
    name: str = ""
    cluster: str = ""


class _WorkspaceSpec(msgspec.Struct, frozen=True):
    cluster: str = ""


class _Workspace(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _WorkspaceSpec = _WorkspaceSpec()


class _Creator(msgspec.Struct, frozen=True):
    username: str = ""


class _ClusterSpec(msgspec.Struct, frozen=True):
    owner: _Reference | None = None
    createdBy: _Creator = _Creator()


class _LogicalCluster(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _ClusterSpec = _ClusterSpec()


_workspaces = msgspec.json.Decoder(_Workspace)
_clusters = msgspec.json.Decoder(_LogicalCluster)


def holders_of(shards: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return by cluster the shard that may hold it as a root: the first by name of those whose Shard objects say so.

    `shards` are names and annotations (`shards.ROOTS`) of all Shards.
    """
    found: dict[str, str] = {}
    for shard, text in sorted(shards):
        for path in root_paths(text):
            found.setdefault(hashes.root_cluster_name(path), shard)
    return found


def claim_of(parent: str, value: bytes | None) -> Claim | None:
    """What a Workspace of cluster `parent` names; None where it is not scheduled, or names what no Workspace can."""
    if not value:
        return None
    try:
        found = _workspaces.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    annotations, cluster = found.metadata.annotations, found.spec.cluster
    shard = annotations.get(SHARD, "")
    if not (shard and is_claimable(cluster)):
        return None
    named = hashes.cluster_name_of(parent, found.metadata.uid, annotations.get(BORN_ON, shard))
    return Claim(cluster, shard, named == cluster)


def record_of(cluster: str, value: bytes | None) -> ClusterRecord | None:
    """What a LogicalCluster of `cluster` says; None where it cannot be read."""
    if not value:
        return None
    try:
        found = _clusters.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    owner, annotations = found.spec.owner, found.metadata.annotations
    generation = annotations.get(MOVED_GENERATION, "")
    # A home is named after its user.
    is_home = owner is None and hashes.home_cluster_name(found.spec.createdBy.username) == cluster
    reference = (owner.cluster, owner.name) if owner is not None else None
    if not (generation.isascii() and generation.isdigit() and len(generation) < 10):
        return ClusterRecord(reference, is_home)
    return ClusterRecord(reference, is_home, annotations.get(MOVED_TO, ""), int(generation))


def is_claimable(cluster: str) -> bool:
    """Whether a Workspace or a home can be behind this name at all."""
    return cluster != ROOT and is_cluster_name(cluster) and not is_system_cluster(cluster)
