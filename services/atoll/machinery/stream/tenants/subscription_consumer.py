"""The consumer of one subscription on one shard's changes: what it selects, what it carries, and its bounds.

The shard creates it under one of the subscriber's names. It is in memory and on one server: what is lost is made anew
from the subscriber's own position. Invariant: every filter is a whole subject of a type in one cluster, or of an
identity's type in all clusters, beside the control subject; nothing wider can be asked for.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from atoll.machinery.meta.names import CORE, ResourceType
from atoll.machinery.meta.objects import Object
from atoll.machinery.stream.subjects import CHANGES, changes_subject, control_subject, filters

_NANOSECONDS = 10**9
#: Identities that many providers share: a type of these is not one provider's in all clusters.
_SHARED_IDENTITIES = frozenset({"", CORE, "local"})
#: After how long an event is delivered again that was not acknowledged.
ACK_WAIT_S = 30


class SubscriptionLimits(msgspec.Struct, frozen=True):
    """Bounds of one subscription: what a pull may ask for, how long it waits, how many pulls wait, how many events are
    out without acknowledgement, and how long it stays unused. `batch_bytes` must hold the largest event."""

    batch: int = 500
    batch_bytes: int = 16 << 20
    wait_s: int = 60
    waiting: int = 16
    ack_pending: int = 1000
    unused_s: int = 24 * 3600


def subscription_filters(shard: str, types: Sequence[ResourceType], cluster: str) -> list[str]:
    """The filters for these types in one cluster; in all clusters if it is empty. Raises ValueError for a type of all
    clusters that is no provider's."""
    if not cluster and any(type.identity in _SHARED_IDENTITIES for type in types):
        raise ValueError("only the types of one export are selected in all clusters")
    if cluster:
        found = [changes_subject(shard, type, cluster) for type in types]
    else:
        found = [filters(CHANGES, shard, type=type)[0] for type in types]
    return [*dict.fromkeys(found), control_subject(CHANGES, shard)]


def consumer_config(
    name: str, selected: Sequence[str], limits: SubscriptionLimits, start: Object, *, full: bool = False
) -> Object:
    """The consumer's configuration; `start` says where it begins. Without `full` its events have no body."""
    return {
        **start,
        "name": name,
        "ack_policy": "explicit",
        "ack_wait": ACK_WAIT_S * _NANOSECONDS,
        "filter_subjects": list(selected),
        "headers_only": not full,
        "max_batch": limits.batch,
        "max_bytes": limits.batch_bytes,
        "max_expires": limits.wait_s * _NANOSECONDS,
        "max_waiting": limits.waiting,
        "max_ack_pending": limits.ack_pending,
        "inactive_threshold": limits.unused_s * _NANOSECONDS,
        "mem_storage": True,
        "num_replicas": 1,
    }
