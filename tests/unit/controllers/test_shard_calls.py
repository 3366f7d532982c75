"""Calls to other shards: how long one attempt may take."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from atoll.controllers.shard_calls import ShardCaller, ShardUnavailable
from atoll.replication.peers import TIMEOUT_S


class Silent:
    """A shard that answers the first request and no other."""

    def __init__(self) -> None:
        self.requests = 0

    def client(self, shard: str, identity: str) -> Silent:
        return self

    async def ask(self) -> None:
        self.requests += 1
        if self.requests > 1:
            await asyncio.Event().wait()


async def test_all_requests_of_one_attempt_have_one_deadline_and_two_attempts_end_in_ten_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deadlines: list[float] = []

    def within(limit_s: float, plain: Callable[[float], Any] = asyncio.timeout) -> Any:
        deadlines.append(limit_s)
        return plain(0.0)

    monkeypatch.setattr(asyncio, "timeout", within)
    silent = Silent()

    async def both(client: Any) -> None:
        await client.ask()
        await client.ask()

    with pytest.raises(ShardUnavailable) as refused:
        await ShardCaller(silent).call("east", both)  # type: ignore[arg-type]
    assert silent.requests == 2
    assert not refused.value.unsent, "it may have been done"
    assert deadlines == [TIMEOUT_S]
    assert 2 * TIMEOUT_S <= 10
