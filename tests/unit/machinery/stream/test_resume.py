"""The position at which a publisher resumes, case by case."""

from __future__ import annotations

import msgspec
import pytest

from atoll.machinery.stream.events import Event, Operation, Phase
from atoll.machinery.stream.publisher.log_events import control
from atoll.machinery.stream.publisher.resume import Deposed, ResumePlan, StreamCursor, StreamTip, has_twin, resume_plan
from harness.models.shard_log import Source

ME = Source()
NOW_S = 1_800_000_000.0
CURSOR = StreamCursor(revision=500, sequence=50, written=480, created="t0", lineage=ME.lineage)


def last(revision: int, *, source: Source = ME, phase: Phase = Phase.NONE) -> Event:
    return control("changes", Operation.RESYNC, source, revision, phase)


def tip(event: Event | None, *, at: int = 50, end: int | None = None, created: str = "t0") -> StreamTip:
    return StreamTip(created, at if end is None else end, event, at if event else 0)


def after(plan: ResumePlan) -> tuple[int, bool]:
    return plan.after, plan.restart


@pytest.mark.parametrize(
    ("cursor", "stream", "expected"),
    [
        (None, StreamTip("t0", 0), (0, False)),
        (None, tip(last(480)), (480, False)),
        (None, StreamTip("t0", 50), (0, True)),
        (CURSOR, tip(last(480)), (500, False)),
        (CURSOR, tip(last(640), at=64), (640, False)),
        (CURSOR, tip(last(300), at=30), (300, False)),
        (CURSOR, tip(last(470)), (470, False)),
        (CURSOR, tip(last(450), at=49, end=50), (500, False)),
        (CURSOR, StreamTip("t0", 50), (500, False)),
        (CURSOR, StreamTip("t0", 51), (0, True)),
        (CURSOR, StreamTip("t0", 40), (0, True)),
        (CURSOR, StreamTip("t1", 0), (0, True)),
        (CURSOR, tip(last(480), created="t1"), (0, True)),
        (CURSOR, tip(last(480, source=msgspec.structs.replace(ME, lineage="b2", epoch=1))), (0, True)),
        (CURSOR, tip(last(480, source=msgspec.structs.replace(ME, shard_uid="other", epoch=1))), (0, True)),
        (msgspec.structs.replace(CURSOR, lineage="old"), tip(last(480)), (0, True)),
        (CURSOR, tip(last(480, phase=Phase.BEGIN)), (0, True)),
        (CURSOR, tip(last(480, phase=Phase.REFILL)), (0, True)),
        (CURSOR, tip(last(480, phase=Phase.END)), (500, False)),
        (CURSOR, StreamTip("t0", 51, None, 51, foreign=True), (500, False)),
        (CURSOR, StreamTip("t0", 49, None, 49, foreign=True), (0, True)),
    ],
    ids=[
        "first start",
        "cursor lost",
        "cursor and messages lost",
        "agree",
        "cursor behind",
        "stream lost its tail",
        "stream rewritten to the same length",
        "last message damaged",
        "all aged out",
        "written and gone",
        "all lost",
        "stream deleted",
        "stream deleted and written",
        "another lineage",
        "another shard",
        "restored log",
        "refill begun",
        "refill cut off",
        "refill done",
        "foreign message",
        "all lost, and foreign messages",
    ],
)
def test_publishing_goes_on_where_the_stream_ends(
    cursor: StreamCursor | None, stream: StreamTip, expected: tuple[int, bool]
) -> None:
    assert after(resume_plan(cursor, stream, ME, 0, NOW_S)) == expected


def test_what_compaction_took_is_said() -> None:
    assert after(resume_plan(CURSOR, tip(last(480)), ME, 500, NOW_S)) == (500, False)
    assert after(resume_plan(CURSOR, tip(last(480)), ME, 501, NOW_S)) == (501, True)
    assert after(resume_plan(None, StreamTip("t0", 0), ME, 7, NOW_S)) == (7, True)


def test_a_higher_epoch_ends_it_whatever_else_is_true() -> None:
    higher = msgspec.structs.replace(ME, epoch=ME.epoch + 1, lineage="b2")
    with pytest.raises(Deposed) as caught:
        resume_plan(CURSOR, tip(last(480, source=higher), created="t1"), ME, 900, NOW_S)
    assert (caught.value.own, caught.value.other) == (ME.epoch, ME.epoch + 1)


def test_an_epoch_ahead_of_the_clock_or_of_another_store_ends_nothing() -> None:
    ahead = msgspec.structs.replace(ME, epoch=int(NOW_S) + 301)
    assert after(resume_plan(CURSOR, tip(last(480, source=ahead)), ME, 0, NOW_S)) == (500, False)
    stranger = msgspec.structs.replace(ME, epoch=ME.epoch + 1, shard_uid="other")
    assert after(resume_plan(CURSOR, tip(last(480, source=stranger)), ME, 0, NOW_S)) == (0, True)


def test_a_message_of_our_epoch_behind_all_that_was_sent_is_a_twins() -> None:
    assert has_twin(tip(last(480), at=51), ME, 50)
    assert has_twin(tip(last(480), at=51), ME, 0)
    assert not has_twin(tip(last(480), at=50), ME, 50)
    assert not has_twin(StreamTip("t0", 51), ME, 50)
    for other in ({"epoch": ME.epoch - 1}, {"epoch": ME.epoch + 1}, {"shard_uid": "other"}):
        assert not has_twin(tip(last(480, source=msgspec.structs.replace(ME, **other)), at=51), ME, 50)
