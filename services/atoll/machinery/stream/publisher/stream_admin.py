"""The administration of the streams: create, configure, read the end, purge.

Stream writers and the audit call this at the start of each session; the tip goes to `resume`. Invariant: it never
deletes a stream, so the most it can lose is a purge that a refill follows at once.
"""

from __future__ import annotations

import base64

import structlog

from atoll.machinery.meta.objects import Object
from atoll.machinery.stream.connection import ApiError, Connection
from atoll.machinery.stream.definitions import differences
from atoll.machinery.stream.events import Event, Malformed, decode_delivered
from atoll.machinery.stream.publisher.resume import StreamTip

log = structlog.get_logger()

_STREAM_NOT_FOUND = 10059
_NO_MESSAGE = 10037
#: How far back to look for a message that can be read when the last ones cannot.
_LOOK_BACK = 64


async def ensure_stream(connection: Connection, wanted: Object) -> Object:
    """Create the stream, or update it where it differs; return its info. Raises ApiError, Unavailable."""
    name = wanted["name"]
    info = await stream_info(connection, name)
    if info is None:
        log.info("stream created", stream=name)
        return await connection.api(f"STREAM.CREATE.{name}", wanted)
    changed = differences(wanted, info["config"])
    if not changed:
        return info
    log.warning("stream configuration repaired", stream=name, members=sorted(changed))
    return await connection.api(f"STREAM.UPDATE.{name}", {**info["config"], **wanted})


async def stream_info(connection: Connection, name: str) -> Object | None:
    """A stream's info, None if there is no such stream."""
    try:
        return await connection.api(f"STREAM.INFO.{name}")
    except ApiError as error:
        if error.code == _STREAM_NOT_FOUND:
            return None
        raise


async def read_tip(connection: Connection, name: str, info: Object) -> StreamTip:
    """The end of a stream: the last readable event of its shard, up to 64 messages back past damaged and foreign
    ones."""
    created, last_sequence = info["created"], info["state"]["last_seq"]
    first = max(info["state"]["first_seq"], last_sequence - _LOOK_BACK, 1)
    foreign = False
    for sequence in range(last_sequence, first - 1, -1) if info["state"]["messages"] else ():
        message = await _message(connection, name, sequence)
        if message is None:
            continue
        event = _event(message)
        if event is not None:
            return StreamTip(created, last_sequence, event, sequence)
        foreign = True
    return StreamTip(created, last_sequence, foreign=foreign)


async def purge_stream(connection: Connection, name: str) -> None:
    """Drop every message. Never only those below a sequence: if one of them is damaged, nats-server 2.15 then spins
    forever with the stream locked, while a whole purge does not read the messages."""
    await connection.api(f"STREAM.PURGE.{name}")


async def _message(connection: Connection, name: str, sequence: int) -> Object | None:
    try:
        answer = await connection.api(f"STREAM.MSG.GET.{name}", {"seq": sequence})
    except ApiError as error:
        if error.code == _NO_MESSAGE:
            return None
        raise
    message: Object = answer["message"]
    return message


def _event(message: Object) -> Event | None:
    headers = parse_headers(base64.b64decode(message.get("hdrs", "")))
    try:
        return decode_delivered(message["subject"], headers, base64.b64decode(message.get("data", "")))
    except Malformed as error:
        log.warning("foreign message in stream", subject=message["subject"], error=str(error))
        return None


def parse_headers(block: bytes) -> dict[str, str]:
    """Headers of a stored message: a status line, then `name: value` lines. Empty for an empty block."""
    lines = block.decode("utf-8", "replace").split("\r\n")[1:]
    pairs = (line.partition(":") for line in lines if line)
    return {name: value.strip() for name, _, value in pairs}
