"""Projections of the state stream: complete, current, and swept of what is no longer there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.stream import contention
from atoll.machinery.stream.connection import ConsumerTaken
from atoll.machinery.stream.consumer.gaps import Gap
from atoll.machinery.stream.consumer.pull_consumer import PullConsumer
from atoll.machinery.stream.consumer.state_consumer import ConsumerOptions, StateConsumer, StateMark
from atoll.machinery.stream.definitions import definition
from atoll.machinery.stream.events import Event, Operation, Phase
from atoll.machinery.stream.publisher.log_events import control, from_entry
from atoll.machinery.stream.publisher.stream_admin import ensure_stream
from atoll.machinery.stream.subjects import all_subjects, stream_name
from harness.data.stored_headers import encode_headers
from harness.models.shard_log import LOGICAL_CLUSTERS, ShardLog
from harness.models.state_projection import StateRows
from harness.servers.in_process.publisher import publishing
from harness.servers.nats import NatsServer, eventually

SUBSCRIPTION = ConsumerOptions("root", all_subjects("state", "root"), "operator", batch=20)


def cluster(name: str) -> ObjectKey:
    return ObjectKey(LOGICAL_CLUSTERS, name, "", "cluster")


class Following:
    """A state consumer that updates a projection."""

    def __init__(self, nats: NatsServer, routes: StateRows) -> None:
        self.consumer = StateConsumer(nats.operator_access(), SUBSCRIPTION, routes)

    async def __aenter__(self) -> StateConsumer:
        self.task = asyncio.ensure_future(self.consumer.run())
        return self.consumer

    async def __aexit__(self, *exc: object) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def standing(log: ShardLog) -> dict[ObjectKey, bytes]:
    return {key: entry.value for key, entry in log.objects.items()}


async def test_it_reads_all_and_follows(tmp_path: Path) -> None:
    log, routes = ShardLog(), StateRows()
    async with NatsServer(tmp_path) as nats, publishing(log, nats) as running:
        for number in range(70):
            log.put(cluster(f"c{number}"))
        await running.drained()
        async with Following(nats, routes):
            await eventually(lambda: routes.sweeps == 1)
            assert routes.values == standing(log)
            log.put(cluster("c3"), phase="Ready")
            log.delete(cluster("c4"))
            log.put(cluster("new"))
            await eventually(lambda: routes.values == standing(log))
    assert routes.gaps == [Gap.NEW]


async def test_an_empty_stream_is_a_complete_generation(tmp_path: Path) -> None:
    log, routes = ShardLog(), StateRows()
    routes.rows[cluster("gone")] = (1, b"{}", 0)
    async with NatsServer(tmp_path) as nats, publishing(log, nats), Following(nats, routes):
        await eventually(lambda: routes.sweeps == 1)
        assert routes.rows == {}


async def test_it_goes_on_from_its_mark_without_rereading(tmp_path: Path) -> None:
    log, routes = ShardLog(), StateRows()
    async with NatsServer(tmp_path) as nats, publishing(log, nats):
        for turn in range(4):
            log.put(cluster("c1"), turn=str(turn))
            log.put(cluster(f"n{turn}"))
            async with Following(nats, routes):
                await eventually(lambda: routes.values == standing(log) and routes.kept is not None)
            log.put(cluster(f"n{turn}"), while_away=True)
        async with Following(nats, routes):
            await eventually(lambda: routes.values == standing(log))
    assert (routes.gaps, routes.sweeps) == ([Gap.NEW], 1)


@pytest.mark.long
@pytest.mark.parametrize(
    ("spoil", "gap"),
    [
        ({"created": "1999-01-01T00:00:00Z"}, Gap.STREAM),
        ({"sequence": 10_000}, Gap.REWOUND),
        ({"time_s": 0.0}, Gap.STALE),
        ({"written": 1}, Gap.REWRITTEN),
        ({"lineage": "other", "written": None}, Gap.LINEAGE),
    ],
)
async def test_a_mark_that_no_longer_holds_is_not_followed(tmp_path: Path, spoil: dict[str, object], gap: Gap) -> None:
    log, routes = ShardLog(), StateRows()
    async with NatsServer(tmp_path) as nats, publishing(log, nats):
        log.put(cluster("c1"))
        async with Following(nats, routes):
            await eventually(lambda: routes.values == standing(log) and routes.kept is not None)
        assert routes.kept is not None
        changes = {name: value for name, value in spoil.items() if value is not None}
        routes.kept = msgspec.structs.replace(routes.kept, **changes)
        routes.rows[cluster("stale")] = (1, b"{}", routes.generation)
        async with Following(nats, routes):
            await eventually(lambda: routes.sweeps == 2)
    assert routes.gaps == [Gap.NEW, gap]
    assert routes.values == standing(log)


async def test_a_crash_while_reading_all_reads_all_again(tmp_path: Path) -> None:
    class Crashing(StateRows):
        async def apply(self, events: list[Event], mark: StateMark | None) -> None:
            if len(self.rows) >= 40 and self.generation == 1:
                raise RuntimeError("crash")
            await super().apply(events, mark)

    log, routes = ShardLog(), Crashing()
    async with NatsServer(tmp_path) as nats, publishing(log, nats) as running:
        for number in range(100):
            log.put(cluster(f"c{number}"))
        await running.drained()
        with pytest.raises(RuntimeError, match="crash"):
            await StateConsumer(nats.operator_access(), SUBSCRIPTION, routes).run()
        assert routes.mark() is None
        async with Following(nats, routes):
            await eventually(lambda: routes.sweeps == 1)
            assert routes.values == standing(log)
    assert routes.gaps == [Gap.NEW, Gap.NEW]


@pytest.mark.long
async def test_nothing_is_swept_while_a_refill_is_open(tmp_path: Path) -> None:
    log, routes = ShardLog(), StateRows()
    routes.rows[cluster("c1")] = (1, b"{}", 0)
    source = log.identity
    begin = control("state", Operation.RESYNC, source, 1, Phase.BEGIN)
    end = control("state", Operation.RESYNC, source, 1, Phase.END)
    entry = log.put(cluster("c1"))
    refilled = msgspec.structs.replace(from_entry("state", source, entry), phase=Phase.REFILL)
    async with NatsServer(tmp_path) as nats:
        connection = await nats.connect()
        await ensure_stream(connection, definition("state", "root"))

        async def send(event: Event) -> None:
            await connection.client.jetstream().publish(event.subject, event.payload, headers=encode_headers(event))

        await send(begin)
        async with Following(nats, routes):
            await eventually(lambda: routes.generation == 1)
            for _ in range(3):  # each is longer than the wait in which silence would count as the end
                await asyncio.wait({asyncio.ensure_future(asyncio.sleep(0.15))})
                assert (routes.sweeps, list(routes.rows)) == (0, [cluster("c1")])
            await send(refilled)
            await send(end)
            await eventually(lambda: routes.sweeps == 1)
        await connection.close()
    assert routes.values == standing(log)


async def test_a_refill_is_followed_and_swept(tmp_path: Path) -> None:
    log, routes = ShardLog(), StateRows()
    async with NatsServer(tmp_path) as nats, publishing(log, nats) as running, Following(nats, routes):
        for number in range(60):
            log.put(cluster(f"c{number}"))
        await eventually(lambda: routes.values == standing(log) and routes.sweeps == 1)
        running.publisher.state.rebuild("a test asks")
        await eventually(lambda: routes.sweeps >= 2)
        log.put(cluster("after"))
        await eventually(lambda: routes.values == standing(log))


async def test_a_deleted_store_and_a_new_lineage_end_in_what_stands(tmp_path: Path) -> None:
    log, routes = ShardLog(), StateRows()
    async with NatsServer(tmp_path) as nats:
        log.put(cluster("kept"))
        restored = log.reopened(lineage="b2")
        async with Following(nats, routes):
            async with publishing(log, nats) as running:
                log.put(cluster("lost"))
                await eventually(lambda: routes.values == standing(log))
                await nats.stop()
                nats.delete_store()
                await nats.start()
                await eventually(lambda: running.publisher.state.stats.restarts == 1)
                await eventually(lambda: len(routes.gaps) > 1 and routes.values == standing(log))
            async with publishing(restored, nats):
                await eventually(lambda: routes.values == standing(restored))


class SelectedRows(StateRows):
    """A projection of the objects that are selected. `Selection`."""

    covered, broad = True, ()

    def __init__(self) -> None:
        super().__init__()
        self.keys, self.version = frozenset[ObjectKey](), 0

    def select(self, *keys: ObjectKey) -> None:
        self.keys, self.version = frozenset(keys), self.version + 1

    def wanted(self) -> set[ObjectKey]:
        return set(self.keys)

    def held(self) -> set[ObjectKey]:
        return set(self.rows)

    async def release(self, keys: Sequence[ObjectKey]) -> None:
        for key in keys:
            self.rows.pop(key, None)

    def read(self) -> None:
        """Nobody waits for it."""

    async def apply(self, events: list[Event], mark: StateMark | None) -> None:
        await super().apply([each for each in events if each.key in self.keys], mark)


async def test_of_a_state_that_ended_nothing_is_selected(tmp_path: Path) -> None:
    log, rows = ShardLog(), SelectedRows()
    log.put(cluster("kept"))
    restored = log.reopened(lineage="b2")
    log.put(cluster("gone"))
    options = msgspec.structs.replace(SUBSCRIPTION, selection=rows)
    async with NatsServer(tmp_path) as nats:
        consumer = StateConsumer(nats.operator_access(), options, rows)
        task = asyncio.create_task(consumer.run())
        async with publishing(log, nats):
            await eventually(lambda: rows.sweeps == 1)
        async with publishing(restored, nats):
            await eventually(lambda: rows.sweeps == 2)
            rows.select(cluster("kept"), cluster("gone"))
            consumer.selection_changed()
            await eventually(lambda: consumer.has_selected)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert rows.values == standing(restored)


async def test_a_message_lost_to_a_flipped_bit_comes_back(tmp_path: Path) -> None:
    log, routes = ShardLog(), StateRows()
    async with NatsServer(tmp_path) as nats:
        async with publishing(log, nats) as running:
            for number in range(30):
                log.put(cluster(f"c{number}"), note=f"needle-{number:03d}")
            await running.drained()
        await nats.stop()
        nats.flip_bit(stream_name("state", "root"), b"needle-012")
        await nats.start()
        async with Following(nats, routes):
            await eventually(lambda: routes.sweeps == 1)
            assert len(routes.rows) == 29
            async with publishing(log, nats):
                await eventually(lambda: routes.values == standing(log))


async def test_a_reading_of_which_others_had_a_part_is_not_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verify, calls = PullConsumer.verify, list[PullConsumer]()

    async def taken_once(reader: PullConsumer) -> None:
        await verify(reader)
        calls.append(reader)
        if len(calls) == 1:
            assert not routes.sweeps
            raise ConsumerTaken("another process reads with the consumer")

    monkeypatch.setattr(PullConsumer, "verify", taken_once)
    log, routes = ShardLog(), StateRows()
    async with NatsServer(tmp_path) as nats, publishing(log, nats):
        log.put(cluster("c1"))
        async with Following(nats, routes):
            await eventually(lambda: routes.sweeps == 1)
    assert (routes.gaps, len(calls)) == ([Gap.NEW, Gap.NEW], 2)


@pytest.mark.long
async def test_two_that_read_as_one_user_say_so_and_miss_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contention, "PATIENCE_S", 0.2)
    log, rows = ShardLog(), [StateRows(), StateRows()]
    async with NatsServer(tmp_path) as nats, publishing(log, nats) as running:
        for number in range(70):
            log.put(cluster(f"c{number}"))
        await running.drained()
        async with Following(nats, rows[0]) as one:
            async with Following(nats, rows[1]) as other:
                await eventually(lambda: one.is_contended and other.is_contended)
                log.put(cluster("late"))
                await eventually(lambda: [each.values for each in rows] == [standing(log)] * 2)
            log.put(cluster("later"))
            await eventually(lambda: rows[0].values == standing(log))
    for each in rows:
        assert each.sweeps, "it was whole"
