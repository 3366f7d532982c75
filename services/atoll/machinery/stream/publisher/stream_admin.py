"""The administration of the streams: create, configure, purge.

Stream writers and the audit call this at the start of each session. Invariant: it never
deletes a stream, so the most it can lose is a purge that a refill follows at once.
"""

from __future__ import annotations

import structlog

from atoll.machinery.meta.objects import Object
from atoll.machinery.stream.connection import ApiError, Connection
from atoll.machinery.stream.definitions import differences

log = structlog.get_logger()

_STREAM_NOT_FOUND = 10059


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


async def purge_stream(connection: Connection, name: str) -> None:
    """Drop every message. Never only those below a sequence: if one of them is damaged, nats-server 2.15 then spins
    forever with the stream locked, while a whole purge does not read the messages."""
    await connection.api(f"STREAM.PURGE.{name}")
