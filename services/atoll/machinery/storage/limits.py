"""Limits of the number of objects: of a ResourceQuota, and of all objects of a logical cluster.

The writer charges every create and delete to the limits of its kind, in the transaction of the write; snapshots return
them with the use that the last commit left. Invariant: no commit leaves a limit with a create above what is allowed.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from atoll.machinery.meta.names import ROOT, ObjectKey
from atoll.machinery.meta.types import CLUSTER_ROLE_BINDINGS, LOGICAL_CLUSTERS

#: What a logical cluster needs to come to be, which no limit refuses, as in kcp.
BOOTSTRAP = frozenset({(LOGICAL_CLUSTERS, "cluster"), (CLUSTER_ROLE_BINDINGS, "workspace-admin")})


class Limit(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One entry of a ResourceQuota's `spec.hard`: the name of the resource there, what is allowed, what is in use.

    Without a quota's name: the limit of all objects of the cluster.
    """

    quota: str
    resource: str
    hard: int
    used: int


class TotalObjects(msgspec.Struct, frozen=True, gc=False):
    """The number of a cluster's objects, Events aside, and how many it may hold while it is Ready; 0: any number."""

    used: int
    hard: int


class WithinLimits(msgspec.Struct, frozen=True, tag=True):
    """No create exceeds a limit. It holds for every submit, so no caller passes it; the store reports a breach by it.

    `exceeded` are the limits of one quota that the creation of `key` would exceed, with the use before it.
    """

    key: ObjectKey
    exceeded: tuple[Limit, ...]


def total_by_setting(setting: int, cluster: str) -> int:
    """Return what the shard's setting allows a cluster: the system's own clusters, and `root`, have no limit by it."""
    return 0 if cluster == ROOT or cluster.startswith("system:") else setting


def exceeded(limits: Sequence[Limit], more: int) -> tuple[Limit, ...]:
    """Return the limits that `more` would exceed: those of the first quota with one, as a refusal names one quota."""
    over = [limit for limit in limits if limit.used + more > limit.hard]
    return tuple(limit for limit in over if limit.quota == over[0].quota)
