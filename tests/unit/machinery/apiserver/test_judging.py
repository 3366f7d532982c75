"""Plans that wait for a verdict: what comes at once, and what is put off."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest

from atoll.machinery.apiserver.call.call import Plan, View
from atoll.machinery.apiserver.call.deferred_validation import INLINE_S, ValidationDeferred, finished, validated
from atoll.machinery.kinds.kind import Verdict

VIEW, LATER = cast(View, object()), cast(View, object())
FOUND = Verdict([], ["found"])


def finish(verdict: Verdict, view: View) -> Plan:
    return Plan(guards=cast(Any, (verdict, view)))


def told(plan: Plan) -> Any:
    """What the plan was finished with."""
    return plan.guards


def slow(pause: Any) -> Verdict:
    end = time.monotonic() + 2 * INLINE_S
    while time.monotonic() < end:
        pause()
    # Whoever is put aside by the machine in the middle of it comes late too.
    pause()
    return FOUND


def test_a_verdict_that_is_there_finishes_the_plan() -> None:
    assert told(validated(FOUND, finish, VIEW)) == (FOUND, VIEW)


def test_a_quick_verdict_finishes_the_plan_at_once() -> None:
    assert told(validated(lambda pause: FOUND, finish, VIEW)) == (FOUND, VIEW)


def test_a_slow_verdict_stops_the_plan_which_goes_on_against_a_later_view() -> None:
    with pytest.raises(ValidationDeferred) as caught:
        validated(slow, finish, VIEW)
    assert told(caught.value.resume(FOUND, LATER)) == (FOUND, LATER)
    assert told(finished(caught.value, LATER)) == (FOUND, LATER)


def test_what_is_done_to_a_plan_is_done_to_a_late_one_too() -> None:
    with pytest.raises(ValidationDeferred) as caught:
        validated(slow, finish, VIEW)
    changed = caught.value.then(lambda plan: Plan(blind=False, guards=plan.guards))
    plan = changed.resume(FOUND, LATER)
    assert (plan.blind, told(plan)) == (False, (FOUND, LATER))


def test_an_error_of_judging_is_not_taken_for_slowness() -> None:
    def broken(pause: Any) -> Verdict:
        raise ValueError

    with pytest.raises(ValueError):
        validated(broken, finish, VIEW)
