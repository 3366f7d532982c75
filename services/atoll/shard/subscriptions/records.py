"""Subscriptions as rows of the store: what outlives the process and NATS.

`keeper` alone reads and writes them. They are of a type that no kind serves and that is not published, in a cluster of
the system, so that neither the quota nor the end of a workspace takes them. Invariant: a slot of an owner has one row.
"""

from __future__ import annotations

import hashlib

import msgspec

from atoll.machinery.meta import wellknown
from atoll.machinery.meta.names import SYSTEM_SHARD, ObjectKey
from atoll.machinery.meta.objects import decode, encode
from atoll.machinery.meta.types import EVENT_SUBSCRIPTIONS
from atoll.machinery.meta.user import User
from atoll.machinery.storage.contract import Put, Record, Scope
from atoll.machinery.stream.tenants.subscriptions import Mark, Refused, Selected, State, SubscriptionRequest

SCOPE = Scope(EVENT_SUBSCRIPTIONS, SYSTEM_SHARD)


class StoredSubscription(msgspec.Struct, frozen=True, rename="camel"):
    """One subscription. `owner` is the identity, `user` who counts until `expires_s` (0: without end).

    `acked` is the sequence up to which all is acknowledged in the stream that was made at `begin.created`; `used_s` is
    when its owner was last seen, in Unix seconds. `home`: the shard that was asked and decides, "" for this one;
    `since_s`: from when on events are wanted of streams that `begin` is not of.
    """

    owner: str
    cluster: str
    slot: int
    request: SubscriptionRequest
    user: User
    expires_s: float
    state: State
    reason: str
    selected: tuple[Selected, ...]
    refused: tuple[Refused, ...]
    begin: Mark
    acked: int
    used_s: float
    since_s: float = 0.0
    home: str = ""


def key_of(stored: StoredSubscription) -> ObjectKey:
    """The key of a subscription's row."""
    digest = hashlib.sha256(stored.owner.encode()).hexdigest()
    return ObjectKey(EVENT_SUBSCRIPTIONS, SYSTEM_SHARD, "", f"{digest}-{stored.slot}")


def put(stored: StoredSubscription, revision: int) -> Put:
    """The write of a row that is at `revision`, 0 for a new one."""
    key = key_of(stored)
    metadata = {"name": key.name, "annotations": {wellknown.CLUSTER: key.cluster}}
    obj = {
        "apiVersion": f"{EVENT_SUBSCRIPTIONS.group}/v1",
        "kind": "EventSubscription",
        "metadata": metadata,
        "spec": msgspec.to_builtins(stored),
    }
    value, hole = encode(obj)
    return Put(key, value, hole, revision)


def read(record: Record) -> StoredSubscription:
    """The subscription of a row."""
    return msgspec.convert(decode(record.value)["spec"], StoredSubscription)
