"""What may happen to the state streams, and what is held of other shards meanwhile: never less than was known, unless
its shard says so, and in the end what stands."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from atoll.machinery.meta.names import ROOT, ObjectKey
from atoll.machinery.meta.types import API_EXPORTS
from atoll.machinery.storage.contract import Scope, Snapshot
from atoll.machinery.stream.connection import Connection
from atoll.machinery.stream.permissions import Permissions
from atoll.machinery.stream.server.config import NatsUser
from atoll.machinery.stream.subjects import stream_name
from atoll.replication.shard_replica import ReplicaProgress
from harness.data.stored_headers import parse_headers
from harness.servers.in_process.followers import Archipelago, Member, cluster_key
from harness.servers.nats import eventually

STATE = stream_name("state", "root")
ALMIGHTY = NatsUser("almighty", "secret", Permissions((">",), (">",)), account="shard-root")


def export(name: str) -> ObjectKey:
    return ObjectKey(API_EXPORTS, ROOT, "", name)


class Watched:
    """A reader's count of root's exports, checked after each change: the minimum so far."""

    def __init__(self, reader: Member) -> None:
        self._reader, self.fewest, self.looks = reader, 1 << 30, 0
        self._task = asyncio.ensure_future(self._look())

    async def _look(self) -> None:
        count = -1
        while True:
            with self._reader.store.snapshot() as snapshot:
                count = snapshot.replicas.count
                self.fewest = min(self.fewest, len(names(snapshot)))
                self.looks += 1
            count = await self._reader.store.replicated(count)

    async def end(self) -> int:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        return self.fewest


def names(view: Snapshot) -> set[str]:
    return {record.key.name for record in view.replicas.rows_of("root", Scope(API_EXPORTS, ROOT))}


@pytest.fixture
async def sea(tmp_path: Path) -> AsyncIterator[Archipelago]:
    async with Archipelago(tmp_path, "root", readers=("proxy-front", "late")) as sea:
        await sea.with_users(ALMIGHTY)
        root = sea.shard("root")
        await root.announce("root")
        for number in range(30):
            await root.put(export(f"e{number:02d}"), spec={"needle": f"needle-{number:03d}"})
        yield sea


@pytest.fixture
async def reader(sea: Archipelago) -> Member:
    """A reader that has everything, with a complete generation."""
    reader = await sea.reader()
    await reader.until(lambda view: len(names(view)) == 30)
    await eventually(lambda: mark(reader).mark is not None)
    return reader


def mark(member: Member) -> ReplicaProgress:
    data = member.store.get_mark("replication.root")
    return msgspec.json.decode(data, type=ReplicaProgress) if data else ReplicaProgress()


def standing(member: Member) -> set[str]:
    with member.store.snapshot() as snapshot:
        return {key.name for key, _ in snapshot.revisions(Scope(API_EXPORTS))}


async def completed(reader: Member, generation: int) -> None:
    """Return when a generation above this one is complete."""
    await eventually(lambda: mark(reader).generation > generation and mark(reader).mark is not None, 30.0)


async def silent(reader: Member) -> None:
    """Return when the reader has read all of root's stream."""
    follower = reader.follower
    assert follower is not None
    await eventually(lambda: "root" in follower.consumers and follower.consumers["root"].behind_s == 0, 30.0)


async def caught_up(sea: Archipelago, reader: Member) -> None:
    """Return when the reader holds the same as root."""
    root = sea.member("root")
    await reader.until(lambda view: names(view) == standing(root))


async def test_rows_stay_while_nats_is_away_and_follow_when_it_is_back(sea: Archipelago, reader: Member) -> None:
    root = sea.member("root")
    await sea.nats.stop()
    await root.put(export("late"))
    await root.delete(export("e00"))
    assert reader.replica(export("e05")) is not None
    consumer = reader.follower.consumers["root"] if reader.follower else None
    assert consumer is not None
    await eventually(lambda: consumer.behind_s > 0)
    await sea.nats.start()
    await caught_up(sea, reader)
    await eventually(lambda: consumer.behind_s == 0)
    assert mark(reader).generation == 1, "nothing had to be read again"


@pytest.mark.long
async def test_killed_servers_lose_nothing(sea: Archipelago, reader: Member) -> None:
    root = sea.member("root")
    for turn in range(3):
        await root.put(export(f"turn-{turn}"))
        await sea.nats.kill()
        await root.delete(export(f"e{turn:02d}"))
        await caught_up(sea, reader)


