"""Renewals of syncers' Leases wait at the proxy for the next whole second, and go on together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest

from atoll.frontproxy import handler, renewals
from atoll.frontproxy.handler import ProxyHandler, ProxyRequest
from atoll.frontproxy.renewals import AT_ONCE, Renewals, is_renewal
from atoll.machinery.apiserver.call.requestinfo import parse

LEASE = b"/services/mailbox/clusters/m/apis/coordination.k8s.io/v1/namespaces/default/leases/syncer"


@pytest.mark.parametrize(
    ("method", "target", "expected"),
    [
        ("PATCH", LEASE, True),
        ("PATCH", LEASE + b"?fieldManager=syncer", True),
        ("PUT", LEASE, False),
        ("GET", LEASE, False),
        ("PATCH", LEASE.replace(b"leases", b"configmaps"), False),
        ("PATCH", LEASE.replace(b"/services/mailbox", b"/services/edge-view"), False),
        ("PATCH", LEASE.removeprefix(b"/services/mailbox"), False),
    ],
)
def test_what_is_a_renewal(method: str, target: bytes, expected: bool) -> None:
    assert is_renewal(parse(method, target)) is expected


async def test_those_of_a_second_go_in_order_and_a_few_in_a_turn_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewals, "INTERVAL_S", 0.2)
    found, gone, turns = Renewals(), [0] * 0, [0] * 0

    async def go(number: int) -> None:
        await found.turn()
        gone.append(number)
        turns.append(turn)

    count, turn = 2 * AT_ONCE + 1, 0
    tasks = [asyncio.create_task(go(number)) for number in range(count)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    assert gone == []
    async with asyncio.timeout(30):
        while not all(task.done() for task in tasks):
            turn += 1
            await asyncio.sleep(0)
    assert gone == [0, *range(2, count)]
    assert max(turns.count(each) for each in turns) <= AT_ONCE
    assert len(set(turns)) >= 3
    async with asyncio.timeout(30):
        await go(count)
    assert gone[-1] == count, "later ones have a moment of their own"


async def test_the_moment_is_a_whole_second(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, delays = asyncio.get_running_loop(), [0.0] * 0

    def call_later(delay_s: float, call: Callable[..., object], *arguments: object) -> None:
        delays.append(delay_s)
        loop.call_soon(call, *arguments)

    monkeypatch.setattr(time, "time", lambda: 1000.25)
    monkeypatch.setattr(loop, "call_later", call_later)
    await Renewals().turn()
    assert delays == [0.75]


class Relayed:
    """A relay that notes what it is for, and when its request counts as begun."""

    sent: ClassVar[list[tuple[str, float]]] = []

    def __init__(self, exchange: object, backend: object, head: bytes, owner: Any, *, endless: bool) -> None:
        self.request = owner._request

    def start(self) -> None:
        self.sent.append((self.request.info.method, self.request.began_s))


class Counts:
    """What the proxy counts, as destination and code."""

    def __init__(self) -> None:
        self.open, self.counted = 0, [("", 0)] * 0

    def count(self, to: str, code: int, began_s: float) -> None:
        self.counted.append((to, code))


async def test_the_proxy_has_renewals_wait_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewals, "INTERVAL_S", 0.2)
    monkeypatch.setattr(handler, "Relay", Relayed)
    Relayed.sent.clear()
    counts, tasks = Counts(), [asyncio.create_task(asyncio.sleep(0))]
    exchange: Any = SimpleNamespace(spawn=lambda work: tasks.append(asyncio.create_task(work)))
    authentication = SimpleNamespace(assertions=None)
    proxy = ProxyHandler(cast(Any, SimpleNamespace(authentication=authentication, metrics=counts)))
    for method in ("GET", "PATCH", "PATCH"):
        request = ProxyRequest(exchange, parse(method, LEASE), cast(Any, None), "", b"", 0, bound=True, began_s=-1.0)
        proxy._relay(request, cast(Any, None), b"", "shard")
    await asyncio.sleep(0)
    assert Relayed.sent == [("GET", -1.0)]
    tasks[-1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    (_, sent), began_s = Relayed.sent, -1.0
    assert sent[0] == "PATCH"
    assert sent[1] > began_s, "it counts from when it went on"
    assert counts.counted == [("shard", 0)], "the last one's client left"
    assert counts.open == 2
