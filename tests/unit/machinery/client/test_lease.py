"""Leases of several syncers: who may not hold one leaves it, and gives it up."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from atoll.machinery.client import lease as leases
from atoll.machinery.client.lease import LEASES, Lease, Timing
from atoll.machinery.client.resource import Resource
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import Conflict
from atoll.machinery.patch.merge_patch import merge_patch
from harness.servers.stand_ins.lease_server import LeaseServer
from harness.waits import until


class Leases(LeaseServer):
    """A server that may write and not answer."""

    def __init__(self) -> None:
        super().__init__()
        self.patches: list[Object] = []
        #: Whether it writes and does not answer.
        self.is_deaf = False

    @property
    def holder(self) -> str:
        return str(self.lease["spec"]["holderIdentity"]) if self.lease else ""

    async def patch_for_metadata(self, resource: Resource, name: str, patch: Object, namespace: str) -> Object:
        self.patches.append(patch)
        if self.lease is None or self.lease["metadata"]["resourceVersion"] != patch["metadata"]["resourceVersion"]:
            raise Conflict("modified")
        metadata: Object = self.store(merge_patch(self.lease, patch))["metadata"]
        if self.is_deaf:
            raise TimeoutError
        return metadata


class Syncers:
    """Syncers `a` and `b`, of which `first` may hold the Lease."""

    def __init__(self) -> None:
        self.server, self.first = Leases(), ""
        client: Any = self.server
        timing = Timing(60.0, 20.0)
        self.leases = {name: Lease(client, "l", name, timing, lambda: None, self._may(name)) for name in "ab"}

    def _may(self, name: str) -> Any:
        return lambda: self.first == name

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(each.run()) for each in self.leases.values()]
        try:
            yield
        finally:
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def give_to(self, name: str) -> None:
        """Say who may hold it."""
        self.first = name

        async def is_so() -> bool:
            for each in self.leases.values():
                each.nudge()
            return [key for key, lease in self.leases.items() if lease.is_held] == [name] * bool(name)

        await until(is_so, f"{name or 'nobody'} holds it")


async def test_who_may_not_hold_a_lease_leaves_it_and_gives_it_up_at_once() -> None:
    syncers = Syncers()
    async with syncers.running():
        await syncers.give_to("")
        assert syncers.server.lease is None
        for name in ("a", "b", "a"):
            await syncers.give_to(name)
            assert syncers.server.holder == name
        await syncers.give_to("")
        assert syncers.server.holder == ""


async def test_who_held_a_lease_is_told_that_another_took_it() -> None:
    syncers, told = Syncers(), asyncio.Event()
    first = syncers.leases["a"]
    first.lost = told.set
    async with syncers.running():
        await syncers.give_to("a")
        held = syncers.server.lease
        assert held is not None
        await syncers.server.update(LEASES, {**held, "spec": {**held["spec"], "holderIdentity": "other"}})
        first.nudge()
        async with asyncio.timeout(60):
            await told.wait()
        assert (first.is_held, first.holder) == (False, "other")


async def test_a_renewal_writes_the_time_alone_and_a_lease_that_was_given_up_is_taken_as_a_whole() -> None:
    syncers = Syncers()
    async with syncers.running():
        await syncers.give_to("a")
        taken = syncers.server.lease
        assert taken is not None

        async def is_renewed() -> bool:
            syncers.leases["a"].nudge()
            return len(syncers.server.patches) > 1

        await until(is_renewed, "it is renewed twice")
        renewed = syncers.server.lease
        assert renewed is not None
        for each in syncers.server.patches:
            assert each.keys() == {"metadata", "spec"} and each["spec"].keys() == {"renewTime"}
        assert {**renewed["spec"], "renewTime": taken["spec"]["renewTime"]} == taken["spec"]
        await syncers.give_to("")
        await syncers.give_to("a")
        assert syncers.server.holder == "a"


class Renewals:
    """The renewals of one process, and its other name."""

    def __init__(self, times: list[str]) -> None:
        self.times = times

    def is_ours(self, time: str) -> bool:
        return time in self.times

    async def note(self, before: str, time: str) -> None:
        self.times.append(time)

    def renamed(self) -> str:
        return "copy"


async def test_of_two_processes_with_one_identity_the_one_that_comes_second_takes_another_and_waits() -> None:
    server, held = Leases(), list[str]()
    client: Any = server
    first, second = (Lease(client, "l", "a", Timing(600.0, 20.0), lambda: None) for _ in range(2))
    first.renewals = Renewals([])
    second.seen = held.append
    async with running(first):
        await until(lambda: _answer(first.is_held), "the first holds it")
        second.renewals = Renewals([])
        async with running(second):
            await until(lambda: _answer("a" in held), "the second sees it held by another")
            number = len(server.patches)
            await until(lambda: _nudged(first, lambda: len(server.patches) > number), "the first renews it")
            await until(lambda: _nudged(second, lambda: len(held) > 2), "the second looks again")
            assert (first.is_held, second.is_held, server.holder) == (True, False, "a")
            await first.release()
            await until(lambda: _nudged(second, lambda: second.is_held), "it is given up")
            assert server.holder == "copy"


async def test_a_process_that_was_killed_knows_its_renewals_and_an_answer_that_is_lost_is_no_other() -> None:
    server, renewals = Leases(), Renewals([])
    client: Any = server
    for _ in range(2):
        lease = Lease(client, "l", "a", Timing(600.0, 20.0), lambda: None)
        lease.renewals = renewals
        async with running(lease):
            await until(lambda: _answer(lease.is_held), "it has it at once")  # noqa: B023
            server.is_deaf = True
            number = len(server.patches)
            await until(lambda: _nudged(lease, lambda: len(server.patches) > number), "no answer")  # noqa: B023
            server.is_deaf = False
            await until(lambda: _nudged(lease, lambda: lease.failure == ""), "it goes on")  # noqa: B023
            assert (lease.is_held, server.holder) == (True, "a")


async def test_the_time_between_two_renewals_is_another_each_time_and_a_tenth_more_or_less_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits, client = list[float](), Leases()

    def timeout(delay_s: float) -> asyncio.Timeout:
        waits.append(delay_s)
        return asyncio.timeout(0)

    monkeypatch.setattr(leases, "asyncio", SimpleNamespace(timeout=timeout, Event=asyncio.Event))
    given: Any = client
    async with running(Lease(given, "l", "a", Timing(600.0, 20.0), lambda: None)):
        await until(lambda: _answer(len(waits) > 50), "it is renewed")
    assert min(waits) >= 18.0
    assert max(waits) <= 22.0
    assert max(waits) - min(waits) > 1.0


@asynccontextmanager
async def running(lease: Lease) -> AsyncIterator[None]:
    task = asyncio.create_task(lease.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _answer(found: bool) -> bool:
    return found


async def _nudged(lease: Lease, look: Callable[[], bool]) -> bool:
    lease.nudge()
    return look()


async def test_who_renews_seldom_waits_whole_quarters_of_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    waits, timeout = [0.0] * 0, asyncio.timeout

    def noted(seconds: float | None) -> asyncio.Timeout:
        waits.append(seconds or 0.0)
        return timeout(seconds)

    monkeypatch.setattr(random, "uniform", lambda least, most: 1.013)
    assert Timing(90.0, 30.0).pause_s() == 30.5
    assert Timing(2.0, 0.3).pause_s() == pytest.approx(0.3039)
    monkeypatch.setattr(asyncio, "timeout", noted)
    syncers = Syncers()

    async def has_waited() -> bool:
        return 20.25 in waits

    async with syncers.running():
        await until(has_waited, "it waits for its next turn")


class Slow(Leases):
    """A server that takes so many seconds for a renewal."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = self.takes_s = 0.0

    async def patch_for_metadata(self, resource: Resource, name: str, patch: Object, namespace: str) -> Object:
        self.now_s += self.takes_s
        return await super().patch_for_metadata(resource, name, patch, namespace)


async def test_who_did_not_hold_a_lease_until_its_renewal_was_answered_takes_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Slow()
    monkeypatch.setattr(leases, "time", SimpleNamespace(monotonic=lambda: server.now_s))
    taken: list[float] = []
    client: Any = server
    lease = Lease(client, "l", "a", Timing(60.0, 20.0), lambda: taken.append(server.now_s))

    async def renew(at_s: float, takes_s: float) -> None:
        count, server.now_s, server.takes_s = len(server.patches), at_s, takes_s
        lease.nudge()
        await until(lambda: _answer(len(server.patches) > count), "it is renewed")

    async with running(lease):
        await until(lambda: _answer(bool(taken)), "it is taken")
        await renew(30.0, 25.0)
        assert taken == [0.0]
        # Renewed at 30 s it lasts until 90 s.
        await renew(60.0, 35.0)
        assert taken == [0.0, 95.0]
        assert lease.is_held
