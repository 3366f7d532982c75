"""Requests for subscriptions and the answers to them: the forms of `schemas/events/subscriptions.schema.json`.

A shard reads requests and writes answers; clients of any language read the schema. Nothing here decides. Invariant: a
request with a field, a type or a length that the schema does not allow is refused whole.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from atoll.machinery.meta.names import ResourceType

# `$` would take a line break at the end.
#: A name of a subscription: a DNS label, unique among those of its owner in one cluster.
Name: TypeAlias = Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z")]
_GROUP_RESOURCE = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][-a-z0-9]+)*\Z"
#: `configmaps` or `deployments.apps`.
GroupResource: TypeAlias = Annotated[str, Meta(pattern=_GROUP_RESOURCE, max_length=317)]
IdentityHash: TypeAlias = Annotated[str, Meta(pattern=r"^([0-9a-f]{64})?\Z")]
#: `now`, or how far back: `30m`, `2h`.
Since: TypeAlias = Annotated[str, Meta(pattern=r"^(now|[1-9][0-9]{0,6}[smh])\Z")]
State: TypeAlias = Literal["Active", "Revoked", "Gone"]
MAX_RESOURCES = 16


class Mark(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A place in a stream: when the stream was made, the shard's lineage, and the sequence of the next message."""

    created: str
    lineage: str
    sequence: Annotated[int, Meta(ge=1, le=2**63 - 1)]


class SubscriptionRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is asked for. With `identity`, the resources are those of an export, in all clusters that bind it."""

    name: Name
    resources: Annotated[tuple[GroupResource, ...], Meta(min_length=1, max_length=MAX_RESOURCES)]
    identity: IdentityHash = ""
    since: Since | Mark = "now"
    full: bool = False


class Selected(msgspec.Struct, frozen=True):
    """A resource that the subscription delivers; `identity` as in the subject. Without `full`, events have no body."""

    group: str
    resource: str
    identity: str
    full: bool

    @property
    def type(self) -> ResourceType:
        """The type whose events are delivered."""
        return ResourceType(self.group, self.resource, self.identity)


class Refused(msgspec.Struct, frozen=True):
    """A resource that it does not deliver, and why: `reason` for programs, `message` for people."""

    group: str
    resource: str
    reason: str
    message: str


class StreamPart(msgspec.Struct, frozen=True):
    """The subscription on one shard's changes: what is delivered of which stream, and where it began."""

    shard: str
    stream: str
    filters: tuple[str, ...]
    begin: Mark


class Lag(msgspec.Struct, frozen=True):
    """How far behind its subscriber is: events that were not acknowledged, and the age of the oldest one."""

    events: int = 0
    seconds: float = 0.0


class Subscription(msgspec.Struct, frozen=True, rename="camel"):
    """A subscription, and what a NATS client needs to read it."""

    name: str
    cluster: str
    state: State
    reason: str
    resources: tuple[Selected, ...]
    refused: tuple[Refused, ...]
    consumer: str
    streams: tuple[StreamPart, ...]
    api_prefix: str
    inbox_prefix: str
    control: str
    servers: tuple[str, ...]
    ca: str
    event_keys: dict[str, tuple[str, ...]]
    ack_wait: str
    max_ack_pending: int
    lag: Lag = Lag()


class SubscriptionList(msgspec.Struct, frozen=True):
    """The caller's own subscriptions in one cluster."""

    items: tuple[Subscription, ...]


class Token(msgspec.Struct, frozen=True, rename="camel"):
    """A token by which NATS lets the caller in."""

    token: str
    expiration_timestamp: str


class Control(msgspec.Struct, frozen=True):
    """What a subscriber hears at its control subject when a subscription of it changed."""

    state: State
    reason: str
    subscription: str
    streams: tuple[StreamPart, ...]
