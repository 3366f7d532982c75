"""Alerts of a syncer: it shows what alerts and dashboards name, and what fails at it fires."""

from __future__ import annotations

import asyncio
import os
import signal
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import Resource
from atoll.machinery.meta.status import NotFound
from atoll.syncer.metrics import SyncerMetrics
from atoll.syncer.syncer import Syncer
from harness.clients.api import configmap
from harness.clients.prometheus import Scrape, begun_to_fire, evaluate
from harness.servers.in_process.mailbox_view import MailboxView
from harness.servers.in_process.syncer import Run, is_idle
from harness.servers.shard_process import ShardProcess
from harness.waits import until

pytestmark = pytest.mark.long

CONFIGMAPS = Resource("", "v1", "configmaps")
#: Of revisions, which count microseconds.
BEHIND_US = 61_000_000


@asynccontextmanager
async def measured(run: Run, view: MailboxView) -> AsyncIterator[tuple[Syncer, Callable[[], str]]]:
    """A syncer that has nothing to do, and what it shows."""
    registry = CollectorRegistry()
    async with run() as syncer:
        SyncerMetrics(syncer, registry)
        await until(is_idle(syncer, view), "it has looked at everything")
        yield syncer, lambda: generate_latest(registry).decode()


def shows(text: Callable[[], str], line: str) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return f"\n{line}" in text()

    return look


async def test_a_syncer_shows_every_metric_that_is_named_and_without_its_mailbox_it_fires(
    view: MailboxView, run: Run
) -> None:
    async with measured(run, view) as (_, text):
        before = text()
        found = evaluate([Scrape(0, "atoll", "syncer", before)], 60, dashboards=True)
        named = {each for each in found.wanted if each.startswith("syncer_")}
        assert len(named) > 4
        assert named <= set(found.metrics)
        view.cut()
        await until(shows(text, "syncer_center_connected 0.0"), "it is cut")
        cut = text()
        view.join()
        await until(shows(text, "syncer_center_connected 1.0"), "it follows again")
        assert begun_to_fire([before, cut]) == {"AtollSyncerCut": 1}
        assert begun_to_fire([before, text()]) == {}


async def test_a_cluster_that_does_not_answer_puts_the_syncer_behind(
    view: MailboxView, run: Run, shard: ShardProcess
) -> None:
    name = f"late-{uuid.uuid4().hex[:8]}"
    view.place(configmap(f"{name}-a", {"a": "1"}, namespace="default"))
    async with measured(run, view) as (syncer, text):
        before = text()
        os.kill(shard.pid, signal.SIGSTOP)
        try:
            view.place(configmap(name, {"a": "1"}, namespace="default"))
            view.revision += BEHIND_US
            view.place(configmap(f"{name}-b", {"a": "1"}, namespace="default"))
            await until(lambda: _is_behind(syncer), "it has read more than it tried")
            behind = text()
        finally:
            os.kill(shard.pid, signal.SIGCONT)
        await until(is_idle(syncer, view), "it has tried everything")
        assert begun_to_fire([before, behind]) == {"AtollSyncerBehind": 1}
        assert begun_to_fire([before, text()]) == {}


async def _is_behind(syncer: Syncer) -> bool:
    return syncer.mailbox.revision - syncer.applied >= BEHIND_US


async def test_what_the_cluster_refuses_fires(view: MailboxView, run: Run) -> None:
    async with measured(run, view) as (syncer, text):
        before = text()
        (ref,) = view.place(configmap("Not_A_Name", namespace="default"))
        await until(shows(text, 'syncer_failing_objects{reason="Invalid"} 1.0'), "it is refused")
        refused = text()
        view.withdraw(ref)
        await until(is_idle(syncer, view), "it is taken back")
        assert syncer.failures == {}
        assert begun_to_fire([before, refused]) == {"AtollSyncerErrors": 1}
        assert begun_to_fire([before, text()]) == {}


async def test_somebody_at_the_edge_who_changes_an_object_back_fires(view: MailboxView, edge: Client, run: Run) -> None:
    name = f"c{uuid.uuid4().hex[:8]}"

    async def is_applied() -> bool:
        try:
            return (await edge.get(CONFIGMAPS, name, "default")).get("data") == {"a": "mailbox"}
        except NotFound:
            return False

    async def fight() -> None:
        while True:
            await until(is_applied, "it was applied")
            await edge.patch(CONFIGMAPS, name, {"data": {"a": "somebody"}}, "default")

    async with measured(run, view) as (_, text):
        before = text()
        view.place(configmap(name, {"a": "mailbox"}, namespace="default"))
        opponent = asyncio.create_task(fight())
        await until(shows(text, 'syncer_failing_objects{reason="Contested"} 1.0'), "it is contested")
        opponent.cancel()
        assert begun_to_fire([before, text()]) == {"AtollSyncerConflicts": 1}