async def test_a_deleted_store_takes_nothing_away(sea: Archipelago, reader: Member) -> None:
    root, watched = sea.member("root"), Watched(reader)
    await sea.nats.stop()
    sea.nats.delete_store()
    await root.delete(export("e00"))
    await root.put(export("late"))
    await sea.nats.start()
    await reader.until(lambda view: "late" in names(view) and "e00" not in names(view))
    await caught_up(sea, reader)
    await eventually(lambda: mark(reader).mark is not None)
    assert await watched.end() >= 29
    assert mark(reader).generation > 1


async def test_an_empty_stream_is_not_taken_for_an_empty_shard(sea: Archipelago, reader: Member) -> None:
    """The server restarts empty, and root is not running to fill it."""
    root, watched = sea.member("root"), Watched(reader)
    await root.publish_no_more()
    connection = await Connection.open(ALMIGHTY.access(sea.nats.server.address), "test")
    await connection.api(f"STREAM.PURGE.{STATE}")
    await reader.reopen()
    # As after a store that was lost: the mark is none of this stream's.
    kept = mark(reader)
    reader.store.set_mark("replication.root", msgspec.json.encode(msgspec.structs.replace(kept, mark=None)))
    await watched.end()
    watched = Watched(reader)
    await reader.follow()
    await eventually(lambda: mark(reader).generation > kept.generation)
    await silent(reader)
    assert len(standing(root)) == 30
    with reader.store.snapshot() as snapshot:
        assert len(names(snapshot)) == 30
    await root.delete(export("e01"))
    root.publish()
    await reader.until(lambda view: "e01" not in names(view))
    assert await watched.end() >= 29
    await connection.close()


@pytest.mark.long
async def test_a_purged_stream_is_filled_again_and_nothing_is_missed_meanwhile(
    sea: Archipelago, reader: Member
) -> None:
    root, watched = sea.member("root"), Watched(reader)
    assert root.publishing is not None
    for turn in range(3):
        before = mark(reader).generation
        root.publishing.publisher.state.rebuild("a test asks")
        await root.put(export(f"turn-{turn}"))
        await completed(reader, before)
        await caught_up(sea, reader)
    assert await watched.end() >= 30


@pytest.mark.long
async def test_an_older_copy_of_the_store_takes_nothing_back(sea: Archipelago, reader: Member) -> None:
    """The server starts with an older store, which lacks the latest messages."""
    root = sea.member("root")
    await sea.nats.stop()
    copy = sea.nats.keep_store()
    await sea.nats.start()
    await root.put(export("late"))
    await root.put(export("e00"), spec={"newer": True})
    await reader.until(lambda view: len(names(view)) == 31 and b"newer" in value(view, "e00"))
    watched = Watched(reader)
    await sea.nats.stop()
    await root.publish_no_more()
    sea.nats.bring_back(copy)
    await sea.nats.start()
    await eventually(lambda: mark(reader).generation >= 2)
    await silent(reader)
    assert b"newer" in reader.value(export("e00"))
    root.publish()
    await root.put(export("last"))
    await reader.until(lambda view: len(names(view)) == 32)
    await eventually(lambda: mark(reader).mark is not None)
    assert await watched.end() >= 31
    assert b"newer" in reader.value(export("e00"))
    assert "late" in standing(root)


@pytest.mark.long
async def test_a_restored_shard_is_believed_though_it_counts_from_earlier(sea: Archipelago, reader: Member) -> None:
    root = sea.member("root")
    backup = await root.keep_store()
    root.publish()
    before = mark(reader).lineage or (mark(reader).mark or pytest.fail("no mark")).lineage
    await root.put(export("e00"), spec={"lost": True})
    await root.put(export("lost"))
    await reader.until(lambda view: "lost" in names(view) and b"lost" in value(view, "e00"))
    await root.restore(backup)
    root.publish()
    await reader.until(lambda view: "lost" not in names(view))
    await eventually(lambda: mark(reader).mark is not None)
    assert b'"lost"' not in reader.value(export("e00"))
    assert len(standing(root)) == 30
    assert mark(reader).lineage != before


