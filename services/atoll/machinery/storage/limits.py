"""Limits of objects: of a ResourceQuota, and of the number of all objects of a logical cluster.

The writer charges every write that changes what is used to the limits of its kind, in the transaction of the write;
snapshots return them with the use that the last commit left. `Charges` says what a write adds to limits, and which it
may not. Invariant: no commit leaves a limit with a create, or an update that asks for more, above what is allowed.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from atoll.machinery.kinds.kubernetes.usage.charge import NOTHING, Amount, Charge, Scope, plus
from atoll.machinery.kinds.kubernetes.usage.evaluators import EVALUATORS
from atoll.machinery.meta.names import ROOT, ObjectKey, ResourceType
from atoll.machinery.meta.types import CLUSTER_ROLE_BINDINGS, EVENTS, LOGICAL_CLUSTERS, is_copy

#: What a logical cluster needs to come to be, which no limit refuses, as in kcp.
BOOTSTRAP = frozenset({(LOGICAL_CLUSTERS, "cluster"), (CLUSTER_ROLE_BINDINGS, "workspace-admin")})


class Limit(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One entry of a ResourceQuota's `spec.hard`: the name of the resource there, what is allowed, what is in use by
    the objects in all `scopes`.

    Without a quota's name: the limit of all objects of the cluster.
    """

    quota: str
    resource: str
    hard: Amount
    used: Amount
    scopes: tuple[Scope, ...] = ()

    def plus(self, more: Amount) -> Limit:
        return Limit(self.quota, self.resource, self.hard, plus(self.used, more), self.scopes)


class TotalObjects(msgspec.Struct, frozen=True, gc=False):
    """The number of a cluster's objects that count (`is_counted`), and how many it may hold while it is Ready; 0: any
    number."""

    used: int
    hard: int


class WithinLimits(msgspec.Struct, frozen=True, tag=True):
    """No write exceeds a limit. It holds for every submit, so no caller passes it; the store reports a breach by it.

    `exceeded` are the limits of one quota that the write of `key` would exceed, with the use before it, and `requested`
    what it would add to each. `missing` are the resources that a quota requires, with the containers without them.
    """

    key: ObjectKey
    exceeded: tuple[Limit, ...]
    requested: tuple[Amount, ...] = (1,)
    missing: tuple[tuple[str, tuple[str, ...]], ...] = ()


def is_counted(type: ResourceType) -> bool:
    """Whether objects of a type count among all of a cluster: not Events, and no copies made for other shards."""
    return type != EVENTS and not is_copy(type)


def total_by_setting(setting: int, cluster: str) -> int:
    """Return what the shard's setting allows a cluster: the system's own clusters, and `root`, have no limit by it."""
    return 0 if cluster == ROOT or cluster.startswith("system:") else setting


class Charges:
    """What one write adds to limits of its kind. Without an evaluator of the kind, each object counts one.

    `before` and `after` are the JSON of the object, None where there is none.
    """

    def __init__(self, key: ObjectKey, before: bytes | None, after: bytes | None) -> None:
        evaluate = EVALUATORS.get((key.type.group, key.type.resource))
        self._key, self._count = key, (after is not None) - (before is not None)
        self._before = self._after = NOTHING
        self._is_evaluated = evaluate is not None
        if evaluate is not None:
            self._before = evaluate(before) if before is not None else NOTHING
            self._after = evaluate(after) if after is not None else NOTHING
        #: What only a controller reports is charged, and never refused.
        self._requests = after is not None and (before is None or self._before.requested != self._after.requested)
        if (key.type, key.name) in BOOTSTRAP:
            self._requests = False

    def amounts(self, limits: Sequence[Limit]) -> list[Amount]:
        if not self._is_evaluated:
            return [self._count] * len(limits)
        return [plus(_used(self._after, limit), -_used(self._before, limit)) for limit in limits]

    def refusal(self, limits: Sequence[Limit]) -> WithinLimits | None:
        """Return why limits do not allow the write, by those of the first quota that does not."""
        if not self._requests:
            return None
        if self._after.missing and (found := self._missing(limits)) is not None:
            return found
        requested = self.amounts(limits)
        over = [
            (limit, more)
            for limit, more in zip(limits, requested, strict=True)
            if more > 0 and plus(limit.used, more) > limit.hard
        ]
        if not over:
            return None
        of_quota = [(limit, more) for limit, more in over if limit.quota == over[0][0].quota]
        return WithinLimits(self._key, *map(tuple, zip(*of_quota, strict=True)))

    def _missing(self, limits: Sequence[Limit]) -> WithinLimits | None:
        for first in limits:
            of_quota = {each.resource for each in limits if each.quota == first.quota and each.scopes == first.scopes}
            unsaid = tuple((name, who) for name, who in self._after.missing.items() if name in of_quota)
            if unsaid and self._after.is_in(first.scopes):
                return WithinLimits(self._key, (first,), missing=unsaid)
        return None


def _used(charge: Charge, limit: Limit) -> Amount:
    return charge.amount(limit.resource, limit.scopes)
