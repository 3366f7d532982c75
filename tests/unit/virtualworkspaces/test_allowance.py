"""What is taken of a rate is within its burst and its share of the time, by user and mailbox."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from atoll.machinery.apiserver.call.requestinfo import parse
from atoll.machinery.apiserver.request import Request
from atoll.machinery.client.lease import JITTER, Timing
from atoll.machinery.meta.status import TooManyRequests
from atoll.syncer.syncer import MAILBOX_TIMING
from atoll.virtualworkspaces.edge.allowance import EVENT_WRITES, RENEWALS, Allowances, Rate, cost_of
from atoll.virtualworkspaces.edge.refusals import Refusals
from harness.servers.in_process.syncer import SERVED

RATE = Rate(2.0, 10.0)


class Clock:
    """Seconds by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def allowances_at(clock: Clock) -> Allowances:
    return Allowances(Refusals(clock), clock)


def taken(allowances: Allowances, cost: float = 1.0, cluster: str = "box", user: str = "syncer") -> int:
    """How often a cost is taken until it is too much."""
    for count in range(100):
        try:
            allowances.take(cluster, user, RATE, cost)
        except TooManyRequests:
            return count
    return 100


def test_a_burst_is_taken_at_once_and_then_what_the_time_gives() -> None:
    clock = Clock()
    allowances = allowances_at(clock)
    assert (taken(allowances), taken(allowances)) == (10, 0)
    clock.now += 3.0
    assert taken(allowances) == 6
    clock.now += 3600.0
    assert taken(allowances) == 10


def test_a_refusal_takes_nothing_and_says_when_there_is_enough() -> None:
    clock = Clock()
    allowances = allowances_at(clock)
    assert taken(allowances, 4.0) == 2
    for _ in range(5):
        with pytest.raises(TooManyRequests) as refused:
            allowances.take("box", "syncer", RATE, 4.0)
        assert refused.value.details.retry_after_s == 1
    clock.now += 1.0
    allowances.take("box", "syncer", RATE, 4.0)


def test_what_costs_more_than_there_ever_is_takes_all_of_it() -> None:
    allowances = allowances_at(Clock())
    assert (taken(allowances, 1000.0), taken(allowances)) == (1, 0)


@pytest.mark.parametrize(
    ("target", "taken"),
    [
        ("api/v1/namespaces/default/events", (EVENT_WRITES, 1 + 2)),
        ("apis/events.k8s.io/v1/namespaces/default/events/a", (EVENT_WRITES, 1 + 2)),
        ("apis/coordination.k8s.io/v1/namespaces/default/leases/syncer", (RENEWALS, 1 + 0.5)),
        ("api/v1/namespaces/default/configmaps", None),
    ],
)
def test_events_take_by_their_bytes_and_renewals_apart(target: str, taken: tuple[Rate, float] | None) -> None:
    info, http = parse("PATCH", f"/{target}".encode()), SimpleNamespace(body=bytes(2048))
    assert cost_of(cast(Request, SimpleNamespace(info=info, http=http))) == taken


def test_users_and_mailboxes_take_nothing_of_each_others() -> None:
    allowances = allowances_at(Clock())
    for cluster, user in (("box", "syncer"), ("box", "other"), ("second", "syncer")):
        assert taken(allowances, cluster=cluster, user=user) == 10


@pytest.mark.parametrize("timing", [MAILBOX_TIMING, SERVED])
def test_a_syncer_that_renews_its_lease_at_its_shortest_pauses_is_never_refused(timing: Timing) -> None:
    clock = Clock()
    allowances, cost = allowances_at(clock), 1 + 512 / 4096
    for _ in range(1000):
        allowances.take("box", "syncer", RENEWALS, cost)
        clock.now += timing.renewal_s * (1 - JITTER)
