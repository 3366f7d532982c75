"""The state of shards read in a region, through streams that source those of the hub: `infra/nats`, started.

Remains of a purge, a new history or a deleted store in a region must not be visible there.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.stream.connection import Access, Connection
from atoll.machinery.stream.consumer.gaps import Gap
from atoll.machinery.stream.consumer.state_consumer import ConsumerOptions, StateConsumer
from atoll.machinery.stream.event_keys import by_id
from atoll.machinery.stream.subjects import all_subjects
from harness.data.event_keys import PUBLIC
from harness.models.forged_events import inject, stored
from harness.models.shard_log import LOGICAL_CLUSTERS, ShardLog
from harness.models.state_projection import StateRows
from harness.servers.in_process.publisher import QUICK, Running
from harness.servers.nats import eventually
from harness.servers.nats_regions import ADMIN, Hierarchy, hierarchy

#: A source whose origin was lost looks for it again after some ten seconds.
PATIENCE_S = 120.0


def cluster(name: str) -> ObjectKey:
    return ObjectKey(LOGICAL_CLUSTERS, name, "", "cluster")


class Projection(StateRows):
    """Rows that are compared with the origin's."""

    def shows(self, log: ShardLog) -> bool:
        """Whether the projection is complete and equals the origin."""
        standing = {key: entry.value for key, entry in log.objects.items()}
        return self.kept is not None and self.values == standing


@asynccontextmanager
async def publishing(log: ShardLog, access: Access) -> AsyncIterator[Running]:
    running = Running(log, access, QUICK)
    try:
        yield running
    finally:
        await running.stop()


@asynccontextmanager
async def following(site: Hierarchy, projection: Projection) -> AsyncIterator[StateConsumer]:
    keys = by_id(PUBLIC)
    subscription = ConsumerOptions("root", all_subjects("state", "root"), site.consumer, batch=20, keys=lambda: keys)
    consumer = StateConsumer(site.reader, subscription, projection)
    task = asyncio.ensure_future(consumer.run())
    try:
        yield consumer
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_refill_at_the_hub_leaves_nothing_of_before_in_the_region(tmp_path: Path) -> None:
    log, projection = ShardLog(), Projection()
    async with hierarchy(tmp_path, ["root"]) as site, publishing(log, site.shard("root")) as running:
        for name in ("kept", "forgotten"):
            log.put(cluster(name))
        await running.drained()
        await site.source("root")
        async with following(site, projection):
            await eventually(lambda: projection.shows(log), PATIENCE_S)
            # Removed without a message, as after a purge of tombstones: the refill is the first to reveal it.
            log.objects.pop(cluster("forgotten"))
            running.publisher.state.rebuild("a test asks")
            await eventually(lambda: projection.shows(log), PATIENCE_S)
            log.put(cluster("after"))
            await eventually(lambda: projection.shows(log), PATIENCE_S)
        # A new reader of the region finds the remains in its stream, and drops them in the end.
        fresh = Projection()
        async with following(site, fresh):
            await eventually(lambda: fresh.shows(log), PATIENCE_S)
        assert fresh.gaps == [Gap.NEW, Gap.RESYNC]
        # A reader that was offline during a refill detects it by the number in later messages.
        log.objects.pop(cluster("kept"))
        running.publisher.state.rebuild("a test asks")
        await running.drained()
        async with following(site, projection):
            await eventually(lambda: projection.shows(log), PATIENCE_S)


@pytest.mark.long
async def test_a_region_follows_a_hub_that_lost_its_store_and_a_new_history(tmp_path: Path) -> None:
    log, projection = ShardLog(), Projection()
    async with hierarchy(tmp_path, ["root"]) as site:
        log.put(cluster("kept"))
        restored = log.reopened(lineage="b2")
        async with publishing(log, site.shard("root")) as running:
            log.put(cluster("lost"))
            await running.drained()
            await site.source("root")
            async with following(site, projection):
                await eventually(lambda: projection.shows(log), PATIENCE_S)
                await site.hub.stop()
                log.put(cluster("while-away"))
                log.objects.pop(cluster("lost"))
                shutil.rmtree(tmp_path / "hub/store")
                # The region is served in the meantime.
                assert projection.rows
                await site.hub.start()
                await eventually(lambda: projection.shows(log), PATIENCE_S)
        restored.put(cluster("other-future"))
        async with publishing(restored, site.shard("root")), following(site, projection):
            await eventually(lambda: projection.shows(restored), PATIENCE_S)


async def test_a_tenants_stream_holds_what_is_the_tenants(tmp_path: Path) -> None:
    log, projection = ShardLog(), Projection()
    async with hierarchy(tmp_path, ["root"]) as site, publishing(log, site.shard("root")) as running:
        for name in ("acme", "other"):
            log.put(cluster(name))
        await running.drained()
        await site.source("root", "tenant", cluster="acme", workspace="none")
        async with following(site, projection):
            await eventually(lambda: [key.cluster for key in projection.rows] == ["acme"], PATIENCE_S)
            log.put(cluster("other"), phase="Ready")
            log.delete(cluster("acme"))
            await eventually(lambda: projection.rows == {}, PATIENCE_S)


async def test_a_copy_of_an_earlier_message_in_the_region_is_not_believed(tmp_path: Path) -> None:
    log, projection = ShardLog(), Projection()
    async with hierarchy(tmp_path, ["root"]) as site, publishing(log, site.shard("root")) as running:
        log.put(cluster("gone"))
        await running.drained()
        await site.source("root")
        async with following(site, projection):
            await eventually(lambda: projection.shows(log), PATIENCE_S)
            admin = await Connection.open(site.region.access(ADMIN), "administrator")
            copy = await stored(admin, "atoll-state-root", 1)
            log.delete(cluster("gone"))
            await eventually(lambda: projection.rows == {}, PATIENCE_S)
            # The region's administrator lets the stream take messages beside those of its source.
            config = (await admin.api("STREAM.INFO.atoll-state-root"))["config"]
            await admin.api("STREAM.UPDATE.atoll-state-root", {**config, "subjects": ["atoll.state.root.>"]})
            await inject(admin, copy)
            await admin.close()
            log.put(cluster("after"))
            await eventually(lambda: projection.shows(log), PATIENCE_S)