@pytest.mark.long
async def test_a_mark_older_than_the_tombstones_is_followed_by_reading_everything(
    sea: Archipelago, reader: Member
) -> None:
    root = sea.member("root")
    await reader.reopen()
    kept = mark(reader)
    assert kept.mark is not None
    old = msgspec.structs.replace(kept, mark=msgspec.structs.replace(kept.mark, time_s=0.0))
    reader.store.set_mark("replication.root", msgspec.json.encode(old))
    await root.delete(export("e00"))
    assert root.publishing is not None
    await root.publishing.drained()
    # Its tombstone has expired.
    connection = await Connection.open(ALMIGHTY.access(sea.nats.server.address), "test")
    info = await connection.api(f"STREAM.INFO.{STATE}")
    await connection.api(f"STREAM.MSG.DELETE.{STATE}", {"seq": info["state"]["last_seq"]})
    await reader.follow()
    await reader.until(lambda view: "e00" not in names(view))
    assert mark(reader).generation >= 2
    await eventually(lambda: reader.changes.of(export("e00"))[-1:] == ["DELETED"])
    await connection.close()


@pytest.mark.long
async def test_messages_again_late_and_out_of_order_end_in_what_stands(sea: Archipelago, reader: Member) -> None:
    """Copies of root's old messages arrive again after its newest."""
    root = sea.member("root")
    connection = await Connection.open(ALMIGHTY.access(sea.nats.server.address), "test")
    await root.put(export("e00"), spec={"turn": 1})
    assert root.publishing is not None
    await root.publishing.drained()
    info = await connection.api(f"STREAM.INFO.{STATE}")
    copies = [await message(connection, STATE, info["state"]["last_seq"] - back) for back in (0, 1, 5)]
    await root.put(export("e00"), spec={"turn": 2})
    await reader.until(lambda view: b'"turn":2' in value(view, "e00"))
    await root.publishing.drained()
    for subject, headers, data in copies:
        await connection.publish(subject, data, headers=headers)
    await root.put(export("late"))
    await reader.until(lambda view: "late" in names(view))
    await caught_up(sea, reader)
    assert b'"turn":2' in reader.value(export("e00"))
    await connection.close()


async def test_a_follower_that_ends_anywhere_goes_on_where_its_store_is(sea: Archipelago) -> None:
    root = sea.member("root")
    for turn in range(6):
        reader = await sea.reader()
        await root.put(export(f"turn-{turn}"))
        await root.delete(export(f"e{turn:02d}"))
        # Between two commits of its, wherever that is.
        await reader.store.replicated(turn * 3)
        await reader.reopen()
    reader = await sea.reader()
    await caught_up(sea, reader)
    await eventually(lambda: mark(reader).mark is not None)


@pytest.mark.long
async def test_damage_to_the_stream_is_healed_by_its_shard(sea: Archipelago, reader: Member) -> None:
    root = sea.member("root")
    assert root.publishing is not None
    await root.publishing.drained()
    await root.publish_no_more()
    await sea.nats.stop()
    sea.nats.flip_bit(STATE, b"needle-012")
    await sea.nats.start()
    late = sea.member("late")
    await late.follow()
    # A server that was stopped over it may give up what lies behind the damage, too.
    await late.until(lambda view: len(names(view)) >= 1)
    root.publish()
    await late.until(lambda view: len(names(view)) == 30)
    assert reader.replica(export("e12")) is not None


async def test_what_is_refused_is_counted_and_left_out(sea: Archipelago, reader: Member) -> None:
    root = sea.member("root")
    await root.put(cluster_key("Not a name"))
    await root.put(export("here"), metadata={"annotations": {"replication.atoll.dev/level": "region"}})
    await root.put(export("late"))
    await reader.until(lambda view: "late" in names(view))
    assert reader.replica(export("here")) is None
    metric = "atoll_replication_refused_rows_total"
    assert reader.metric(metric, shard="root", reason="level") == 1
    assert reader.metric(metric, shard="root", reason="malformed") == 1
    assert reader.metric("atoll_replication_generations", shard="root") >= 1


def value(view: Snapshot, name: str) -> bytes:
    record = view.replicas.get(export(name))
    return record.value if record is not None else b""


async def message(connection: Connection, stream: str, sequence: int) -> tuple[str, dict[str, str], bytes]:
    found = (await connection.api(f"STREAM.MSG.GET.{stream}", {"seq": sequence}))["message"]
    headers = parse_headers(base64.b64decode(found["hdrs"]))
    kept = {name: text for name, text in headers.items() if not name.startswith("Nats-")}
    return found["subject"], kept, base64.b64decode(found["data"])
