"""Replies that are lists of any length, streamed at the client's pace.

`reads` sends lists, `collections` what a deletecollection deleted. Invariants: memory is that of HELD_BYTES and one
part; a list that fails after its head was sent closes the connection, so that a partial list is never taken for a whole
one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

import structlog

from atoll.machinery.apiserver.call.call import Call, Reply
from atoll.machinery.apiserver.call.negotiation import JSON, PROTOBUF, YAML
from atoll.machinery.apiserver.request import Request
from atoll.machinery.apiserver.rest import list as listing
from atoll.machinery.apiserver.rest import yaml_list
from atoll.machinery.meta.status import ApiError
from atoll.machinery.storage.contract import RevisionCompacted
from atoll.machinery.wire.compress import PACKED, Packer

log = structlog.get_logger()

#: Bytes of a list that are held before its head is sent, so that a failure is a Status.
HELD_BYTES = 16 << 20


async def reply_held(request: Request, call: Call, first: bytes, rest: AsyncIterator[bytes]) -> None:
    """Send a list as one reply, which may be indented; stream it above HELD_BYTES. Raises what `rest` raises before."""
    held, size = deque([first]), len(first)
    async for part in rest:
        held.append(part)
        size += len(part)
        if size > HELD_BYTES:
            await _send(request, call, _joined(held, rest))
            return
        await asyncio.sleep(0)
    await request.reply_packed(Reply(200, b"".join(held), call.form.media_type))


async def stream(request: Request, call: Call, first: bytes, rest: AsyncIterator[bytes]) -> None:
    """Send a list part by part. `first` starts with the head of the list."""
    await _send(request, call, _joined(deque([first]), rest))


async def _send(request: Request, call: Call, parts: AsyncIterator[bytes]) -> None:
    exchange, packer = request.exchange, Packer() if request.preferences.gzip else None
    media_type = call.form.media_type
    if media_type == YAML:
        parts = yaml_list.encoded(listing.head(call), parts)
    elif media_type == PROTOBUF:
        # It would begin with its size; typed clients read JSON as well.
        media_type = JSON
    request.start(media_type, PACKED if packer is not None else ())
    try:
        async for part in parts:
            await exchange.drain()
            exchange.write(await packer.pack(part) if packer is not None else part)
            # Parts of small rows, read from large objects, fill no buffer that `drain` waits for.
            await asyncio.sleep(0)
        if packer is not None:
            exchange.write(packer.finish())
    except (RevisionCompacted, ApiError) as error:
        # A partial list must not be taken for a whole one.
        log.info("list cut off", audit_id=request.audit_id, path=request.info.path, error=str(error))
        exchange.abort()
    except ConnectionResetError:
        log.debug("client left during a list", audit_id=request.audit_id)
    else:
        exchange.finish()
    request.done()


async def _joined(held: deque[bytes], rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the parts that are held, each forgotten then, and the rest."""
    while held:
        yield held.popleft()
    async for part in rest:
        yield part
