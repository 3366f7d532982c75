"""Subscribers of the stream while the log, the server and the publisher between them are killed, deleted and damaged.

One takes everything and is itself killed, one takes one cluster, one takes one identity; a plain nats-py program reads
the stream beside them. A kill alone makes no subscriber reread; a lost or damaged store makes all of them.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec
import pytest

from fault.faults.natsstore import delete_store, flip_bit, kill_server, server_pid, stopped_server
from fault.model.log import Stored, read, shard_store
from fault.mutants import MutantProcess
from fault.recorder.history import History, Outcome
from fault.traffic.fleet import Fleet
from fault.traffic.streamlog import STREAM, StreamMessage, matches, messages_of_log, read_plainly
from fault.traffic.subscriber import Round, Selection, rounds, subscribe
from fault.traffic.writers import Writer
from fault.validators.streams import stream_is_the_log, subscriber_has_the_truth
from fault.validators.violation import Stalled, StreamDiffers
from harness.seeds import seed_of_run
from harness.servers.nats import eventually
from harness.servers.shard_process import ShardProcess

WRITERS = 4
_PATHS = os.pathsep.join(str(Path(__file__).parents[3] / part) for part in ("services", "tests"))


class Killable:
    """A subscriber in a process of its own."""

    def __init__(self, root: Path, file: Path, selection: Selection) -> None:
        self._arguments = (str(root), str(file), "operator-1", selection.cluster, selection.identity)
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "fault.traffic.subscriber",
            *self._arguments,
            env={**os.environ, "PYTHONPATH": _PATHS},
            stderr=asyncio.subprocess.DEVNULL,
        )

    async def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


class Scene:
    """A shard with traffic, and its subscribers by name with their filters."""

    def __init__(self, shard: ShardProcess, directory: Path, seed: int) -> None:
        self.shard, self.directory, self.fleet, self.history = shard, directory, Fleet(shard), History(seed)
        self.selections: dict[str, Selection] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self.everything: Killable

    def file(self, name: str) -> Path:
        return self.directory / f"{name}.jsonl"

    async def open(self) -> None:
        await asyncio.to_thread(self.shard.start)
        await self.fleet.open()
        await eventually((self.shard.root / "stream.json").exists)
        for number in range(WRITERS):
            writer = Writer(number, self.fleet, self.history, random.Random(f"{self.history.seed} {number}"))
            self._tasks.append(asyncio.create_task(writer.run()))

    async def attach(self) -> None:
        """Start the three subscribers."""
        shard = self.shard.root
        self.selections = {
            "everything": Selection(),
            "cluster": Selection(cluster=self.fleet.clusters[0]),
            "identity": Selection(identity="core"),
        }
        self.everything = Killable(shard, self.file("everything"), self.selections["everything"])
        await self.everything.start()
        for number, name in ((2, "cluster"), (3, "identity")):
            work = subscribe(shard, self.file(name), f"operator-{number}", self.selections[name])
            self._tasks.append(asyncio.create_task(work))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.selections:
            await self.everything.kill()
        await self.fleet.close()
        await asyncio.to_thread(self.shard.kill)

    async def more(self, count: int = 150) -> None:
        """Let so many writes be acknowledged."""
        goal = self.history.acked + count
        await eventually(lambda: self.history.acked >= goal)

    async def restart_with(self, fault: str) -> None:
        """Stop the shard in order, change its NATS store, start it."""
        self.fleet.pause()
        await asyncio.to_thread(self.shard.stop)
        await self.fleet.api.http.close()
        if fault == "deleted":
            delete_store(self.shard.root)
        else:
            tags = [write.tag for write in self.history.writes if write.outcome is Outcome.ACKED and write.tag]
            flip_bit(self.shard.root, STREAM, f'"tag":"{tags[len(tags) // 2]}"'.encode())
        await self.fleet.restart()

    async def until_idle(self) -> tuple[Stored, list[StreamMessage], list[StreamMessage]]:
        """Stop the traffic; return the store, the messages that its log implies, and those of a plain program."""
        self.fleet.pause()
        await eventually(lambda: not self.fleet.writing)
        stored = await asyncio.to_thread(read, shard_store(self.shard.root))
        expected = messages_of_log(stored.logged)
        held = await read_plainly(self.shard.root, expected[-1].revision)
        return stored, expected, held

    async def received(self, name: str, expected: list[StreamMessage]) -> list[Round]:
        """A subscriber's rounds, once it has reached the end."""
        last = [one for one in expected if matches(self.selections[name].filters, one.subject)][-1].revision

        def arrived() -> bool:
            found = rounds(self.file(name))[-1]
            return max(found.revision, found.events[-1].revision if found.events else 0) >= last

        await eventually(arrived)
        return rounds(self.file(name))


