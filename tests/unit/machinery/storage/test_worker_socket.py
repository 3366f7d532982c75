"""The worker seam at its edges: a writer that goes away, frames that are no frames, errors that keep their
facts.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from atoll.machinery.storage.contract import (
    Change,
    CorruptRecord,
    GateUnchanged,
    GuardFailed,
    ObjectExists,
    ObjectMissing,
    Operation,
    RevisionCompacted,
    RevisionConflict,
    Scope,
    StoreFull,
)
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from atoll.machinery.storage.watching.hub import Hub
from atoll.machinery.storage.workers import frame_protocol, frames, submit_server
from atoll.machinery.storage.workers.submit_server import SubmitServer
from harness.clients.raw_http import until
from harness.data.stores import CONFIGMAPS, key, put, store_options

KEY = key("a")
DONE_S = 20.0


def body(packed: bytes) -> memoryview:
    return memoryview(packed)[frames.LENGTH.size :]


async def answer(reader: asyncio.StreamReader) -> frames.Answer:
    """The next frame of the writer."""
    (size,) = frames.LENGTH.unpack(await reader.readexactly(frames.LENGTH.size))
    return frames.decode_answer(memoryview(await reader.readexactly(size)))


ERRORS = [
    ObjectExists(KEY, 7),
    ObjectMissing(KEY),
    RevisionConflict(KEY, 1, 2),
    GuardFailed(GateUnchanged("c", 3)),
    RevisionCompacted(4, 5),
    StoreFull("no room"),
    CorruptRecord(KEY, "checksum"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_comes_out_as_it_went_in(error: Exception) -> None:
    answer = frames.decode_answer(body(frames.pack(frames.News(5, 6, [], [frames.failure(9, error)]))))
    assert isinstance(answer, frames.News)
    (failed,) = answer.failures
    out = frames.error_of(failed)
    assert type(out) is type(error)
    assert vars(out) == vars(error)
    assert failed.id == 9


class Collecting(frame_protocol.FrameProtocol):
    """An end that keeps what arrives, and holds after each frame if told so."""

    def __init__(self, *, holds: bool = False) -> None:
        super().__init__()
        self.bodies: list[bytes] = []
        self.is_lost = False
        self._holds = holds

    def receive(self, body: memoryview) -> None:
        self.bodies.append(bytes(body))
        if self._holds:
            self.hold()

    def compose(self) -> list[bytes]:
        return []

    def lost(self) -> None:
        self.is_lost = True


def framed(*bodies: bytes) -> bytes:
    return b"".join(frames.LENGTH.pack(len(each)) + each for each in bodies)


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 100])
async def test_frames_are_split_wherever_reads_end(step: int) -> None:
    bodies = [b"a", b"", b"bcdef" * 3, b"g"]
    data, end = framed(*bodies), Collecting()
    for at in range(0, len(data), step):
        end.data_received(data[at : at + step])
    assert end.bodies == bodies


async def test_a_held_end_receives_nothing_until_it_is_released() -> None:
    end = Collecting(holds=True)
    data = framed(b"a", b"bc", b"def")
    end.data_received(data[:9])
    end.data_received(data[9:])
    assert end.bodies == [b"a"]
    for expected in (2, 3):
        end.release()
        await asyncio.sleep(0)
        assert len(end.bodies) == expected
    assert end.bodies == [b"a", b"bc", b"def"]


async def test_a_frame_is_as_long_as_both_ends_take_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = frames.News(1, 0, [], [frames.failure(1, StoreFull("x" * 100))])
    size = len(frames.pack(failed)) - 4
    monkeypatch.setattr(frames, "MAX_FRAME_BYTES", size)
    end = Collecting()
    end.data_received(packed := frames.pack(failed))
    assert [frames.decode_answer(memoryview(each)) for each in end.bodies] == [failed]
    monkeypatch.setattr(frames, "MAX_FRAME_BYTES", size - 1)
    with pytest.raises(frames.InvalidFrame, match=f"a frame of {size} bytes"):
        frames.pack(failed)
    with capture_logs() as logged:
        end.data_received(packed)
    assert len(end.bodies) == 1
    assert [each["reason"] for each in logged] == [f"a frame of {size} bytes"]


async def test_an_error_of_no_known_class_stays_an_error() -> None:
    out = frames.error_of(frames.failure(1, ValueError("why")))
    assert isinstance(out, frames.WriterError)
    assert "why" in str(out)


@pytest.mark.parametrize("data", [b"\xc1", b"{}"])
def test_a_malformed_frame_is_refused(data: bytes) -> None:
    with pytest.raises(frames.InvalidFrame):
        frames.decode_request(memoryview(data))


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[LmdbStore, Path]]:
    store = open_store(store_options(tmp_path))
    with tempfile.TemporaryDirectory() as home:
        socket = Path(home) / "s"
        server = SubmitServer(store, socket)
        await server.start()
        assert socket.stat().st_mode & 0o777 == 0o600
        yield store, socket
        await server.close()
    await store.close()


async def test_a_stranger_is_cut_off_and_others_are_served(served: tuple[LmdbStore, Path]) -> None:
    store, socket = served
    reader, writer = await asyncio.open_unix_connection(str(socket))
    assert isinstance(await answer(reader), frames.Hello)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    assert await reader.read() == b""
    writer.close()
    reader, writer = await asyncio.open_unix_connection(str(socket))
    await answer(reader)
    writer.write(frames.pack(frames.SubmitRequest(1, [put(KEY)], [])))
    assert await answer(reader) == frames.News(store.hub.last, 0, [(1, [store.hub.last])], [])
    writer.close()


async def test_submits_that_arrive_together_are_one_commit_and_one_answer(served: tuple[LmdbStore, Path]) -> None:
    store, socket = served
    reader, writer = await asyncio.open_unix_connection(str(socket))
    await answer(reader)
    commits = store.stats.commits
    requests = [frames.SubmitRequest(number, [put(key(f"m{number}"))], []) for number in range(20)]
    writer.write(b"".join(map(frames.pack, [*requests, frames.SubmitRequest(20, [put(key("m0"))], [])])))
    found = await answer(reader)
    assert isinstance(found, frames.News)
    assert [number for number, _ in found.results] == list(range(20))
    assert found.results[-1][1] == [found.last] == [store.hub.last]
    assert [(each.id, each.error) for each in found.failures] == [(20, "ObjectExists")]
    assert store.stats.commits == commits + 1
    writer.close()


async def test_a_submit_that_cannot_be_queued_is_answered(served: tuple[LmdbStore, Path]) -> None:
    _, socket = served
    reader, writer = await asyncio.open_unix_connection(str(socket))
    await answer(reader)
    writer.write(frames.pack(frames.SubmitRequest(1, [put(KEY), put(KEY)], [])))
    found = await answer(reader)
    assert isinstance(found, frames.News)
    assert [(each.id, each.error) for each in found.failures] == [(1, "ValueError")]
    writer.close()


async def test_a_worker_submits_more_than_may_be_in_flight_at_once(
    served: tuple[LmdbStore, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submit_server, "_MAX_IN_FLIGHT", 3)
    store, socket = served
    reader, writer = await asyncio.open_unix_connection(str(socket))
    await answer(reader)
    writer.write(b"".join(frames.pack(frames.SubmitRequest(number, [put(KEY)], [])) for number in range(50)))
    answered: list[int] = []
    async with asyncio.timeout(DONE_S):
        while len(answered) < 50:
            found = await answer(reader)
            assert isinstance(found, frames.News)
            numbers = [*(number for number, _ in found.results), *(each.id for each in found.failures)]
            assert len(numbers) <= 3
            answered.extend(numbers)
    assert sorted(answered) == list(range(50))
    assert store.stats.largest_batch <= 3
    writer.close()


async def test_a_worker_that_leaves_in_the_middle_does_not_undo_its_submit(served: tuple[LmdbStore, Path]) -> None:
    store, socket = served
    reader, writer = await asyncio.open_unix_connection(str(socket))
    await answer(reader)
    writer.write(frames.pack(frames.SubmitRequest(1, [put(KEY)], [])))
    await writer.drain()
    writer.close()
    await until(lambda: store.hub.last > 0)
    with store.snapshot() as snapshot:
        assert snapshot.get(KEY) is not None


class Woken:
    """A watcher that notes when it was woken."""

    def __init__(self) -> None:
        self.below: list[int] = []

    def wake(self, nothing_before: int) -> None:
        self.below.append(nothing_before)

    def mark(self, nothing_before: int) -> None:
        raise AssertionError("one watcher is no crowd")

    def nudge(self) -> None:
        raise AssertionError("one watcher is no crowd")


async def test_a_hub_that_skips_wakes_everybody_and_its_ring_starts_anew() -> None:
    hub, watcher = Hub(5, 1 << 20), Woken()
    hub.register(Scope(CONFIGMAPS, "c"), watcher)
    hub.publish([Change(6, Operation.ADDED, KEY, None, b"")], 6)
    waiting = asyncio.create_task(hub.wait_above(6))
    await asyncio.sleep(0)
    hub.skip(90)
    assert watcher.below == [6]
    assert hub.ring.floor == 90
    assert len(hub.ring) == 0
    assert await waiting == 90


async def test_the_writers_process_finds_shards_for_workers(tmp_path: Path) -> None:
    async def seek(cluster: str) -> list[str]:
        return [cluster, "east"]

    store = open_store(store_options(tmp_path))
    with tempfile.TemporaryDirectory() as home:
        socket = Path(home) / "s"
        server = SubmitServer(store, socket, seek)
        await server.start()
        reader, writer = await asyncio.open_unix_connection(str(socket))
        await answer(reader)
        writer.write(frames.pack(frames.SeekRequest(7, "a")) + frames.pack(frames.SeekRequest(8, "b")))
        found = [await answer(reader), await answer(reader)]
        assert found == [frames.SeekResult(7, ["a", "east"]), frames.SeekResult(8, ["b", "east"])]
        writer.close()
        await server.close()
    await store.close()


async def test_the_writers_process_answers_calls_of_workers_and_says_which_failed(tmp_path: Path) -> None:
    async def call(body: bytes) -> bytes:
        if body == b"bad":
            raise LookupError("nothing is known")
        return body.upper()

    store = open_store(store_options(tmp_path))
    with tempfile.TemporaryDirectory() as home:
        socket = Path(home) / "s"
        server = SubmitServer(store, socket, call=call)
        await server.start()
        reader, writer = await asyncio.open_unix_connection(str(socket))
        await answer(reader)
        writer.write(frames.pack(frames.CallRequest(7, b"a")))
        assert await answer(reader) == frames.CallResult(7, b"A")
        writer.write(frames.pack(frames.CallRequest(8, b"bad")))
        found = await answer(reader)
        assert isinstance(found, frames.News)
        assert [str(frames.error_of(each)) for each in found.failures] == ["LookupError: nothing is known"]
        writer.close()
        await server.close()
    await store.close()
