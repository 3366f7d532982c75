"""The changes stream as it must be by the log, and as a plain nats-py program reads it with the operator's credential.

`StreamMessage` is one message: subject, relevant headers, checksum of its payload. The expected messages are computed
from stored entries alone, not by the publisher's code.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import nats
from google_crc32c import value as crc32c
from nats.js.api import ConsumerConfig, DeliverPolicy

from atoll.events import Event
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.storage.contract import LogEntry, Operation
from atoll.machinery.stream import subjects
from fault.model.log import respliced
from harness.models.replicated_types import is_published

SHARD = "root"
STREAM = subjects.stream_name(subjects.CHANGES, SHARD)
CONTROL = subjects.control_subject(subjects.CHANGES, SHARD)
_PLAIN = "operator-9"


class StreamMessage(msgspec.Struct, frozen=True, array_like=True):
    """One message."""

    subject: str
    operation: str
    revision: int
    previous: int
    checksum: int


def message_of(key: ObjectKey, event: Event) -> StreamMessage:
    subject = subjects.changes_subject(SHARD, key.type, key.cluster)
    return StreamMessage(subject, event.operation, event.revision, event.previous, int(crc32c(event.payload)))


def messages_of_log(entries: list[LogEntry]) -> list[StreamMessage]:
    """The messages that the stream must hold by the log, in order."""
    return [_message(entry) for entry in entries if is_published(entry.key.type)]


def _message(entry: LogEntry) -> StreamMessage:
    value = entry.value
    if entry.operation is Operation.DELETED and not entry.sealed:
        value = respliced(value, entry.previous, entry.revision)
    subject = subjects.changes_subject(SHARD, entry.key.type, entry.key.cluster)
    return StreamMessage(subject, entry.operation.name, entry.revision, entry.previous_of_type, int(crc32c(value)))


def matches(filters: tuple[str, ...], subject: str) -> bool:
    """Whether a subject is one that NATS delivers for any of the filters."""
    tokens = subject.split(".")
    return any(_matches(each.split("."), tokens) for each in filters)


def _matches(wanted: list[str], tokens: list[str]) -> bool:
    if wanted[-1] == ">":
        return len(tokens) >= len(wanted) and _matches(wanted[:-1], tokens[: len(wanted) - 1])
    return len(wanted) == len(tokens) and all(one in {"*", other} for one, other in zip(wanted, tokens, strict=True))


async def read_plainly(root: Path, until: int) -> list[StreamMessage]:
    """Everything the stream holds, in order, by nats-py alone; waits until a revision is in it."""
    access = msgspec.json.decode((root / "stream.json").read_bytes())
    connect = {name: value for name, value in access["connect"].items() if value}
    connection = await nats.connect(**connect)
    try:
        stream = connection.jetstream(timeout=10, prefix=access["api_prefix"])
        config = ConsumerConfig(deliver_policy=DeliverPolicy.ALL, inactive_threshold=30)
        reading = await stream.pull_subscribe("", durable=_PLAIN, stream=STREAM, config=config)
        found: list[StreamMessage] = []
        while not found or found[-1].revision < until:
            for message in await reading.fetch(500, timeout=10):
                found.append(_plain(message.subject, message.headers or {}, message.data))
                await message.ack()
        await stream.delete_consumer(STREAM, _PLAIN)
        return found
    finally:
        await connection.close()


def _plain(subject: str, headers: dict[str, str], payload: bytes) -> StreamMessage:
    revision, previous = int(headers["Atoll-Revision"]), int(headers["Atoll-Previous"])
    return StreamMessage(subject, headers["Atoll-Operation"], revision, previous, int(crc32c(payload)))