@asynccontextmanager
async def scene(shard: ShardProcess, directory: Path, seed: int) -> AsyncIterator[Scene]:
    found = Scene(shard, directory, seed)
    try:
        await found.open()
        yield found
    finally:
        await found.close()


async def test_kills_between_log_and_subscribers_cost_nobody_an_event(tmp_path: Path) -> None:
    async with scene(ShardProcess(tmp_path), tmp_path, seed_of_run(41)) as one:
        await one.attach()
        await one.more()
        await one.everything.kill()
        await one.more()
        await one.everything.start()
        killed = kill_server(one.shard.root)
        await one.more()
        await eventually(lambda: server_pid(one.shard.root) not in {0, killed})
        await one.more()
        await one.fleet.kill()
        await one.fleet.restart()
        await one.more()
        stored, expected, held = await one.until_idle()
        assert stream_is_the_log(held, expected) == 0
        for name, selection in one.selections.items():
            received = await one.received(name, expected)
            subscriber_has_the_truth(received, selection.filters, expected, stored.log)
            assert [round.gap for round in received] == [""], f"{name} had to reread"


@pytest.mark.long
@pytest.mark.parametrize("fault", ["deleted", "flipped"])
async def test_a_lost_or_damaged_store_is_a_resync_and_then_the_truth(tmp_path: Path, fault: str) -> None:
    async with scene(ShardProcess(tmp_path), tmp_path, seed_of_run(42)) as one:
        await one.attach()
        await one.more()
        await one.restart_with(fault)
        await one.more()
        stored, expected, _ = await one.until_idle()
        for name, selection in one.selections.items():
            # The audit finds damage at its own pace.
            await eventually(partial(lambda name: len(rounds(one.file(name))) > 1, name))
            received = await one.received(name, expected)
            subscriber_has_the_truth(received, selection.filters, expected, stored.log)
        # Only now is the stream sure to be filled again.
        assert stream_is_the_log(await read_plainly(one.shard.root, expected[-1].revision), expected) > 0


@pytest.mark.long
async def test_a_publisher_that_forgets_where_it_was_is_found(tmp_path: Path) -> None:
    """The planted bug `lost_cursor`."""
    async with scene(MutantProcess(tmp_path, "lost_cursor"), tmp_path, seed_of_run(43)) as one:
        await one.more()
        # The kill comes while the stream has less than the log; else nothing would be lost.
        with stopped_server(one.shard.root):
            await one.more()
            await one.fleet.kill()
        await one.fleet.restart()
        await one.more()
        _, expected, held = await one.until_idle()
        with pytest.raises(StreamDiffers):
            stream_is_the_log(held, expected)


#: Changes that follow each other, and what all of them may take to arrive: four times the rest of a tired publisher.
CHANGES, ARRIVE_S = 10, 12.0


async def changes_arrive(shard: ShardProcess, directory: Path) -> None:
    """Make each change once the one before has arrived in the stream. Raises Stalled."""
    file, fleet = directory / "changes.jsonl", Fleet(shard)
    await asyncio.to_thread(shard.start)
    reading: asyncio.Task[None] | None = None
    try:
        await fleet.open(1)
        await eventually((shard.root / "stream.json").exists)
        reading = asyncio.create_task(subscribe(shard.root, file, "operator-1", Selection()))
        await one_arrives(fleet, file, "first", 60.0)
        try:
            async with asyncio.timeout(ARRIVE_S):
                for number in range(CHANGES):
                    await one_arrives(fleet, file, f"change-{number}", ARRIVE_S)
        except (TimeoutError, AssertionError) as error:
            raise Stalled(f"{CHANGES} changes took more than {ARRIVE_S} s to arrive") from error
    finally:
        if reading is not None:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        await fleet.close()
        await asyncio.to_thread(shard.kill)


async def one_arrives(fleet: Fleet, file: Path, name: str, timeout_s: float) -> None:
    path = f"/clusters/{fleet.clusters[0]}/api/v1/namespaces/default/configmaps"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    answer = await fleet.api.ask("POST", path, msgspec.json.encode(body), "application/json")
    assert answer.status == 201, answer.body
    revision = int(msgspec.json.decode(answer.body)["metadata"]["resourceVersion"])

    def has_arrived() -> bool:
        found = rounds(file)[-1] if file.exists() and file.stat().st_size else None
        return found is not None and any(event.revision >= revision for event in found.events)

    await eventually(has_arrived, timeout_s)


async def test_changes_arrive_one_after_the_other(tmp_path: Path) -> None:
    await changes_arrive(ShardProcess(tmp_path), tmp_path)


@pytest.mark.long
async def test_a_publisher_that_rests_is_found(tmp_path: Path) -> None:
    with pytest.raises(Stalled):
        await changes_arrive(MutantProcess(tmp_path, "tired_publisher"), tmp_path)
