"""Wake-ups of an idle watch: each minute for a bookmark, once more before its end, and at its end, never too early."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvloop

from atoll.machinery.apiserver.rest.watch import call_not_before, next_due


@pytest.mark.parametrize(
    ("length_s", "bookmarks", "expected"),
    [
        (200.0, True, [60, 120, 180, 198, 200]),
        (61.0, True, [59, 61]),
        (3.0, True, [1, 3]),
        (2.0, True, [2]),
        (1.0, True, [1]),
        (-5.0, True, [-5]),
        (200.0, False, [200]),
    ],
)
def test_bookmarks_come_each_minute_and_before_the_end(length_s: float, bookmarks: bool, expected: list[float]) -> None:
    moments: list[Any] = []
    now = 0.0
    while not moments or now < length_s:
        now = next_due(now, length_s, bookmarks=bookmarks)
        moments.append(now)
    assert moments == expected


def test_a_timer_never_finds_the_clock_of_the_event_loop_before_its_moment() -> None:
    async def moments_before() -> int:
        loop = asyncio.get_running_loop()
        early = 0
        for part_ms in range(100):
            moment, came = loop.time() + 0.002 + part_ms / 1e5, asyncio.Event()
            call_not_before(loop, moment, came.set)
            await came.wait()
            early += loop.time() < moment
        return early

    assert uvloop.run(moments_before()) == 0
