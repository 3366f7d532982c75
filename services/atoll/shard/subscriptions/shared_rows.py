"""What shards say to each other about subscriptions of an identity, as rows of the state stream.

The shard that holds the export writes who subscribed to what; each shard, this one too, writes where its own part
begins. `keeper` writes the rows of a shard, `other_shards` reads those of others. They are in the shard's own cluster
of the system. Invariant: a row counts for exports of clusters that its shard owns, and for the part of that shard;
who asked is not in it, only the identity and when its credential ends.
"""

from __future__ import annotations

import hashlib

import msgspec

from atoll.machinery.meta import wellknown
from atoll.machinery.meta.names import SYSTEM_SHARD, ObjectKey
from atoll.machinery.meta.objects import decode, encode
from atoll.machinery.meta.types import SHARED_SUBSCRIPTIONS
from atoll.machinery.storage.contract import Put, Record, Scope
from atoll.machinery.stream.tenants.subscriptions import Mark, Refused, Selected, State, SubscriptionRequest
from atoll.shard.subscriptions.records import StoredSubscription

SHARED_SCOPE = Scope(SHARED_SUBSCRIPTIONS, SYSTEM_SHARD)


class SharedSubscription(msgspec.Struct, frozen=True, rename="camel"):
    """A subscription of an identity, as a shard says it. `home` is the shard that was asked and decides; all but the
    names and `begin` counts in its row alone. `begin`: from where on this shard's part delivers."""

    home: str
    owner: str
    cluster: str
    slot: int
    request: SubscriptionRequest
    since_s: float
    expires_s: float
    state: State
    reason: str
    selected: tuple[Selected, ...]
    refused: tuple[Refused, ...]
    begin: Mark

    @property
    def key(self) -> tuple[str, str, str]:
        """The key of an entry."""
        return self.owner, self.cluster, self.request.name


def shared_of(stored: StoredSubscription, shard: str) -> SharedSubscription:
    """What a shard says about a subscription."""
    return SharedSubscription(
        home=stored.home or shard,
        owner=stored.owner,
        cluster=stored.cluster,
        slot=stored.slot,
        request=stored.request,
        since_s=stored.since_s,
        expires_s=stored.expires_s,
        state=stored.state,
        reason=stored.reason,
        selected=stored.selected,
        refused=stored.refused,
        begin=stored.begin,
    )


def shared_key(about: StoredSubscription | SharedSubscription) -> ObjectKey:
    """The key of each shard's row about a subscription."""
    names = "\n".join((about.owner, about.cluster, about.request.name))
    return ObjectKey(SHARED_SUBSCRIPTIONS, SYSTEM_SHARD, "", hashlib.sha256(names.encode()).hexdigest())


def put_shared(stored: StoredSubscription, shard: str, revision: int) -> Put:
    """The write of a shard's row that is at `revision`, 0 for a new one."""
    key = shared_key(stored)
    obj = {
        "apiVersion": f"{SHARED_SUBSCRIPTIONS.group}/v1",
        "kind": "SharedSubscription",
        "metadata": {"name": key.name, "annotations": {wellknown.CLUSTER: key.cluster}},
        "spec": msgspec.to_builtins(shared_of(stored, shard)),
    }
    value, hole = encode(obj)
    return Put(key, value, hole, revision)


def read_shared(record: Record) -> SharedSubscription | None:
    """What a row says; None for one that this version does not read."""
    try:
        return msgspec.convert(decode(record.value)["spec"], SharedSubscription)
    except (msgspec.MsgspecError, KeyError):
        return None
