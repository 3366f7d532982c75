"""A link to the center that is cut anywhere, silent, or open one way: nothing is lost, and little is said again."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from atoll.machinery.client.client import WATCH_IDLE_S, Client
from atoll.machinery.client.kubeconfig import Target
from atoll.machinery.client.resource import Resource
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.meta.objects import Object, status_of
from atoll.machinery.meta.status import NotFound
from atoll.syncer.kinds import Kinds
from atoll.syncer.syncer import Options, Syncer
from harness.clients.api import crd
from harness.servers.in_process.mailbox_view import MailboxView
from harness.servers.in_process.syncer import TIMING, is_idle, syncing
from harness.servers.tcp_relay import DOWN, UP, TcpRelay
from harness.waits import until

GROUP = "link.example.com"
BOATS = Resource(GROUP, "v1", "boats")
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)
#: How long a syncer of these tests waits for a silent center.
PATIENCE_S = 2.0

Run = Callable[..., AbstractAsyncContextManager[Syncer]]


@pytest.fixture
async def link(view: MailboxView) -> AsyncIterator[TcpRelay]:
    with TcpRelay(view.port) as relay:
        yield relay


@pytest.fixture
async def run(cluster: tuple[Target, str], link: TcpRelay, edge: Client) -> Run:
    """A syncer behind the link. The kind of boats is served at the edge, by somebody else's definition."""
    await edge.apply(CRDS, crd("boats", GROUP), manager="somebody")
    kinds, center = Kinds(edge), Target("127.0.0.1", link.port, "", None)

    async def served() -> bool:
        return await kinds.find(GROUP, "boats", "v1") is not None

    await until(served, "the kind is served")
    options = Options(str(uuid.uuid4()), 500.0, 500, None, TIMING, TIMING)
    return lambda patience_s=PATIENCE_S: syncing(cluster, center, options, patience_s)


class Fleet:
    """Boats of one test, on both sides."""

    def __init__(self, view: MailboxView, edge: Client) -> None:
        self.view, self.edge = view, edge
        self.namespace = f"l{uuid.uuid4().hex[:8]}"

    def place(self, name: str, replicas: int, **spec: object) -> ObjectRef:
        metadata = {"name": name, "namespace": self.namespace}
        boat = {"apiVersion": f"{GROUP}/v1", "kind": "Boat", "metadata": metadata}
        return self.view.place({**boat, "spec": {"replicas": replicas, **spec}}, resource="boats")[0]

    async def at(self, name: str) -> Object | None:
        try:
            return await self.edge.get(BOATS, name, self.namespace)
        except NotFound:
            return None

    def has(self, name: str, replicas: int | None) -> Callable[[], Awaitable[Any]]:
        async def look() -> bool:
            found = await self.at(name)
            return (found["spec"]["replicas"] if found else None) == replicas

        return look

    def says(self, ref: ObjectRef, replicas: int) -> Callable[[], Awaitable[Any]]:
        async def look() -> bool:
            return self.view.status(ref).get("replicas") == replicas

        return look

    async def report(self, name: str, replicas: int) -> None:
        await self.edge.patch(BOATS, name, {"status": {"replicas": replicas}}, self.namespace, "status")


@pytest.fixture
def fleet(view: MailboxView, edge: Client) -> Fleet:
    return Fleet(view, edge)


def is_lost(syncer: Syncer) -> Callable[[], Awaitable[Any]]:
    """The syncer noticed that it does not follow its mailbox."""

    async def look() -> bool:
        return bool(syncer.mailbox.failure)

    return look


def reads(syncer: Syncer, ref: ObjectRef, replicas: int) -> Callable[[], Awaitable[Any]]:
    """The syncer has read this status at the edge."""

    async def look() -> bool:
        return status_of(syncer.edge.get(ref) or {}).get("replicas") == replicas

    return look


def counts(syncer: Syncer) -> tuple[int, int]:
    """How often it wrote to the edge, and to the mailbox."""
    assert syncer.downsync is not None and syncer.returns is not None
    return syncer.downsync.applies, syncer.returns.writes


async def test_a_line_that_is_cut_in_the_middle_comes_again_and_nothing_is_listed(
    view: MailboxView, link: TcpRelay, run: Run, fleet: Fleet
) -> None:
    fleet.place("b", 0)
    async with run() as syncer:
        await until(is_idle(syncer, view), "all is there")
        lists = view.lists
        for number, left in enumerate((1, 120, 700), start=1):
            link.cut_within(left)
            fleet.place("b", number)
            await until(is_lost(syncer), "the link is cut")
            link.join()
            await until(fleet.has("b", number), "the change came")
        assert view.lists == lists


