"""Who may do what on NATS: subject lists for a shard and for the operator's subscriber.

The embedded server's configuration is written from these; an operator of an external server copies them.
Allow-lists only, since deny rules have been talked past before. Invariant: whatever a credential may name is
spelled out, so it reaches its own streams, its own consumers and its own inbox and nothing else.
"""

from __future__ import annotations

import msgspec

from atoll.machinery.stream.subjects import KINDS, stream_name

#: NATS wildcards match whole tokens, so a prefix of consumer names cannot be granted; a list of names can.
OPERATOR_CONSUMERS = ("operator", *(f"operator-{number}" for number in range(1, 16)))
SHARD_INBOX = "_INBOX_shard"
OPERATOR_INBOX = "_INBOX_operator"

_STREAM_VERBS = (
    "STREAM.CREATE",
    "STREAM.UPDATE",
    "STREAM.INFO",
    "STREAM.PURGE",
    "STREAM.MSG.GET",
    "CONSUMER.LIST",
)
_CONSUMER_VERBS = (
    "CONSUMER.CREATE",
    "CONSUMER.DURABLE.CREATE",
    "CONSUMER.INFO",
    "CONSUMER.DELETE",
    "CONSUMER.MSG.NEXT",
)


class Permissions(msgspec.Struct, frozen=True):
    """Subjects that one user may publish to and subscribe to."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


def shard_permissions(shard: str) -> Permissions:
    """Publish under the shard's own name and manage exactly its two streams. It cannot delete them."""
    publish: list[str] = []
    for kind in KINDS:
        name = stream_name(kind, shard)
        publish.append(f"atoll.{kind}.{shard}.>")
        publish.extend(f"$JS.API.{verb}.{name}" for verb in _STREAM_VERBS)
        publish.extend(f"$JS.API.{verb}.{name}.>" for verb in _CONSUMER_VERBS)
        publish.append(f"$JS.ACK.{name}.>")
    return Permissions(tuple(publish), (f"{SHARD_INBOX}_{shard}.>",))


def operator_permissions(shard: str) -> Permissions:
    """Create, read, acknowledge and delete the operator's own consumers on both streams, and look at the
    streams."""
    publish = ["$JS.API.STREAM.NAMES"]
    for kind in KINDS:
        name = stream_name(kind, shard)
        publish.append(f"$JS.API.STREAM.INFO.{name}")
        for consumer in OPERATOR_CONSUMERS:
            publish.extend(f"$JS.API.{verb}.{name}.{consumer}" for verb in _CONSUMER_VERBS)
            publish.append(f"$JS.API.CONSUMER.CREATE.{name}.{consumer}.>")
            publish.append(f"$JS.ACK.{name}.{consumer}.>")
    return Permissions(tuple(publish), (f"{OPERATOR_INBOX}.>",))
