"""Metrics of a process that shares the work: what it has, whether it may write, and what was fenced."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from atoll.edge.membership import LIFE_S, Membership
from atoll.edge.roster import WHOLE
from atoll.edge.roster_metrics import RosterMetrics
from atoll.edge.shares import Shares
from atoll.machinery.client.target import Fenced
from atoll.machinery.control.queue import Requeue, WorkQueue
from harness.data.stores import HandClock
from harness.servers.stand_ins.lease_server import LeaseServer


class Boxes:
    """A controller with ten keys."""

    name = "boxes"

    def __init__(self) -> None:
        self.queue: WorkQueue[str] = WorkQueue()

    def keys(self) -> Collection[str]:
        return [str(number) for number in range(10)]

    async def reconcile(self, key: str) -> Requeue:
        return None


class Process:
    """A member, and what it shows."""

    def __init__(self, server: Any, clock: HandClock, name: str) -> None:
        self.member = Membership(server, "edge-controllers", name, lambda: 0.0, clock.steady)
        boxes, shares, self._registry = Boxes(), Shares(self.member), CollectorRegistry()
        shares.split(boxes, boxes.reconcile)
        RosterMetrics(self.member, shares.count, self._registry)

    def served(self, name: str) -> float:
        lines = generate_latest(self._registry).decode().splitlines()
        (value,) = [line.split()[-1] for line in lines if line.startswith(f"atoll_edge_roster_{name} ")]
        return float(value)

    @property
    def keys(self) -> list[float]:
        return [self.served(f'keys{{controller="{each}"}}') for each in ("boxes", WHOLE)]

    @property
    def fenced(self) -> list[float]:
        return [self.served(f'fenced_writes_total{{reason="{each}"}}') for each in ("newer", "unowned")]


async def test_members_show_their_keys_and_none_once_they_may_not_write() -> None:
    server, clock = LeaseServer(), HandClock()
    first, second = (Process(server, clock, name) for name in "ab")
    assert (first.served("member"), first.keys) == (0, [0, 0])
    for each in (first, second, first):
        await each.member.turn()
    assert first.served("members") == second.served("members") == 2
    assert first.served("epoch") == second.served("epoch") == first.member.roster.epoch
    assert [sum(both) for both in zip(first.keys, second.keys, strict=True)] == [10, 1]
    assert first.keys[0] * second.keys[0] > 0
    clock.pass_time(LIFE_S)
    assert (first.served("member"), first.keys) == (0, [0, 0])
    await first.member.turn()
    assert first.served("member") == 1


async def test_writes_that_are_fenced_are_counted_by_their_reason() -> None:
    server, clock = LeaseServer(), HandClock()
    process = Process(server, clock, "a")
    await process.member.turn()
    process.member.token(WHOLE)
    assert process.fenced == [0, 0]
    with pytest.raises(Fenced):
        process.member.token("")
    clock.pass_time(LIFE_S)
    with pytest.raises(Fenced):
        process.member.token(WHOLE)
    process.member._turned.set()
    await process.member.look()
    assert process.fenced == [1, 2]
