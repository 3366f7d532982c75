"""Foreign messages in a shard's streams: the publisher counts them, and continues after its cursor."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.process.ed25519 import SecretKey
from atoll.machinery.stream.connection import Connection
from atoll.machinery.stream.event_keys import SigningKey, by_id, new_key
from atoll.machinery.stream.events import Operation
from atoll.machinery.stream.publisher.log_events import control
from atoll.machinery.stream.signatures import SignatureState, VerifiedRoots, verify
from atoll.machinery.stream.subjects import KINDS, control_subject, stream_name
from harness.data.event_keys import PUBLIC
from harness.models.forged_events import STRANGER, Forged, forged, forgeries, inject, stored
from harness.models.shard_log import CONFIGMAPS, ShardLog
from harness.servers.in_process.publisher import QUICK, Running, publishing, read_events
from harness.servers.nats import NatsServer, eventually

PATIENCE_S = 60.0


def write(log: ShardLog, count: int) -> None:
    for _ in range(count):
        log.put(ObjectKey(CONFIGMAPS, "c1", "default", f"m{len(log.entries)}"))


async def held(nats: NatsServer, log: ShardLog, kind: str = "changes") -> list[int]:
    """Revisions of the shard's own objects in a stream."""
    events = [event for event in await read_events(nats, kind) if event is not None and event.key is not None]
    roots, keys = VerifiedRoots(), by_id(PUBLIC)
    return [event.revision for event in events if verify(keys, event, event.signature, roots) is SignatureState.GENUINE]


async def last_sequence(connection: Connection, kind: str) -> int:
    return int((await connection.api(f"STREAM.INFO.{stream_name(kind, 'root')}"))["state"]["last_seq"])


@asynccontextmanager
async def at_work(tmp_path: Path, log: ShardLog) -> AsyncIterator[tuple[NatsServer, Running, Connection]]:
    """A publisher with published messages, and an administrator's connection."""
    async with NatsServer(tmp_path) as nats, publishing(log, nats) as running:
        write(log, 5)
        await running.drained()
        connection = await nats.connect()
        yield nats, running, connection
        await connection.close()


@pytest.mark.long
async def test_no_forged_or_replayed_event_deposes_or_restarts_a_publisher(tmp_path: Path) -> None:
    log = ShardLog()
    async with at_work(tmp_path, log) as (nats, running, connection):
        other = ShardLog().put(ObjectKey(CONFIGMAPS, "c1", "default", "evil"))
        sent = 0
        for kind in KINDS:
            found: list[Forged] = list(forgeries(kind, log.identity, other, await last_sequence(connection, kind) + 1))
            if kind == "changes":
                found.append(await stored(connection, stream_name(kind, "root"), 2))
            for message in found:
                await inject(connection, message)
                write(log, 1)
                await running.drained()
                assert running.deposed == [], message.name
                sent += 1
        stats = running.publisher.stats
        assert [each.restarts for each in stats.values()] == [0, 0]
        assert stats["changes"].foreign_messages == sum(1 for _ in forgeries("changes", log.identity, other, 1)) + 1
        # The replay is one more foreign message.
        assert list(dict.fromkeys(await held(nats, log))) == [entry.revision for entry in log.entries]
        assert nats.server.restarts == 0


@pytest.mark.parametrize("kind", KINDS)
async def test_a_likely_epoch_of_another_key_deposes_nobody(tmp_path: Path, kind: str) -> None:
    """At the very place, of this very store: all but the signature is as a second writer would write it."""
    log = ShardLog()
    async with at_work(tmp_path, log) as (_, running, connection):
        next_writer = log.reopened().identity
        fence = control(kind, Operation.FENCE, next_writer, log.last() + 1)
        await inject(connection, forged("fence", fence, STRANGER, await last_sequence(connection, kind) + 1))
        log.put(ObjectKey(LOGICAL_CLUSTERS, "c1", "", "cluster"))
        await running.drained()
        assert running.deposed == []
        assert running.publisher.stats[kind].foreign_messages == 1


async def test_a_run_of_foreign_messages_does_not_have_the_log_published_again(tmp_path: Path) -> None:
    log = ShardLog()
    async with NatsServer(tmp_path) as nats:
        async with publishing(log, nats) as running:
            write(log, 20)
            await running.drained()
        connection = await nats.connect()
        for number in range(200):
            subject = control_subject("changes", "root")
            await inject(connection, Forged("junk", subject, {"Atoll": "x"}, b"%d" % number))
        end = await last_sequence(connection, "changes")
        async with publishing(log, nats) as running:
            write(log, 20)
            await running.drained()
            assert running.publisher.changes.stats.restarts == 0
            # A fence precedes the entries.
            assert await last_sequence(connection, "changes") == end + 1 + 20
        await connection.close()
        assert await held(nats, log) == [entry.revision for entry in log.entries]


