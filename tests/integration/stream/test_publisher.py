"""The publisher against a real nats-server: the streams match the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.stream.definitions import definition, differences
from atoll.machinery.stream.events import Operation
from atoll.machinery.stream.publisher.publisher import PublishLag
from atoll.machinery.stream.subjects import stream_name
from harness.models.shard_log import CONFIGMAPS, LEASES, LOGICAL_CLUSTERS, SECRETS, ShardLog
from harness.servers.in_process.publisher import publishing, read_stream
from harness.servers.nats import NatsServer, eventually
from harness.servers.processes import contents_below


def config_map(name: str, cluster: str = "c1") -> ObjectKey:
    return ObjectKey(CONFIGMAPS, cluster, "default", name)


def all_bytes(directory: Path) -> bytes:
    return b"".join(contents_below(directory).values())


async def test_every_change_is_in_the_stream_in_order(tmp_path: Path) -> None:
    log = ShardLog()
    async with NatsServer(tmp_path) as nats, publishing(log, nats) as running:
        for number in range(1500):
            log.put(config_map(f"m{number % 7}"), data={"n": str(number)})
        log.delete(config_map("m3"))
        await running.drained()
        events = [event for _, event in await read_stream(nats, "changes")]
    assert [event.revision for event in events] == [entry.revision for entry in log.entries]
    assert [event.previous for event in events] == [entry.previous_of_type for entry in log.entries]
    assert all(event.intact for event in events)
    assert events[-1].operation is Operation.DELETED
    assert b'"resourceVersion":"%d"' % events[-1].revision in events[-1].payload
    assert events[10].payload == log.entries[10].value


@pytest.mark.long
async def test_an_object_of_three_mebibytes_travels_whole(tmp_path: Path) -> None:
    log = ShardLog()
    async with NatsServer(tmp_path) as nats, publishing(log, nats) as running:
        for number in range(8):
            log.put(config_map(f"big{number}"), data={"blob": "x" * (3 << 20)})
        await running.drained()
        events = [event for _, event in await read_stream(nats, "changes")]
    assert [event.payload for event in events] == [entry.value for entry in log.entries]


async def test_a_sealed_record_stays_sealed_in_the_store_of_nats(tmp_path: Path) -> None:
    canary, log = "canary-4f1d93ab", ShardLog()
    async with NatsServer(tmp_path) as nats, publishing(log, nats) as running:
        log.put(ObjectKey(SECRETS, "c1", "default", "s"), sealed=True, data={"password": canary})
        log.put(config_map("open"), data={"note": "canary-open"})
        await running.drained()
        events = [event for _, event in await read_stream(nats, "changes")]
    everything = all_bytes(tmp_path)
    assert canary.encode() not in everything
    assert b"canary-open" in everything
    assert (events[0].sealed, events[0].intact, events[0].hole) == (True, True, -1)
    assert events[0].payload == log.entries[0].value


async def test_excluded_kinds_are_skipped_and_do_not_hold_the_cursor_back(tmp_path: Path) -> None:
    log = ShardLog()
    async with NatsServer(tmp_path) as nats, publishing(log, nats) as running:
        log.put(config_map("a"))
        for _ in range(20):
            log.put(ObjectKey(LEASES, "c1", "kube-system", "leader"))
        await running.drained()
        events = await read_stream(nats, "changes")
        assert running.publisher.published == log.last()
    assert len(events) == 1


async def test_writers_do_not_notice_that_nats_is_down_and_the_backlog_follows(tmp_path: Path) -> None:
    log = ShardLog()
    async with NatsServer(tmp_path) as nats, publishing(log, nats) as running:
        log.put(config_map("before"))
        await running.drained()
        await nats.stop()
        for number in range(3000):
            log.put(config_map(f"m{number % 50}"), data={"n": str(number)})
        await eventually(lambda: not running.publisher.lag().connected)
        lag = running.publisher.lag()
        assert lag.events == 3000
        assert lag.seconds > 0
        await nats.start()
        await running.drained()
        events = [event for _, event in await read_stream(nats, "changes")]
        assert running.publisher.lag() == PublishLag(0, 0.0, True)
    assert [event.revision for event in events] == [entry.revision for entry in log.entries]


async def test_compaction_is_told_how_far_both_streams_are(tmp_path: Path) -> None:
    log = ShardLog()
    async with NatsServer(tmp_path) as nats, publishing(log, nats) as running:
        log.put(config_map("a"))
        log.put(ObjectKey(LOGICAL_CLUSTERS, "c1", "", "cluster"))
        await running.drained()
        await eventually(lambda: log.published == log.last())


async def test_a_stream_out_of_shape_is_brought_back(tmp_path: Path) -> None:
    log = ShardLog()
    async with NatsServer(tmp_path) as nats:
        async with publishing(log, nats) as running:
            log.put(config_map("a"))
            await running.drained()
        connection = await nats.connect()
        name = stream_name("changes", "root")
        info = await connection.api(f"STREAM.INFO.{name}")
        await connection.api(f"STREAM.UPDATE.{name}", {**info["config"], "max_age": 3600 * 10**9})
        async with publishing(log, nats) as running:
            log.put(config_map("b"))
            await running.drained()
        info = await connection.api(f"STREAM.INFO.{name}")
        await connection.close()
    assert differences(definition("changes", "root"), info["config"]) == {}
    # Two changes, and the fence of the second publisher.
    assert info["state"]["messages"] == 3


@pytest.mark.long
async def test_the_changes_stream_is_resized_while_it_is_written_and_drops_the_oldest(tmp_path: Path) -> None:
    log, max_bytes = ShardLog(), 4 << 20
    async with NatsServer(tmp_path) as nats, publishing(log, nats) as running:
        for number in range(20):
            log.put(config_map(f"m{number}"), data={"blob": "x" * (1 << 20)})
        await running.drained()
        await running.publisher.changes.resize(max_bytes)
        log.put(config_map("last"))
        await running.drained()
        events = [event for _, event in await read_stream(nats, "changes")]
        assert events[-1].key == config_map("last")
        assert sum(len(event.payload) for event in events) <= max_bytes
        # The next session keeps the bound.
        await nats.kill()
        log.put(config_map("later"))
        await running.drained()
        assert running.publisher.changes._definition["max_bytes"] == max_bytes
        assert len(await read_stream(nats, "changes")) == len(events) + 1


async def test_an_entry_that_may_be_in_the_stream_already_is_sent_under_another_id(tmp_path: Path) -> None:
    log = ShardLog()
    async with NatsServer(tmp_path) as nats, publishing(log, nats) as running:
        log.put(config_map("a"))
        await running.drained()
        [(_, event)] = await read_stream(nats, "changes")
        changes = running.publisher.changes
        for rewritten_until, is_fresh in ((event.revision - 1, False), (event.revision, True), (1 << 62, True)):
            changes._rewritten_until = rewritten_until
            ids = {changes._message_id(event), changes._message_id(event)}
            assert (event.id in ids, len(ids)) == ((False, 2) if is_fresh else (True, 1))
