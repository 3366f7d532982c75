"""Freed memory: returned in quiet moments, once enough has been added."""

from __future__ import annotations

import asyncio

import pytest

from atoll.machinery.process import freed_memory

MIB = 1 << 20


class Process:
    """A process whose memory and CPU time the test sets; `trimmed` counts the calls."""

    def __init__(self) -> None:
        self.bytes, self.cpu_s, self.busy_s, self.trimmed, self.looks = 100 * MIB, 0.0, 0.0, 0, 0
        self.after_trim = 100 * MIB

    def trim(self, _: int) -> int:
        self.trimmed += 1
        self.bytes = self.after_trim
        return 1

    def held(self) -> int:
        self.looks += 1
        return self.bytes

    def process_time(self) -> float:
        self.cpu_s += self.busy_s
        return self.cpu_s

    async def look(self, times: int = 3) -> None:
        """Wait until the memory was looked at some times more."""
        wanted = self.looks + times
        async with asyncio.timeout(60):
            while self.looks < wanted:  # noqa: ASYNC110 - it announces nothing
                await asyncio.sleep(0.001)


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    made = Process()
    monkeypatch.setattr(freed_memory, "malloc_trim", lambda: made.trim)
    monkeypatch.setattr(freed_memory, "anonymous_bytes", made.held)
    monkeypatch.setattr(freed_memory, "INTERVAL_S", 0.005)
    monkeypatch.setattr("time.process_time", made.process_time)
    return made


async def test_memory_is_returned_once_it_has_grown_and_the_process_is_quiet(process: Process) -> None:
    task = asyncio.create_task(freed_memory.return_freed_memory())
    await process.look()
    first = process.trimmed
    await process.look()
    assert process.trimmed == first, "nothing was added"
    process.bytes, process.busy_s = 200 * MIB, 1.0
    await process.look()
    assert process.trimmed == first, "the process is busy"
    process.busy_s = 0.0
    await process.look()
    assert process.trimmed == first + 1
    process.bytes += 4 * MIB
    await process.look()
    assert process.trimmed == first + 1, "too little was added"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_memory_is_returned_again_when_connections_and_recent_changes_of_the_growth_are_gone(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(freed_memory, "AGAIN_S", 0.1)
    task = asyncio.create_task(freed_memory.return_freed_memory())
    async with asyncio.timeout(60):
        while process.trimmed < 3:  # noqa: ASYNC110 - it announces nothing
            await asyncio.sleep(0.001)
    await process.look(40)
    assert process.trimmed == 3, "nothing was added since"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_with_another_c_library_it_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freed_memory, "malloc_trim", lambda: None)
    async with asyncio.timeout(30):
        await freed_memory.return_freed_memory()


def test_the_call_of_glibc_works_and_memory_is_measured() -> None:
    trim = freed_memory.malloc_trim()
    if trim is not None:
        assert trim(0) in {0, 1}
        assert freed_memory.anonymous_bytes() > MIB