@pytest.mark.long
async def test_events_reach_the_stream_among_a_thousand_foreign_messages_a_second(tmp_path: Path) -> None:
    log = ShardLog()
    async with at_work(tmp_path, log) as (nats, running, connection):
        stop = asyncio.Event()

        async def disturb() -> None:
            begin, sent = time.monotonic(), 0
            while not stop.is_set():
                while sent < (time.monotonic() - begin) * 1000:
                    await connection.publish(control_subject("changes", "root"), b"junk", headers={"Atoll": "x"})
                    sent += 1
                await asyncio.sleep(0.001)

        disturbing = asyncio.ensure_future(disturb())
        try:
            for _ in range(3):
                write(log, 1)
                assert await running.publisher.drain(PATIENCE_S), "nothing is published while others write"
        finally:
            stop.set()
            await disturbing
        assert running.publisher.changes.stats.restarts == 0
        assert nats.server.restarts == 0
        assert await held(nats, log) == [entry.revision for entry in log.entries]


async def test_foreign_messages_in_the_place_of_objects_are_repaired(tmp_path: Path) -> None:
    """A stream with one message a subject loses the shard's own to a foreign one; the audit publishes it again."""
    log = ShardLog()
    async with NatsServer(tmp_path) as nats:
        options = msgspec.structs.replace(QUICK, audit_interval_s=0.3)
        async with publishing(log, nats, options) as running:
            for name in ("c1", "c2"):
                log.put(ObjectKey(LOGICAL_CLUSTERS, name, "", "cluster"))
            await running.drained()
            connection = await nats.connect()
            first = await stored(connection, stream_name("state", "root"), 1)
            await inject(connection, first)
            await eventually(lambda: running.publisher.state.stats.restarts > 0)
            await running.drained()
            await connection.close()
            assert sorted(await held(nats, log, "state")) == [entry.revision for entry in log.entries]


async def test_a_new_key_signs_after_its_lead_and_the_state_is_written_again(tmp_path: Path) -> None:
    log, old = ShardLog(), new_key()
    async with NatsServer(tmp_path) as nats:
        access = msgspec.structs.replace(nats.access, signing_keys=(old,))
        running = Running(log, access, QUICK)
        log.put(ObjectKey(LOGICAL_CLUSTERS, "c1", "", "cluster"))
        write(log, 1)
        await running.drained()
        await running.stop()
        new = SigningKey(new_key().secret, int(time.time()) - 1)
        running = Running(log, msgspec.structs.replace(access, signing_keys=(old, new)), QUICK)
        write(log, 1)
        await running.drained()
        await running.stop()
        ids = {
            kind: [event.signature.key for event in await read_events(nats, kind) if event and event.signature]
            for kind in KINDS
        }
        ours = [SecretKey(key.secret).id for key in (old, new)]
        assert set(ids["state"]) == {ours[1]}
        # The last two are a fence and a change.
        assert ids["changes"] == [ours[0], ours[0], ours[1], ours[1]]
        assert [each.restarts for each in running.publisher.stats.values()] == [0, 1]


async def test_streams_of_a_version_without_signatures_are_written_again(tmp_path: Path) -> None:
    log = ShardLog()
    async with NatsServer(tmp_path) as nats:
        async with publishing(log, nats) as running:
            write(log, 3)
            await running.drained()
        for kind in KINDS:
            mark = msgspec.json.decode(log.get_mark(f"stream.{kind}") or b"{}")
            log.set_mark(f"stream.{kind}", msgspec.json.encode({**mark, "key": ""}))
        async with publishing(log, nats) as running:
            await eventually(lambda: [each.restarts for each in running.publisher.stats.values()] == [1, 1])
            await running.drained()
        events = await read_events(nats, "changes")
        assert [event.operation for event in events if event and event.key is None] == [Operation.RESYNC]
        assert await held(nats, log) == [entry.revision for entry in log.entries]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_damaged_end_is_told_from_a_busy_one(tmp_path: Path, kind: str) -> None:
    """Sequences of foreign messages are no reason to restart the server."""
    log = ShardLog()
    async with at_work(tmp_path, log) as (nats, running, connection):
        for _ in range(8):
            await connection.publish(control_subject(kind, "root"), b"junk", headers={"Atoll": "x"})
            write(log, 1)
            await running.drained()
        assert nats.server.restarts == 0
        assert running.publisher.stats[kind].restarts == 0
