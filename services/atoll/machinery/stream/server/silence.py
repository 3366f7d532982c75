"""Whether a nats-server still answers: one that stands still keeps its port, and every connection to it hangs.

`embedded` asks its child, and kills it once it is silent. Invariant: a server that answers late is not silent, nor is
one when this process stood still; what counts is how often in a row nothing came, not how long ago something did.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec


class Probing(msgspec.Struct, frozen=True):
    """Seconds between two connections and until one counts as unanswered, and how many of those in a row are silence.

    A machine that is so busy that a server does not send one line within ten seconds, three times, serves nobody.
    """

    pause_s: float = 5.0
    wait_s: float = 10.0
    most: int = 3


async def until_silent(answers: Callable[[], Awaitable[bool]], probing: Probing) -> None:
    """Return once a server does not answer `most` times in a row."""
    missed = 0
    while missed < probing.most:
        await asyncio.sleep(probing.pause_s)
        missed = 0 if await answers() else missed + 1


async def answers(host: str, port: int, wait_s: float) -> bool:
    """Whether a server says anything to a new connection, or closes it."""
    try:
        async with asyncio.timeout(wait_s):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                await reader.read(1)
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False
    return True
