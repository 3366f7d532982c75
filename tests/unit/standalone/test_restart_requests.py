"""A site restarts its NATS server when a shard sends for it, and not more often than once in a while."""

from __future__ import annotations

import asyncio
import shutil
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from atoll.standalone.site.restart_requests import LEAST_S, RESTART_FILE, ROOM_BYTES, RestartRequests

LEAST = int(LEAST_S)


class _Ended(Exception):
    """The story is over."""


async def restarts(
    directory: Path, monkeypatch: pytest.MonkeyPatch, *sent_s: int, end_s: int, failure: OSError | None = None
) -> list[int]:
    """Follow requests that are sent in these seconds; return the seconds of the restarts. Each takes no time, fails as
    `failure` says, and meets a request of another shard."""
    requests, now_s, found, waiting = RestartRequests(directory), 0, list[int](), sorted(sent_s)

    async def sleep(pause_s: float) -> None:
        nonlocal now_s
        now_s += int(pause_s)
        while waiting and waiting[0] <= now_s:
            waiting.pop(0)
            await requests.send()
        if now_s >= end_s:
            raise _Ended

    async def restart() -> None:
        found.append(now_s)
        await requests.send()
        if failure is not None:
            raise failure

    monkeypatch.setattr(asyncio, "sleep", sleep)
    with pytest.raises(_Ended):
        await requests.follow(restart)
    return found


async def test_a_request_restarts_the_server_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await restarts(tmp_path, monkeypatch, 5, end_s=10 * LEAST) == [5]


async def test_a_request_of_an_earlier_run_restarts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / RESTART_FILE).touch()
    assert await restarts(tmp_path, monkeypatch, end_s=10) == []


async def test_a_server_that_goes_on_refusing_is_restarted_again_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await restarts(tmp_path, monkeypatch, *range(5, 3 * LEAST, 3), end_s=3 * LEAST)
    assert found[0] == 5
    assert len(found) == 3
    assert all(LEAST <= later - one <= LEAST + 3 for one, later in pairwise(found))


async def test_a_restart_that_fails_does_not_end_the_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failure = TimeoutError("it did not come up")
    assert await restarts(tmp_path, monkeypatch, 5, 2 * LEAST, end_s=3 * LEAST, failure=failure) == [5, 2 * LEAST]


async def test_a_disk_that_is_full_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rooms = iter([ROOM_BYTES - 1] * 7 + [ROOM_BYTES] * LEAST)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=next(rooms)))
    assert await restarts(tmp_path, monkeypatch, 5, end_s=2 * LEAST) == [5 + 7]


async def test_a_disk_without_room_for_the_file_is_an_error_of_the_sender(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        await RestartRequests(tmp_path / "absent").send()
