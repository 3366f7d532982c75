"""Members of the edge controllers: who is taken off, who leaves, and what may be written meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from atoll.edge import membership
from atoll.edge.membership import LEAVE_S, LIFE_S, MEMBER, RENEWAL_S, ROSTER, Membership
from atoll.edge.roster import WHOLE
from atoll.edge.shares import Shares, share_of
from atoll.machinery.client.resource import Resource
from atoll.machinery.client.target import Fenced
from atoll.machinery.control.queue import Requeue, WorkQueue
from atoll.machinery.meta.objects import Object
from harness.data.stores import HandClock
from harness.servers.stand_ins.lease_server import LeaseServer


class Lost(Exception):
    pass


class Leases(LeaseServer):
    """A server that may be out of reach."""

    def __init__(self) -> None:
        super().__init__()
        self.is_reached = True

    async def get(self, resource: Resource, name: str, namespace: str) -> Object:
        if not self.is_reached:
            raise TimeoutError
        return await super().get(resource, name, namespace)


class Members:
    """Processes at one Lease, with a clock of the test."""

    def __init__(self, *names: str) -> None:
        self.server, self.clock = Leases(), HandClock()
        self.cut_s = dict.fromkeys(names, 0.0)
        self.all = {name: self.new(name) for name in names}

    def new(self, name: str) -> Membership:
        client: Any = self.server
        found = Membership(client, "edge-controllers", name, lambda: self.cut_s[name], self.clock.steady)

        def lost() -> None:
            raise Lost(name)

        found.lost = lost
        return found

    async def turns(self, *names: str, seconds: float = 0.0) -> None:
        """Let these renew as they do, for a time, and once more."""
        for _ in range(int(seconds / RENEWAL_S) + 1):
            for each in names:
                await self.all[each].turn()
            self.clock.pass_time(RENEWAL_S)

    def roster(self, name: str) -> tuple[str, ...]:
        return self.all[name].roster.members


async def test_members_agree_and_each_key_has_one_of_them() -> None:
    members = Members("a", "b", "c")
    await members.turns("a", "b", "c", seconds=RENEWAL_S)
    assert {members.roster(each) for each in "abc"} == {("a", "b", "c")}
    for key in (f"heartbeats/{number}" for number in range(100)):
        assert sum(each.is_owner(key) for each in members.all.values()) == 1


async def test_who_does_not_renew_is_taken_off_after_its_life_and_no_sooner() -> None:
    members = Members("a", "b")
    await members.turns("a", "b", seconds=RENEWAL_S)
    await members.turns("b", seconds=LIFE_S - 3 * RENEWAL_S)
    assert members.roster("b") == ("a", "b")
    await members.turns("b", seconds=2 * RENEWAL_S)
    assert members.roster("b") == ("b",)
    assert MEMBER + "a" not in (members.server.lease or {})["metadata"]["annotations"]


async def test_nobody_is_taken_off_for_a_time_in_which_nobody_could_renew() -> None:
    members = Members("a", "b")
    await members.turns("a", "b", seconds=RENEWAL_S)
    await members.turns("a")
    members.server.is_reached = False
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await members.turns("a")
        members.clock.pass_time(LIFE_S)
    members.server.is_reached = True
    await members.turns("a")
    assert members.roster("a") == ("a", "b")
    assert members.all["a"].token(WHOLE) == members.all["a"].roster.epoch
    await members.turns("a", seconds=LIFE_S + RENEWAL_S)
    assert members.roster("a") == ("a",)


async def test_who_was_taken_off_writes_nothing_and_begins_anew() -> None:
    members = Members("a", "b")
    await members.turns("a", "b", seconds=RENEWAL_S)
    paused, epoch = members.all["a"], members.all["a"].token(WHOLE)
    assert not members.all["b"].has_whole.is_set()
    await members.turns("b", seconds=LIFE_S + RENEWAL_S)
    assert members.all["b"].has_whole.is_set()
    assert members.all["b"].token(WHOLE) > epoch
    with pytest.raises(Fenced):
        paused.token(WHOLE)
    with pytest.raises(Lost):
        await paused.turn()


async def test_a_write_is_sent_for_own_keys_alone() -> None:
    members = Members("a", "b")
    await members.turns("a", "b", seconds=RENEWAL_S)
    key = next(f"x/{n}" for n in range(99) if members.all["b"].is_owner(f"x/{n}"))
    assert members.all["b"].token(key) == members.all["b"].roster.epoch
    for foreign in (key, ""):
        with pytest.raises(Fenced):
            members.all["a"].token(foreign)


async def test_a_member_that_is_cut_off_leaves_if_another_one_is_not() -> None:
    members = Members("a", "b")
    await members.turns("a", "b", seconds=RENEWAL_S)
    members.cut_s["a"] = LEAVE_S
    members.cut_s["b"] = LEAVE_S - 0.1
    await members.turns("b", seconds=0)
    await members.turns("a", "b", seconds=RENEWAL_S)
    assert members.roster("a") == ("a", "b"), "nobody reaches what they need"
    members.cut_s["b"] = 0.0
    await members.turns("b")
    with pytest.raises(Lost):
        await members.turns("a")
    await members.turns("b")
    assert members.roster("b") == ("b",)


async def test_a_process_that_has_not_seen_everything_joins_only_if_nobody_works() -> None:
    members = Members("a", "b")
    members.cut_s["a"] = members.cut_s["b"] = 0.1
    await members.turns("a", "b", seconds=RENEWAL_S)
    assert members.roster("a") == ("a",)
    assert members.all["b"].failure
    members.cut_s["b"] = 0.0
    await members.turns("b")
    assert members.roster("b") == ("a", "b")
    assert not members.all["b"].failure


async def test_a_process_that_began_again_under_its_name_starts_an_epoch() -> None:
    members = Members("a")
    await members.turns("a")
    epoch = members.all["a"].roster.epoch
    members.all["a"] = members.new("a")
    await members.turns("a")
    assert members.all["a"].roster.epoch > epoch


async def test_who_works_alone_is_waited_for() -> None:
    members = Members("a")
    members.server.lease = {
        "metadata": {"name": "edge-controllers", "resourceVersion": "0"},
        "spec": {"holderIdentity": "alone"},
    }
    await members.turns("a", seconds=2 * LIFE_S)
    assert "alone has the Lease" in members.all["a"].failure
    await members.turns("a", seconds=2 * LIFE_S)
    assert members.roster("a") == ("a",)


async def test_who_leaves_in_order_is_off_the_roster_at_once() -> None:
    members = Members("a", "b")
    await members.turns("a", "b", seconds=RENEWAL_S)
    await members.all["a"].release()
    with pytest.raises(Fenced):
        members.all["a"].token(next(f"x/{n}" for n in range(99) if members.all["a"].is_owner(f"x/{n}")))
    await members.turns("b")
    assert members.roster("b") == ("b",)


async def test_a_refused_write_has_the_roster_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "RENEWAL_S", 600.0)
    members = Members("a", "b")
    first = members.all["a"]
    running = asyncio.create_task(first.run())
    try:
        await first.look()
        await members.turns("b")
        assert "b" not in first.roster.members
        await first.look()
        assert first.roster.members == ("a", "b")
    finally:
        running.cancel()


async def test_a_roster_that_cannot_be_read_begins_anew() -> None:
    members = Members("a")
    await members.turns("a")
    assert members.server.lease is not None
    members.server.lease["metadata"]["annotations"][ROSTER] = "["
    members.all["a"] = members.new("a")
    await members.turns("a")
    assert members.roster("a") == ("a",)


# --- shares


class Controller:
    """Counts what is reconciled, and asks for a token each time."""

    name = "example"

    def __init__(self, member: Membership) -> None:
        self.queue: WorkQueue[str] = WorkQueue()
        self.done: list[str] = []
        self.shares = Shares(member)

    def keys(self) -> list[str]:
        return [str(number) for number in range(40)]

    async def reconcile(self, key: str) -> Requeue:
        self.shares.fence.token()
        self.done.append(key)
        return 5.0


async def test_a_member_reconciles_its_keys_and_takes_those_of_who_is_gone() -> None:
    members = Members("a", "b")
    controller = Controller(members.all["a"])
    run = controller.shares.split(controller, controller.reconcile)
    await members.turns("a", "b", seconds=RENEWAL_S)
    keys = controller.keys()
    own = [key for key in keys if members.all["a"].is_owner(share_of("example", key))]
    for key in keys:
        assert await run(key) == (5.0 if key in own else None)
    assert controller.done == own
    assert 0 < len(own) < 40
    while len(controller.queue):
        controller.queue.done((await controller.queue.take())[0])
    await members.turns("a", seconds=LIFE_S + RENEWAL_S)
    assert len(controller.queue) == 40 - len(own)


async def test_outside_of_a_reconcile_nothing_is_written() -> None:
    members = Members("a")
    controller = Controller(members.all["a"])
    await members.turns("a")
    with pytest.raises(Fenced):
        controller.shares.fence.token()
