"""A user of a mailbox is refused so often a second, however many connections it has and whichever limits it meets."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from atoll.machinery.meta.status import TooManyRequests
from atoll.virtualworkspaces.edge.allowance import Rate
from atoll.virtualworkspaces.edge.loop_time import LONGEST_WAIT_S
from atoll.virtualworkspaces.edge.mailbox import MailboxView
from atoll.virtualworkspaces.edge.refusals import HOLD_S, LONGEST_HOLD_S, REFUSALS, Refusals
from harness.jumping_loop import JumpingLoop

SYNCER, OTHER = ("box", "syncer"), ("box", "other")


@pytest.mark.parametrize(("connections", "fewest", "most"), [(10, 550, 610), (1000, 2900, 3100)])
def test_however_many_connections_ask_a_user_has_so_many_refusals_a_second(
    connections: int, fewest: int, most: int
) -> None:
    loop = JumpingLoop()

    async def flood() -> int:
        refusals, answered, end_s = Refusals(loop.time), 0, loop.time() + 60.0

        async def one() -> None:
            nonlocal answered
            while loop.time() < end_s:
                await asyncio.sleep(refusals.refusal(SYNCER, "", 0.0).hold_s)
                answered += loop.time() < end_s

        await asyncio.gather(*(one() for _ in range(connections)))
        return answered

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        assert fewest <= runner.run(flood()) <= most


def test_who_leaves_before_a_refusal_comes_has_no_later_one_than_the_limit() -> None:
    refusals = Refusals(lambda: 1000.0)
    assert max(refusals.refusal(SYNCER, "", 0.0).hold_s for _ in range(10_000)) == LONGEST_HOLD_S


def test_refusals_of_one_user_are_answered_the_later_the_more_there_are_and_those_of_others_are_not() -> None:
    refusals = Refusals(lambda: 1000.0)
    holds_s = [refusals.refusal(SYNCER, "", 0.0).hold_s for _ in range(200)]
    assert holds_s[0] == HOLD_S
    assert holds_s[-1] == pytest.approx(200 / REFUSALS)
    assert refusals.refusal(OTHER, "", 0.0).hold_s == HOLD_S


def test_refusals_of_turns_and_of_rates_count_together() -> None:
    """The view's clock is real; what the requests take here are microseconds of it."""
    view = MailboxView(*cast(Any, [None] * 4))
    rate, turns = Rate(0.001, 1.0), view.loop_time.of(*SYNCER)
    view.allowances.take(*SYNCER, rate, 1.0)
    turns.took(100 * LONGEST_WAIT_S)
    hold_s = 0.0
    for _ in range(100):
        with pytest.raises(TooManyRequests):
            view.allowances.take(*SYNCER, rate, 1.0)
        with pytest.raises(TooManyRequests) as refused:
            turns.take(cast(Any, object()))
        hold_s = refused.value.hold_s
    assert hold_s > 0.75 * 200 / REFUSALS
