"""Wake-ups of an idle watch: each minute for a bookmark, once more before its end, and at its end."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.machinery.apiserver.rest.watch import next_due


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
