"""The worker seam at its edges: a writer that goes away, frames that are no frames, errors that keep their
facts.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

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
from atoll.machinery.storage.workers import frames, submit_server
from atoll.machinery.storage.workers.submit_server import SubmitServer
from harness.clients.raw_http import until
from harness.data.stores import CONFIGMAPS, key, put, store_options

KEY = key("a")
DONE_S = 20.0
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
async def test_an_error_comes_out_as_it_went_in(error: Exception) -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(frames.pack(frames.failure(9, error)))
    answer = await frames.read_answer(reader)
    assert isinstance(answer, frames.SubmitFailure)
    out = frames.error_of(answer)
    assert type(out) is type(error)
    assert vars(out) == vars(error)
    assert answer.id == 9


async def test_a_frame_is_as_long_as_both_ends_take_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = frames.failure(1, StoreFull("x" * 100))
    size = len(frames.pack(failed)) - 4
    monkeypatch.setattr(frames, "MAX_FRAME_BYTES", size)
    reader = asyncio.StreamReader()
    reader.feed_data(packed := frames.pack(failed))
    assert await frames.read_answer(reader) == failed
    monkeypatch.setattr(frames, "MAX_FRAME_BYTES", size - 1)
    with pytest.raises(frames.InvalidFrame, match=f"a frame of {size} bytes"):
        frames.pack(failed)
    reader.feed_data(packed)
    with pytest.raises(frames.InvalidFrame, match=f"a frame of {size} bytes"):
        await frames.read_answer(reader)


async def test_an_error_of_no_known_class_stays_an_error() -> None:
    out = frames.error_of(frames.failure(1, ValueError("why")))
    assert isinstance(out, frames.WriterError)
    assert "why" in str(out)


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", b"\0\0\0\1\xc1", b"\0\0\0\2{}"])
async def test_a_frame_that_is_too_long_or_malformed_is_refused(data: bytes) -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    with pytest.raises(frames.InvalidFrame):
        await frames.read_request(reader)


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
    assert isinstance(await frames.read_answer(reader), frames.Hello)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    assert await reader.read() == b""
    writer.close()
    reader, writer = await asyncio.open_unix_connection(str(socket))
    await frames.read_answer(reader)
    writer.write(frames.pack(frames.SubmitRequest(1, [put(KEY)], [])))
    answers = [await frames.read_answer(reader), await frames.read_answer(reader)]
    assert {type(answer) for answer in answers} == {frames.CommitNotice, frames.SubmitResults}
    assert store.hub.last > 0
    writer.close()


async def test_a_worker_submits_more_than_may_be_in_flight_at_once(
    served: tuple[LmdbStore, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submit_server, "_MAX_IN_FLIGHT", 2)
    reader, writer = await asyncio.open_unix_connection(str(served[1]))
    writer.write(b"".join(frames.pack(frames.SubmitRequest(n, [put(key(f"o{n}"))], [])) for n in range(5)))
    done: set[int] = set()
    async with asyncio.timeout(DONE_S):
        while len(done) < 5:
            answer = await frames.read_answer(reader)
            if isinstance(answer, frames.SubmitResults):
                done.add(answer.id)
    writer.close()


async def test_a_worker_that_leaves_in_the_middle_does_not_undo_its_submit(served: tuple[LmdbStore, Path]) -> None:
    store, socket = served
    reader, writer = await asyncio.open_unix_connection(str(socket))
    await frames.read_answer(reader)
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
