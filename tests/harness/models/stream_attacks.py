"""Requests by which a credential of a site may try to write into streams that are not its own.

Every verb of the JetStream API on every stream of a site, at both prefixes of the API, with every subject of the site
as the reply; consumers that deliver there, and streams that source, mirror and republish.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from atoll.machinery.stream.permissions import follower_consumer
from atoll.machinery.stream.subjects import KINDS, control_subject, stream_name

STREAM_VERBS = (
    "CREATE",
    "UPDATE",
    "INFO",
    "DELETE",
    "PURGE",
    "MSG.GET",
    "MSG.DELETE",
    "SNAPSHOT",
    "RESTORE",
    "LEADER.STEPDOWN",
)
CONSUMER_VERBS = ("CREATE", "DURABLE.CREATE", "INFO", "DELETE", "MSG.NEXT", "PAUSE", "RESET", "UNPIN")
GENERAL_VERBS = ("INFO", "STREAM.NAMES", "STREAM.LIST", "ACCOUNT.PURGE.ATOLL")


class Attempt(NamedTuple):
    """One message to the server."""

    subject: str
    reply: str
    body: bytes

    @property
    def line(self) -> bytes:
        """The message in the NATS protocol."""
        return f"PUB {self.subject} {self.reply} {len(self.body)}\r\n".encode() + self.body + b"\r\n"


def targets(shards: Sequence[str]) -> list[str]:
    """Subjects at which a message does harm: those of a stream, or of the API of another user."""
    found = []
    for shard in shards:
        for kind in KINDS:
            stream = stream_name(kind, shard)
            found += [control_subject(kind, shard), f"atoll.{kind}.{shard}.core.core.configmaps.evil"]
            for api in ("$JS.API", f"$JS.{shard}.API"):
                found.append(f"{api}.CONSUMER.DELETE.{stream}.{follower_consumer('proxy-front')}")
            found.append(f"$JS.API.STREAM.PURGE.{stream}")
    return found


def attempts(user: str, shards: Sequence[str], own: str = "") -> Iterator[Attempt]:
    """Every attempt of a user at the streams of these shards; `own` is the name of a consumer that it may have."""
    own, aims = own or follower_consumer(user), targets(shards)
    for shard in shards:
        for api in ("$JS.API", f"$JS.{shard}.API"):
            for verb in GENERAL_VERBS:
                yield from (Attempt(f"{api}.{verb}", aim, b"") for aim in aims)
            for kind in KINDS:
                yield from _at_stream(api, stream_name(kind, shard), f"atoll.{kind}.{shard}.>", own, aims)
    yield from (Attempt(aim, "", b"{}") for aim in aims)


def _at_stream(api: str, stream: str, subjects: str, own: str, aims: Sequence[str]) -> Iterator[Attempt]:
    body = b'{"batch":1,"no_wait":true,"seq":1}'
    names = (own, "operator", follower_consumer("proxy-front"), "atoll-audit-state")
    for aim in aims:
        # Deletions go last: deleted messages cannot be delivered.
        for name in dict.fromkeys(names):
            yield Attempt(f"{api}.CONSUMER.CREATE.{stream}.{name}.{subjects}", aim, _consumer(stream, name, subjects))
            yield Attempt(f"{api}.CONSUMER.MSG.NEXT.{stream}.{name}", aim, body)
            yield Attempt(f"$JS.ACK.{stream}.{name}.1.1.1.1.1", aim, b"+NXT")
        yield Attempt(f"{api}.DIRECT.GET.{stream}", aim, b'{"seq":1}')
        yield Attempt(f"{api}.DIRECT.GET.{stream}.{subjects[:-1]}-", aim, b"")
        for verb in CONSUMER_VERBS:
            yield Attempt(f"{api}.CONSUMER.{verb}.{stream}.{own}", aim, body)
        for verb in STREAM_VERBS:
            yield Attempt(f"{api}.STREAM.{verb}.{stream}", aim, body)
    for aim in aims:
        yield from _deliveries(api, stream, subjects, own, aim)
    for config in _streams(stream, aims):
        for verb in ("CREATE", "UPDATE"):
            yield Attempt(f"{api}.STREAM.{verb}.{stream}", aims[0], json.dumps(config).encode())


def _consumer(stream: str, name: str, subjects: str, **settings: object) -> bytes:
    config = {"name": name, "ack_policy": "none", "filter_subject": subjects, **settings}
    return json.dumps({"stream_name": stream, "config": config}).encode()


def _deliveries(api: str, stream: str, subjects: str, own: str, aim: str) -> Iterator[Attempt]:
    """The user's own consumers that deliver to foreign subjects."""
    settings = {"deliver_subject": aim, "idle_heartbeat": 100_000_000, "flow_control": True}
    for name in (own, "operator"):
        yield Attempt(f"{api}.CONSUMER.DELETE.{stream}.{name}", aim, b"")
        yield Attempt(
            f"{api}.CONSUMER.CREATE.{stream}.{name}.{subjects}", aim, _consumer(stream, name, subjects, **settings)
        )


def _streams(stream: str, aims: Sequence[str]) -> Iterator[dict[str, object]]:
    """Configurations by which a stream writes into others, or reads from them."""
    for aim in aims:
        yield {"name": stream, "subjects": [aim]}
        yield {"name": stream, "subjects": [f"{stream}.x"], "republish": {"src": ">", "dest": aim}}
    for other in ("atoll-state-root", "atoll-changes-root"):
        yield {"name": stream, "sources": [{"name": other}]}
        yield {"name": stream, "mirror": {"name": other}}
