"""Faults between the log and the stream: in every case, the stream matches the log or reports a gap."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from atoll.machinery.kcp.sharding.stream_policy import KcpStreamPolicy
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import Object
from atoll.machinery.process.backoff import Backoff
from atoll.machinery.stream.connection import Connection
from atoll.machinery.stream.definitions import RetentionLimits
from atoll.machinery.stream.events import Event, Operation
from atoll.machinery.stream.publisher import stream_admin
from atoll.machinery.stream.publisher.audit import StreamAudit
from atoll.machinery.stream.publisher.stream_writer import Outgoing
from atoll.machinery.stream.subjects import stream_name
from harness.models.shard_log import CONFIGMAPS, Entry, ShardLog
from harness.servers.in_process.publisher import QUICK, Running, publishing, read_events, read_stream
from harness.servers.nats import NatsServer, eventually


def config_map(name: str, cluster: str = "c1") -> ObjectKey:
    return ObjectKey(CONFIGMAPS, cluster, "default", name)


def write(log: ShardLog, count: int) -> None:
    for number in range(count):
        log.put(config_map(f"m{number % 9}", f"c{number % 3}"), data={"number": f"{len(log.entries):06d}"})


def revisions(events: list[tuple[int, Event]]) -> list[int]:
    return [event.revision for _, event in events if event.key is not None]


def controls(events: list[tuple[int, Event]]) -> list[tuple[Operation, int]]:
    """What consumers act on: a fence says nothing to them."""
    marks = [(event.operation, event.revision) for _, event in events if event.key is None]
    return [mark for mark in marks if mark[0] is not Operation.FENCE]


@pytest.mark.long
async def test_killing_nats_again_and_again_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    log, stop = ShardLog(), asyncio.Event()

    async def keep_writing() -> None:
        while not stop.is_set():
            write(log, 15)
            await asyncio.sleep(0.001)

    async with NatsServer(tmp_path, backoff=Backoff(0.01, 5.0, least=1.0)) as nats, publishing(log, nats) as running:
        writing = asyncio.ensure_future(keep_writing())
        for _ in range(5):
            reached = len(log.entries) + 1000
            await eventually(lambda reached=reached: len(log.entries) > reached)  # type: ignore[misc]
            await nats.kill()
        stop.set()
        await writing
        await running.drained()
        events = await read_stream(nats, "changes")
    assert revisions(events) == [entry.revision for entry in log.entries]
    assert controls(events) == []


async def test_a_killed_publisher_goes_on_without_its_last_cursor(tmp_path: Path) -> None:
    log = ShardLog()
    async with NatsServer(tmp_path) as nats:
        async with publishing(log, nats) as running:
            write(log, 300)
            await running.drained()
        log = log.reopened(keep_marks=False)
        write(log, 300)
        async with publishing(log, nats) as running:
            await running.drained()
        events = await read_stream(nats, "changes")
    assert revisions(events) == [entry.revision for entry in log.entries]
    assert controls(events) == []


@pytest.mark.long
async def test_a_publisher_stopped_anywhere_goes_on_where_the_stream_ends(tmp_path: Path) -> None:
    log, dice = ShardLog(), random.Random(11)
    async with NatsServer(tmp_path) as nats:
        for _ in range(6):
            old_marks = dict(log.marks)
            running = Running(log, nats.access, QUICK)
            write(log, 600)
            target = log.entries[-dice.randrange(1, 600)].revision
            await eventually(lambda r=running, t=target: r.publisher.changes.revision >= t)  # type: ignore[misc]
            running.task.cancel()
            await asyncio.gather(running.task, return_exceptions=True)
            log = log.reopened()
            log.marks = old_marks
        async with publishing(log, nats) as running:
            await running.drained()
        events = await read_stream(nats, "changes")
    assert revisions(events) == [entry.revision for entry in log.entries]
    assert controls(events) == []


@pytest.mark.long
async def test_a_deleted_store_is_refilled_behind_a_resync(tmp_path: Path) -> None:
    log = ShardLog()
    async with NatsServer(tmp_path) as nats, publishing(log, nats) as running:
        write(log, 200)
        await running.drained()
        log.compact(log.entries[49].revision)
        await nats.stop()
        nats.delete_store()
        write(log, 50)
        await nats.start()
        await running.drained()
        events = await read_stream(nats, "changes")
    assert controls(events) == [(Operation.RESYNC, log.floor())]
    assert events[0][1].operation is Operation.RESYNC
    assert revisions(events) == [entry.revision for entry in log.entries]


async def test_a_purged_stream_is_not_starved_by_the_dedupe_window(tmp_path: Path) -> None:
    log = ShardLog()
    async with NatsServer(tmp_path) as nats:
        async with publishing(log, nats) as running:
            write(log, 100)
            await running.drained()
        connection = await nats.connect()
        await connection.api(f"STREAM.PURGE.{stream_name('changes', 'root')}")
        await connection.close()
        log = log.reopened(keep_marks=False)
        async with publishing(log, nats) as running:
            await running.drained()
        events = await read_stream(nats, "changes")
    assert controls(events) == [(Operation.RESYNC, 0)]
    assert revisions(events) == [entry.revision for entry in log.entries]


@pytest.mark.long
async def test_an_older_copy_of_the_store_gets_what_it_lacks_although_the_cursor_is_ahead(tmp_path: Path) -> None:
    log = ShardLog()
    async with NatsServer(tmp_path) as nats:
        async with publishing(log, nats) as running:
            write(log, 100)
            await running.drained()
        await nats.stop()
        shutil.copytree(nats.directory / "store", tmp_path / "copy")
        await nats.start()
        async with publishing(log, nats) as running:
            write(log, 100)
            await running.drained()
        await nats.stop()
        nats.delete_store()
        shutil.copytree(tmp_path / "copy", nats.directory / "store")
        await nats.start()
        async with publishing(log, nats) as running:
            write(log, 10)
            await running.drained()
        events = await read_stream(nats, "changes")
    assert revisions(events) == [entry.revision for entry in log.entries]
    assert controls(events) == []


async def test_compaction_that_passed_the_stream_is_said_by_a_resync(tmp_path: Path) -> None:
    log = ShardLog()
    async with NatsServer(tmp_path) as nats, publishing(log, nats) as running:
        write(log, 20)
        await running.drained()
        await nats.stop()
        write(log, 100)
        log.compact(log.entries[60].revision)
        await nats.start()
        await running.drained()
        events = await read_stream(nats, "changes")
    assert controls(events) == [(Operation.RESYNC, log.floor())]
    assert revisions(events)[20:] == [entry.revision for entry in log.entries]


class CompactingLog(ShardLog):
    """Compaction that comes between the look at the floor and the read, and a read that does not notice."""

    def __init__(self) -> None:
        super().__init__()
        self.compact_on_read = 0

    def tail(self, revision: int, limit: int) -> Sequence[Entry]:
        if self.compact_on_read:
            self.compact(self.compact_on_read)
            self.compact_on_read = 0
            return self.entries[:limit]
        return super().tail(revision, limit)


async def test_compaction_in_the_middle_of_a_read_is_said_by_a_resync(tmp_path: Path) -> None:
    log = CompactingLog()
    async with NatsServer(tmp_path) as nats, publishing(log, nats) as running:
        write(log, 20)
        await running.drained()
        write(log, 20)
        log.compact_on_read = log.entries[30].revision
        await running.drained()
        events = await read_stream(nats, "changes")
    assert controls(events) == [(Operation.RESYNC, log.floor())]
    assert revisions(events)[20:] == [entry.revision for entry in log.entries]


async def test_a_strangers_message_neither_stops_publishing_nor_makes_anybody_reread(tmp_path: Path) -> None:
    log = ShardLog()
    async with NatsServer(tmp_path) as nats, publishing(log, nats) as running:
        write(log, 50)
        await running.drained()
        connection = await nats.connect()
        name = stream_name("changes", "root")
        await connection.client.jetstream().publish("atoll.changes.root.core.core.configmaps.c1", b"{}")
        write(log, 700)
        await running.drained()
        info = await connection.api(f"STREAM.INFO.{name}")
        await connection.close()
        assert info["state"]["messages"] == 751
        assert running.publisher.changes.stats.restarts == 0
        held = [event for event in await read_events(nats, "changes") if event is not None]
    assert [event.revision for event in held] == [entry.revision for entry in log.entries]


async def test_a_new_lineage_is_said_by_a_resync(tmp_path: Path) -> None:
    log = ShardLog()
    async with NatsServer(tmp_path) as nats:
        async with publishing(log, nats) as running:
            write(log, 20)
            await running.drained()
        log = log.reopened(lineage="b2")
        async with publishing(log, nats) as running:
            write(log, 5)
            await running.drained()
        events = await read_stream(nats, "changes")
    assert controls(events) == [(Operation.RESYNC, 0)]
    assert [event.lineage for _, event in events[21:]] == ["b2"] * 25
    assert revisions(events)[20:] == [entry.revision for entry in log.entries]


async def test_the_higher_epoch_publishes_and_the_lower_one_is_told(tmp_path: Path) -> None:
    old = ShardLog()
    async with NatsServer(tmp_path) as nats, publishing(old, nats) as first:
        write(old, 50)
        await first.drained()
        new = old.reopened()
        async with publishing(new, nats) as second:
            write(new, 50)
            await second.drained()
            write(old, 5)
            await eventually(lambda: bool(first.deposed))
            assert first.task.done()
            assert (first.deposed[0].own, first.deposed[0].other) == (old.identity.epoch, new.identity.epoch)
            write(new, 50)
            await second.drained()
        events = await read_stream(nats, "changes")
    assert revisions(events) == [entry.revision for entry in new.entries]


@pytest.mark.parametrize("number", [0, 120, 199])
async def test_a_flipped_bit_is_found_and_the_stream_written_again(tmp_path: Path, number: int) -> None:
    log = ShardLog()
    async with NatsServer(tmp_path) as nats, publishing(log, nats) as running:
        write(log, 200)
        await running.drained()
        await nats.stop()
        nats.flip_bit(stream_name("changes", "root"), b'"number":"%06d"' % number)
        await nats.start()
        await eventually(lambda: running.publisher.changes.stats.restarts == 1)
        await running.drained()
        events = await read_stream(nats, "changes")
        assert running.publisher.changes.stats.damaged_messages == 1
    assert [operation for operation, _ in controls(events)] == [Operation.RESYNC]
    assert events[0][1].operation is Operation.RESYNC
    assert revisions(events) == [entry.revision for entry in log.entries]


async def test_a_stream_written_again_is_whole(tmp_path: Path) -> None:
    log = ShardLog()
    async with NatsServer(tmp_path) as nats:
        async with publishing(log, nats) as running:
            write(log, 100)
            await running.drained()
            await nats.stop()
            nats.flip_bit(stream_name("changes", "root"), b'"number":"000050"')
            await nats.start()
            await eventually(lambda: running.publisher.changes.stats.restarts == 1)
            await running.drained()
        running = Running(log, nats.access, QUICK)
        connection = await nats.connect()
        audit = StreamAudit(
            (running.publisher.changes, running.publisher.state), log, KcpStreamPolicy(), (100_000, 100_000)
        )
        assert await audit.changes(connection)
        await connection.close()
        await running.stop()


async def test_entries_behind_an_older_one_are_written_again(tmp_path: Path) -> None:
    """The server would drop copies with the ids of the first messages."""
    log = ShardLog()
    async with NatsServer(tmp_path) as nats:
        async with publishing(log, nats) as running:
            write(log, 10)
            await running.drained()
        async with publishing(log.reopened(), nats) as running:
            changes = running.publisher.changes
            await eventually(lambda: changes._consumers_informed)
            changes._rewritten_until = log.last()
            assert changes._window is not None
            await changes._send(changes._window, [Outgoing(log.last(), changes._from_entry(log.tail(0, 10)[4]))])
            await changes._window.drain()
        # The cursor is that of before.
        async with publishing(log.reopened(epoch=2), nats) as running:
            await eventually(lambda: running.publisher.changes._consumers_informed)
            await running.drained()
        written = [entry.revision for entry in log.entries]
        assert revisions(await read_stream(nats, "changes")) == [*written, *written[4:]]


async def test_messages_that_age_out_during_an_audit_are_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, stream_info = ShardLog(), stream_admin.stream_info

    async def then_age_out(connection: Connection, name: str) -> Object | None:
        found = await stream_info(connection, name)
        await connection.api(f"STREAM.PURGE.{name}", {"seq": 20})
        return found

    async with NatsServer(tmp_path) as nats, publishing(log, nats) as running:
        write(log, 60)
        await running.drained()
        connection, changes = await nats.connect(), running.publisher.changes
        audit = StreamAudit((changes, running.publisher.state), log, KcpStreamPolicy(), (100_000, 100_000))
        monkeypatch.setattr(stream_admin, "stream_info", then_age_out)
        assert await audit.changes(connection)
        assert changes.stats.damaged_messages == 0
        await connection.close()


@pytest.mark.long
async def test_a_server_that_hangs_over_a_damaged_message_is_restarted_and_mended(tmp_path: Path) -> None:
    log, options = ShardLog(), msgspec.structs.replace(QUICK, bounds=RetentionLimits(max_bytes=60_000))
    async with NatsServer(tmp_path, backoff=Backoff(0.01, 5.0, least=1.0)) as nats:
        async with publishing(log, nats, options) as running:
            write(log, 60)
            await running.drained()
        await nats.stop()
        nats.flip_bit(stream_name("changes", "root"), b'"number":"000010"')
        await nats.start()
        write(log, 60)
        async with publishing(log, nats, options) as running:
            await running.drained()
            events = await read_stream(nats, "changes")
    # The last ones that fit the bound, without a hole, and the RESYNC before or among them unless it was dropped.
    kept = revisions(events)
    assert kept == [entry.revision for entry in log.entries][-len(kept) :]
    assert len(kept) > 20
