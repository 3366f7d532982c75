"""Requests of one user of one mailbox begin one after the other, and hold the event loop for a part of the time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any, TypeVar, cast

import pytest
from prometheus_client import CollectorRegistry

from atoll.machinery.meta.status import TooManyRequests
from atoll.virtualworkspaces.edge import loop_time
from atoll.virtualworkspaces.edge.allowance import Allowances, Rate
from atoll.virtualworkspaces.edge.loop_time import BURST_S, RATE, SHARE, LoopTime, TurnPending, Turns
from atoll.virtualworkspaces.edge.mailbox_metrics import MailboxMetrics
from atoll.virtualworkspaces.edge.refusals import Refusals
from harness.jumping_loop import JumpingLoop

T = TypeVar("T")
HOLD_S = 0.002


class User:
    """A user whose requests hold the loop, each for HOLD_S; `began_s` has when each began."""

    def __init__(self, loop: JumpingLoop, turns: Turns) -> None:
        self._loop, self._turns, self.began_s = loop, turns, list[float]()

    async def request(self) -> None:
        """As the pipeline serves one: from its beginning again once it has its turn. Raises TooManyRequests."""
        http = cast(Any, object())
        while True:
            try:
                self._turns.take(http)
                break
            except TurnPending as pending:
                await pending.fetch()
        self.began_s.append(self._loop.time())
        self._loop.now_s += HOLD_S
        self._turns.took(HOLD_S)

    async def flood(self, connections: int, seconds: float) -> None:
        """Keep so many connections busy for a time."""
        end_s = self._loop.time() + seconds

        async def one() -> None:
            while self._loop.time() < end_s:
                await self.request()

        await asyncio.gather(*(one() for _ in range(connections)))


def turns_of(loop: JumpingLoop) -> Turns:
    """Those of a user that took nothing yet."""
    return LoopTime(Refusals(loop.time), loop.time).of("box", "syncer")


def run(work: Callable[[JumpingLoop], Awaitable[T]]) -> T:
    loop = JumpingLoop()

    async def main() -> T:
        return await work(loop)

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main())


def test_a_flood_leaves_the_loop_to_others_after_each_of_its_requests() -> None:
    async def flood(loop: JumpingLoop) -> list[float]:
        user = User(loop, turns_of(loop))
        await user.flood(16, 2.0)
        return user.began_s

    began_s = run(flood)
    pauses_s = [later - before for before, later in pairwise(began_s)]
    assert min(pauses_s) >= HOLD_S / SHARE - 1e-6
    assert len(began_s) >= 0.9 * 2.0 * SHARE / HOLD_S, "it is served meanwhile"


@pytest.mark.parametrize("seconds", [20.0, 200.0])
def test_over_a_time_a_flood_takes_its_rate_and_what_it_may_take_at_once(seconds: float) -> None:
    async def flood(loop: JumpingLoop) -> float:
        user = User(loop, turns_of(loop))
        await user.flood(16, seconds)
        return sum(HOLD_S for began_s in user.began_s if began_s < 1000.0 + seconds)

    most_s = BURST_S + RATE * seconds
    assert 0.95 * most_s < run(flood) <= most_s + HOLD_S


def test_what_is_asked_after_a_pause_begins_at_once() -> None:
    async def ask(loop: JumpingLoop) -> float:
        user = User(loop, turns_of(loop))
        await user.flood(16, 100.0)
        await asyncio.sleep(BURST_S / RATE)
        before_s = loop.time()
        await user.request()
        return user.began_s[-1] - before_s

    assert run(ask) == 0.0


def test_requests_begin_in_the_order_of_their_arrival() -> None:
    async def ask(loop: JumpingLoop) -> list[int]:
        user, order = User(loop, turns_of(loop)), list[int]()

        async def one(number: int) -> None:
            await user.request()
            order.append(number)

        await asyncio.gather(*map(one, range(20)))
        return order

    assert run(ask) == list(range(20))


def test_who_leaves_while_waiting_holds_up_nobody() -> None:
    async def ask(loop: JumpingLoop) -> int:
        user = User(loop, turns_of(loop))
        waiting = [asyncio.create_task(user.request()) for _ in range(10)]
        await asyncio.sleep(HOLD_S)
        for each in waiting[1:9]:
            each.cancel()
        await waiting[9]
        return len(user.began_s)

    assert run(ask) == 2


def test_more_than_may_wait_are_refused_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_time, "MAX_WAITING", 5)

    async def ask(loop: JumpingLoop) -> list[object]:
        user = User(loop, turns_of(loop))
        return list(await asyncio.gather(*(user.request() for _ in range(10)), return_exceptions=True))

    refused = [each for each in run(ask) if each is not None]
    assert len(refused) == 4
    for each in refused:
        assert isinstance(each, TooManyRequests)
        assert each.details.retry_after_s >= 1
        assert each.hold_s > 0


def test_of_turns_their_waits_and_refusals_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_time, "MAX_WAITING", 3)

    async def flood(loop: JumpingLoop) -> dict[str, float]:
        refusals, registry = Refusals(loop.time), CollectorRegistry()
        time, allowances = LoopTime(refusals, loop.time), Allowances(refusals, loop.time)
        MailboxMetrics(time.stats, allowances, registry)
        users = [User(loop, time.of("box", name)) for name in ("one", "other")]
        await asyncio.gather(*(user.request() for _ in range(6) for user in users), return_exceptions=True)
        for _ in range(3):
            with contextlib.suppress(TooManyRequests):
                allowances.take("box", "one", Rate(1.0, 1.0), 1.0)
        wait = "atoll_mailbox_turn_wait_seconds"
        found = {each: registry.get_sample_value(f"{wait}_{each}") or 0.0 for each in ("count", "sum")}
        for limit in ("time", "rate"):
            found[limit] = registry.get_sample_value("atoll_mailbox_refusals_total", {"limit": limit}) or 0.0
        return found

    found = run(flood)
    waited_s = found.pop("sum")
    assert found == {"count": 6, "time": 4, "rate": 2}
    assert 6 * HOLD_S / SHARE < waited_s < 24 * HOLD_S / SHARE


def test_who_would_wait_too_long_is_refused_with_the_time() -> None:
    async def ask(loop: JumpingLoop) -> int:
        turns = turns_of(loop)
        turns.took(BURST_S + 4.5)
        with pytest.raises(TooManyRequests) as refused:
            turns.take(cast(Any, object()))
        return refused.value.details.retry_after_s

    assert run(ask) == pytest.approx(4.5 / RATE, abs=1)


def test_users_and_mailboxes_wait_for_nothing_of_each_others() -> None:
    async def ask(loop: JumpingLoop) -> bool:
        time = LoopTime(Refusals(loop.time), loop.time)
        time.of("box", "syncer").took(5.0)
        for cluster, user in (("box", "other"), ("second", "syncer")):
            time.of(cluster, user).take(cast(Any, object()))
        return time.of("box", "syncer") is time.of("box", "syncer")

    assert run(ask)
