"""A server is silent when nothing came several times in a row, and not when it answers late."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from atoll.machinery.stream.server.silence import Probing, answers, until_silent

AT_ONCE = Probing(pause_s=0, wait_s=1, most=3)


async def probes(outcomes: Iterable[bool]) -> int:
    """How many probes it takes until a server with these answers is silent; it says nothing after them."""
    left, count = iter(outcomes), 0

    async def probe() -> bool:
        nonlocal count
        count += 1
        return next(left, False)

    await until_silent(probe, AT_ONCE)
    return count


async def test_silence_is_several_probes_in_a_row_without_an_answer() -> None:
    assert await probes([]) == 3
    assert await probes([True, True]) == 5
    assert await probes([False, False, True, False, False, True]) == 9


@asynccontextmanager
async def listener(
    delay_s: float = 0.0, *, says: bytes = b"INFO {}\r\n", is_frozen: bool = False
) -> AsyncIterator[int]:
    """The port of a server that says something after a while, then closes; a frozen one says nothing."""
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await asyncio.sleep(delay_s)
            if is_frozen:
                await reader.read()
            else:
                writer.write(says)
        finally:
            writer.close()
            ended.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield int(server.sockets[0].getsockname()[1])
        await ended.wait()


async def test_a_late_answer_is_one_and_so_is_a_closed_connection() -> None:
    async with listener(0.2) as port:
        assert await answers("127.0.0.1", port, 10)
    async with listener(says=b"") as port:
        assert await answers("127.0.0.1", port, 10)


async def test_a_connection_on_which_nothing_comes_and_a_refused_one_are_none() -> None:
    async with listener(is_frozen=True) as port:
        assert not await answers("127.0.0.1", port, 0.05)
    assert not await answers("127.0.0.1", port, 10)
