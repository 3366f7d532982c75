"""Permissions on NATS: subject lists for shards, for processes that only read, and for the operator's subscriber.

The embedded server's configuration is made of these; an operator of an external server copies them. Allow-lists only,
since deny rules have been evaded before. Invariant: everything a credential may name is spelled out. It publishes under
its own name alone; of others it reads state, with consumers that carry its own name, into its own inbox.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from atoll.machinery.stream.subjects import KINDS, STATE, stream_name

#: NATS wildcards match whole tokens, so a prefix of consumer names cannot be granted; a list of names can.
OPERATOR_CONSUMERS = ("operator", *(f"operator-{number}" for number in range(1, 16)))
OPERATOR = "operator"
PROVIDER = "provider"

_MAKING_VERBS = ("STREAM.CREATE", "STREAM.UPDATE")
_STREAM_VERBS = ("STREAM.INFO", "STREAM.PURGE", "STREAM.MSG.GET", "CONSUMER.LIST")
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


def shard_user(shard: str) -> str:
    """The NATS user of a shard."""
    return f"shard-{shard}"


def inbox_prefix(user: str) -> str:
    """The prefix of a user's inboxes, to which no other user may subscribe."""
    return f"_INBOX_{user.replace('-', '_', 1)}"


def follower_consumer(user: str) -> str:
    """The name of a user's consumer on each state stream that it reads."""
    return f"follow-{user}"


def shard_permissions(shard: str, peers: Sequence[str] = (), *, makes_streams: bool = True) -> Permissions:
    """Publish under the shard's own name, manage exactly its two streams, read the state of others.

    It cannot delete its streams. `peers` lists the other shards where they are fixed (`_following`). A user that can
    create a stream also decides what it sources and republishes, so it can read what others publish: where shards do
    not trust each other, an operator creates the streams (`stream_admin.provide_streams`).
    """
    publish: list[str] = []
    for kind in KINDS:
        name = stream_name(kind, shard)
        publish.append(f"atoll.{kind}.{shard}.>")
        verbs = (*_MAKING_VERBS, *_STREAM_VERBS) if makes_streams else _STREAM_VERBS
        publish.extend(f"$JS.API.{verb}.{name}" for verb in verbs)
        publish.extend(f"$JS.API.{verb}.{name}.>" for verb in _CONSUMER_VERBS)
        publish.append(f"$JS.ACK.{name}.>")
    user = shard_user(shard)
    return Permissions((*publish, *_following(user, peers)), (f"{inbox_prefix(user)}.>",))


def provider_permissions() -> Permissions:
    """Make the streams of all shards, and nothing else: `stream_admin.provide_streams`."""
    publish = tuple(f"$JS.API.{verb}.*" for verb in (*_MAKING_VERBS, "STREAM.INFO"))
    return Permissions(publish, (f"{inbox_prefix(PROVIDER)}.>",))


def reader_permissions(user: str, peers: Sequence[str] = ()) -> Permissions:
    """Read the state of every shard, or of those in `peers`, and publish nothing: front proxies, cache servers."""
    return Permissions(_following(user, peers), (f"{inbox_prefix(user)}.>",))


def source_permissions(shards: Sequence[str], domain: str = "hub") -> Permissions:
    """Permissions of a leaf node at the hub with JetStream domain `domain`: source the state of these shards.

    The server creates consumers there for the leaf's streams, which deliver to subjects that the leaf chooses.
    """
    publish = [f"$JS.FC.{domain}.>"]
    for stream in (stream_name(STATE, shard) for shard in shards):
        create = f"$JS.{domain}.API.CONSUMER.CREATE.{stream}"
        publish.extend((create, f"{create}.>", f"$JS.FC.{stream}.>"))
    return Permissions(tuple(publish), ("$JSC.R.*", "$JS.S.*"))


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
    return Permissions(tuple(publish), (f"{inbox_prefix(OPERATOR)}.>",))


def _following(user: str, peers: Sequence[str]) -> tuple[str, ...]:
    """Inspect state streams and read them through a consumer of the user's own name.

    A stream's name is one token, so "every state stream" cannot be granted by stream. It can be granted by a consumer's
    filter: the subject that creates a consumer ends in its only filter, and the server enforces that. Without `peers`,
    `STREAM.INFO` of other streams (counts and subjects, no message) is granted with it.
    """
    name = follower_consumer(user)
    streams = [stream_name(STATE, peer) for peer in peers] or ["*"]
    return tuple(
        subject
        for stream in streams
        for subject in (
            f"$JS.API.STREAM.INFO.{stream}",
            f"$JS.API.CONSUMER.CREATE.{stream}.{name}.atoll.{STATE}.>",
            f"$JS.API.CONSUMER.DELETE.{stream}.{name}",
            f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}",
        )
    )
