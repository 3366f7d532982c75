"""The state stream: one message an object, as long as the object is replicated."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from atoll.machinery.meta import wellknown
from atoll.machinery.meta.names import LOCAL, ObjectKey, ResourceType
from atoll.machinery.meta.types import MUTATING_WEBHOOKS
from atoll.machinery.stream.events import Event, Operation, Phase
from atoll.machinery.stream.publisher.publish_window import PublishWindow
from atoll.machinery.stream.publisher.quiet_entries import QuietEntries
from atoll.machinery.stream.publisher.state import StateWriter
from atoll.machinery.stream.subjects import state_subject, stream_name
from harness.data.stored_headers import parse_headers
from harness.models.shard_log import CLUSTER_ROLES, CONFIGMAPS, LOGICAL_CLUSTERS, Entry, ShardLog
from harness.servers.in_process.publisher import QUICK, publishing, read_stream
from harness.servers.nats import NatsServer, eventually

ROLE = ObjectKey(CLUSTER_ROLES, "c1", "", "reader")
REPLICATE = {wellknown.REPLICATE: "apis.kcp.io"}


def cluster(name: str) -> ObjectKey:
    return ObjectKey(LOGICAL_CLUSTERS, name, "", "cluster")


async def objects(nats: NatsServer) -> dict[ObjectKey, Event]:
    return {event.key: event for _, event in await read_stream(nats, "state") if event.key is not None}


def standing(log: ShardLog) -> dict[ObjectKey, bytes]:
    return {key: entry.value for key, entry in log.objects.items()}


async def test_it_holds_the_last_state_of_each_replicated_object_and_no_other(tmp_path: Path) -> None:
    log = ShardLog()
    async with NatsServer(tmp_path) as nats, publishing(log, nats) as running:
        for number in range(30):
            log.put(cluster(f"c{number % 4}"), phase=str(number))
        log.put(ObjectKey(CONFIGMAPS, "c1", "default", "m"))
        log.put(ROLE)
        log.put(cluster("system:shard"))
        log.put(ObjectKey(ResourceType("core.kcp.io", "logicalclusters", LOCAL), "c1", "", "cluster"))
        await running.drained()
        found = await objects(nats)
    assert {key: event.payload for key, event in found.items()} == {
        cluster(f"c{number}"): log.objects[cluster(f"c{number}")].value for number in range(4)
    }


async def test_an_object_that_becomes_and_ceases_to_be_replicated_comes_and_goes(tmp_path: Path) -> None:
    log = ShardLog()
    async with NatsServer(tmp_path) as nats, publishing(log, nats) as running:
        log.put(ROLE)
        log.put(ROLE, annotations=REPLICATE)
        await running.drained()
        assert (await objects(nats))[ROLE].operation is Operation.MODIFIED
        ceased = log.put(ROLE)
        await running.drained()
        gone = (await objects(nats))[ROLE]
        log.put(ROLE, data="still not")
        await running.drained()
        assert (await objects(nats))[ROLE] == gone
    assert (gone.operation, gone.revision, gone.payload, gone.intact) == (Operation.DELETED, ceased.revision, b"", True)


async def test_a_deleted_object_leaves_a_tombstone_that_expires_by_itself(tmp_path: Path) -> None:
    log = ShardLog()
    async with NatsServer(tmp_path) as nats, publishing(log, nats) as running:
        log.put(cluster("c1"))
        log.delete(cluster("c1"))
        await running.drained()
        connection = await nats.connect()
        answer = await connection.api(
            f"STREAM.MSG.GET.{stream_name('state', 'root')}", {"last_by_subj": state_subject("root", cluster("c1"))}
        )
        await connection.close()
    headers = parse_headers(base64.b64decode(answer["message"]["hdrs"]))
    assert headers["Nats-TTL"] == "604800s"
    assert headers["Atoll-Operation"] == "DELETED"


async def test_a_deleted_store_is_refilled_from_the_objects(tmp_path: Path) -> None:
    log = ShardLog()
    async with NatsServer(tmp_path) as nats, publishing(log, nats) as running:
        for number in range(450):
            log.put(cluster(f"c{number}"))
        log.delete(cluster("c7"))
        await running.drained()
        log.compact(log.last())
        await nats.stop()
        nats.delete_store()
        log.put(cluster("c8"), phase="while down")
        await nats.start()
        await running.drained()
        events = [event for _, event in await read_stream(nats, "state")]
    held = {event.key: event.payload for event in events if event.key is not None}
    assert held == standing(log)
    assert [event.phase for event in events if event.key is None] == [Phase.END]


class Busy(ShardLog):
    """Writes an object before each read of its objects, so that each refill meets a later write."""

    def standing(self, type: ResourceType, after: ObjectKey | None, limit: int) -> Sequence[Entry]:
        if after is None and type == LOGICAL_CLUSTERS:
            self.put(cluster("busy"))
        return super().standing(type, after, limit)


@pytest.mark.long
async def test_what_is_written_during_a_refill_comes_with_it_and_again_in_its_turn(tmp_path: Path) -> None:
    log = Busy()
    async with NatsServer(tmp_path) as nats, publishing(log, nats) as running:
        log.put(cluster("c1"))
        await running.drained()
        await nats.stop()
        nats.delete_store()
        await nats.start()
        await running.drained()
        await eventually(lambda: cluster("busy") in log.objects)
        log.put(cluster("c2"))
        await running.drained()
        events = [event for _, event in await read_stream(nats, "state")]
    held = {event.key: event.payload for event in events if event.key is not None}
    assert held == standing(log)


async def test_a_refill_that_was_cut_off_is_begun_again(tmp_path: Path) -> None:
    log = ShardLog()
    async with NatsServer(tmp_path) as nats:
        for number in range(20):
            log.put(cluster(f"c{number}"))
        async with publishing(log, nats) as running:
            await running.drained()
        connection = await nats.connect()
        headers = {
            "Atoll-Operation": "RESYNC",
            "Atoll-Shard-Uid": "6f1c",
            "Atoll-Lineage": "a1",
            "Atoll-Epoch": "1",
            "Atoll-Revision": "1",
            "Atoll-Previous": "0",
            "Atoll-Crc32c": "0",
            "Atoll-Phase": "begin",
        }
        await connection.client.jetstream().publish("atoll.state.root.-", b"", headers=headers)
        await connection.api(f"STREAM.PURGE.{stream_name('state', 'root')}", {"keep": 1})
        await connection.close()
        async with publishing(log, nats) as running:
            await eventually(lambda: running.publisher.state.stats.restarts == 1)
            await running.drained()
        held = await objects(nats)
    assert {key: event.payload for key, event in held.items()} == standing(log)


async def test_a_new_lineage_sweeps_what_the_lost_history_had_replicated(tmp_path: Path) -> None:
    log = ShardLog()
    async with NatsServer(tmp_path) as nats:
        log.put(cluster("kept"))
        restored = log.reopened(lineage="b2")
        async with publishing(log, nats) as running:
            log.put(cluster("lost"))
            await running.drained()
        async with publishing(restored, nats) as running:
            await running.drained()
        held = await objects(nats)
    assert list(held) == [cluster("kept")]


@pytest.mark.long
async def test_a_flipped_bit_is_found_and_the_stream_refilled(tmp_path: Path) -> None:
    log = ShardLog()
    async with NatsServer(tmp_path) as nats, publishing(log, nats) as running:
        for number in range(50):
            log.put(cluster(f"c{number}"), note=f"needle-{number:04d}")
        await running.drained()
        await nats.stop()
        nats.flip_bit(stream_name("state", "root"), b"needle-0020")
        await nats.start()
        await eventually(lambda: running.publisher.state.stats.restarts == 1)
        await running.drained()
        held = await objects(nats)
    assert {key: event.payload for key, event in held.items()} == standing(log)


async def test_an_object_whose_message_is_damaged_can_still_be_written(tmp_path: Path) -> None:
    log = ShardLog()
    async with NatsServer(tmp_path) as nats:
        async with publishing(log, nats) as running:
            for number in range(5):
                log.put(cluster(f"c{number}"), note=f"needle-{number:04d}")
            await running.drained()
        await nats.stop()
        nats.flip_bit(stream_name("state", "root"), b"needle-0002")
        await nats.start()
        for number in range(5):
            log.put(cluster(f"c{number}"), note="again")
        async with publishing(log, nats) as running:
            await running.drained()
        held = await objects(nats)
    assert {key: event.payload for key, event in held.items()} == standing(log)


async def test_a_stream_that_somebody_emptied_is_refilled_by_the_next_audit(tmp_path: Path) -> None:
    log, options = ShardLog(), msgspec.structs.replace(QUICK, audit_interval_s=0.05)
    async with NatsServer(tmp_path) as nats, publishing(log, nats, options) as running:
        for number in range(20):
            log.put(cluster(f"c{number}"))
        await running.drained()
        connection = await nats.connect()
        await connection.api(f"STREAM.PURGE.{stream_name('state', 'root')}")
        await connection.close()
        await eventually(lambda: running.publisher.state.stats.restarts == 1)
        await running.drained()
        held = await objects(nats)
    assert {key: event.payload for key, event in held.items()} == standing(log)


async def test_a_quiet_state_stream_survives_compaction_without_a_refill(tmp_path: Path) -> None:
    log = ShardLog()
    async with NatsServer(tmp_path) as nats:
        async with publishing(log, nats) as running:
            log.put(cluster("c1"))
            for number in range(100):
                log.put(ObjectKey(CONFIGMAPS, "c1", "default", f"m{number}"))
            await running.drained()
        log = log.reopened()
        log.compact(log.entries[50].revision)
        async with publishing(log, nats) as running:
            await eventually(lambda: running.publisher.state.stats.resumed == 1)
            await running.drained()
            assert running.publisher.state.stats.restarts == 0


async def test_a_stream_that_was_filled_by_another_policy_is_filled_again(tmp_path: Path) -> None:
    log = ShardLog()
    webhooks = ObjectKey(MUTATING_WEBHOOKS, "c1", "", "hooks")
    async with NatsServer(tmp_path) as nats:
        log.put(webhooks, annotations=REPLICATE)
        async with publishing(log, nats) as running:
            await running.drained()
        assert webhooks in await objects(nats)
        cursor = msgspec.json.decode(log.marks["stream.state"])
        # Another version of this program put every configuration into the stream.
        log = log.reopened()
        log.marks["stream.state"] = msgspec.json.encode({**cursor, "policy": ""})
        log.objects[webhooks] = msgspec.structs.replace(log.objects[webhooks], value=b"{}")
        async with publishing(log, nats) as running:
            await eventually(lambda: running.publisher.state.stats.resumed == 1)
            await running.drained()
            assert running.publisher.state.stats.restarts == 1
            assert webhooks not in await objects(nats)
        log = log.reopened()
        async with publishing(log, nats) as running:
            await running.drained()
            assert running.publisher.state.stats.restarts == 0


async def test_entries_that_it_does_not_hold_are_passed_over_batch_by_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, turn, turns, advance = ShardLog(), 0, list[int](), StateWriter._advance

    async def count() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    async def noted(self: StateWriter, window: PublishWindow, position: int) -> int:
        turns.append(turn)
        return await advance(self, window, position)

    monkeypatch.setattr(StateWriter, "_advance", noted)
    # As if the changes writer stood still: of what that has read nothing is left to pass over.
    monkeypatch.setattr(QuietEntries, "note", lambda *_: None)
    async with NatsServer(tmp_path) as nats:
        for number in range(3000):
            log.put(ObjectKey(CONFIGMAPS, "c1", "default", f"m{number}"))
        counting = asyncio.create_task(count())
        async with publishing(log, nats) as running:
            await running.drained()
        counting.cancel()
    assert len(turns) == len(set(turns)) >= 6