@pytest.mark.long
async def test_a_link_that_is_silent_is_left_and_what_changed_meanwhile_comes_without_a_list(
    view: MailboxView, link: TcpRelay, run: Run, fleet: Fleet
) -> None:
    ref = fleet.place("b", 1)
    async with run() as syncer:
        await until(is_idle(syncer, view), "all is there")
        lists, passed = view.lists, link.passed
        link.swallow()
        fleet.place("b", 2)
        await fleet.report("b", 7)
        await until(is_lost(syncer), "the silence is noticed")
        assert await fleet.has("b", 1)()
        link.join()
        await until(fleet.has("b", 2), "the change came")
        await until(fleet.says(ref, 7), "and the status")
        assert (view.lists, link.passed > passed) == (lists, True)


@pytest.mark.long
async def test_of_many_changes_behind_a_cut_link_the_last_is_sent_alone_either_way(
    view: MailboxView, link: TcpRelay, run: Run, fleet: Fleet
) -> None:
    refs = [fleet.place(name, 1) for name in ("one", "two")]
    async with run() as syncer:
        await until(is_idle(syncer, view), "all is there")
        link.cut()
        await until(is_lost(syncer), "the link is cut")
        before = counts(syncer)
        for number in range(2, 12):
            fleet.place("one", number)
            await fleet.report("two", number)
        await until(reads(syncer, refs[1], 11), "the syncer knows the last state of the edge")
        link.join()
        await until(fleet.has("one", 11), "the last state came down")
        await until(fleet.says(refs[1], 11), "the last state came up")
        await until(is_idle(syncer, view), "nothing is left to do")
        assert counts(syncer) == (before[0] + 1, before[1] + 1)


@pytest.mark.long
async def test_what_was_written_and_never_answered_is_not_written_again(
    view: MailboxView, link: TcpRelay, run: Run, fleet: Fleet
) -> None:
    ref = fleet.place("b", 1)
    async with run() as syncer:
        await until(is_idle(syncer, view), "all is there")
        link.swallow(DOWN)
        await fleet.report("b", 7)
        await until(fleet.says(ref, 7), "the status came up")
        written = view.objects[ref]["metadata"]["resourceVersion"]
        await until(is_lost(syncer), "no answer comes")
        link.join()
        fleet.place("c", 1)
        await until(fleet.has("c", 1), "the link is there again")
        await until(is_idle(syncer, view), "nothing is left to do")
        assert view.objects[ref]["metadata"]["resourceVersion"] == written


async def test_while_nothing_goes_up_what_comes_down_is_still_applied(
    view: MailboxView, link: TcpRelay, run: Run, fleet: Fleet
) -> None:
    ref = fleet.place("b", 1)
    async with run(WATCH_IDLE_S) as syncer:
        await until(is_idle(syncer, view), "all is there")
        link.swallow(UP)
        await fleet.report("b", 7)
        fleet.place("b", 2)
        await until(fleet.has("b", 2), "the change came")
        assert view.status(ref) == {}
        link.cut()
        link.join()
        await until(fleet.says(ref, 7), "the status came up at last")


@pytest.mark.long
async def test_after_hours_all_is_compared_page_by_page(
    view: MailboxView, link: TcpRelay, run: Run, fleet: Fleet
) -> None:
    refs = {name: fleet.place(name, 1) for name in ("stays", "changes", "goes")}
    async with run() as syncer:
        await until(is_idle(syncer, view), "all is there")
        link.cut()
        await until(is_lost(syncer), "the link is cut")
        before, lists = counts(syncer), view.lists
        fleet.place("changes", 2)
        fleet.place("comes", 1)
        view.withdraw(refs["goes"])
        view.expire()
        view.page_size = 2
        link.join()
        for name, replicas in (("changes", 2), ("comes", 1), ("goes", None)):
            await until(fleet.has(name, replicas), name)
        assert (view.lists, counts(syncer)[0]) == (lists + 1, before[0] + 2)
        assert await fleet.has("stays", 1)()


@pytest.mark.long
@pytest.mark.timeout(400)
async def test_a_silent_link_is_left_within_two_minutes_and_a_half(
    view: MailboxView, link: TcpRelay, run: Run, fleet: Fleet
) -> None:
    fleet.place("b", 1)
    async with run(WATCH_IDLE_S) as syncer:
        await until(is_idle(syncer, view), "all is there")
        link.swallow()
        fleet.place("b", 2)
        # A request that is not answered says so first; the watch ends by its own silence.
        await until(is_lost(syncer), "the silence is noticed", WATCH_IDLE_S + 20.0)
        link.join()
        await until(fleet.has("b", 2), "the change came", WATCH_IDLE_S + 20.0)
