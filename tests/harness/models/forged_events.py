"""Forged messages of every kind, in the name of a shard."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from atoll.machinery.process.ed25519 import SecretKey
from atoll.machinery.stream.connection import Connection
from atoll.machinery.stream.events import Event, Operation, Phase
from atoll.machinery.stream.publisher.log_events import control, from_entry
from atoll.machinery.stream.publisher.log_source import LogIdentity, SourceEntry
from atoll.machinery.stream.signatures import sign
from harness.data.stored_headers import encode_headers, parse_headers

STRANGER = SecretKey(base64.b64encode(b"\x01" * 32).decode())
FAR = 9_999_999_999


class Forged(NamedTuple):
    """One message."""

    name: str
    subject: str
    headers: dict[str, str]
    payload: bytes


def forged(name: str, event: Event, key: SecretKey | None = None, sequence: int = 1) -> Forged:
    """A message of an event, signed by a key or not."""
    if key is not None:
        event = msgspec.structs.replace(event, signature=sign(key, [event], sequence)[0])
    return Forged(name, event.subject, encode_headers(event), event.payload)


def forgeries(kind: str, who: LogIdentity, entry: SourceEntry, next_sequence: int) -> Iterator[Forged]:
    """Forged messages for a stream whose next sequence is given: unsigned, and signed by a stranger's key."""
    object_event = from_entry(kind, who, entry)
    events = {
        "object": object_event,
        "deletion": msgspec.structs.replace(object_event, operation=Operation.DELETED, revision=FAR * 10**6),
        "fence": control(kind, Operation.FENCE, who, FAR * 10**6),
        "resync": control(kind, Operation.RESYNC, who, FAR * 10**6),
        "refill": control(kind, Operation.RESYNC, who, FAR * 10**6, Phase.BEGIN),
    }
    for name, event in events.items():
        far = msgspec.structs.replace(event, epoch=FAR)
        stranger = msgspec.structs.replace(event, shard_uid="a-stranger", lineage="ffffffffffffffff")
        later = msgspec.structs.replace(event, filling=FAR * 10**6)
        for about, each in (("", event), (" far epoch", far), (" foreign uid", stranger), (" later filling", later)):
            yield forged(f"{name}{about}, unsigned", each)
            yield forged(f"{name}{about}, of another key", each, STRANGER, next_sequence)


async def stored(connection: Connection, stream: str, sequence: int) -> Forged:
    """A genuine message as stored in a stream, for a replay."""
    found = (await connection.api(f"STREAM.MSG.GET.{stream}", {"seq": sequence}))["message"]
    headers = parse_headers(base64.b64decode(found["hdrs"]))
    kept = {name: value for name, value in headers.items() if not name.startswith("Nats-")}
    return Forged(f"replay of {sequence}", found["subject"], kept, base64.b64decode(found.get("data", "")))


async def inject(connection: Connection, message: Forged) -> None:
    """Publish a message and wait until it is stored."""
    await connection.client.jetstream().publish(message.subject, message.payload, headers=message.headers)
