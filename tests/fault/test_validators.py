"""The validators themselves: each accepts a history in order and names the one fault made by hand in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from google_crc32c import value as crc32c

from fault.model.log import Entry, Image, Log, Stored, respliced
from fault.recorder.history import Event, History, Key, Outcome, Read, Scope, Session, Watch, Write, load
from fault.scenarios.campaign import validate
from fault.traffic.streamlog import CONTROL, StreamMessage
from fault.traffic.subscriber import Round
from fault.validators import durability, order, watches
from fault.validators import violation as named
from fault.validators.streams import stream_is_the_log, subscriber_has_the_truth

A, B = Key("c1", "default", "cold-a"), Key("c2", "default", "cold-b")


def entry(revision: int, operation: str, key: Key, tag: str, previous: int = 0, **more: str) -> Entry:
    """`more`: uid and colour."""
    image = Image(more.get("uid", f"uid-{key.name}"), tag, {"tag": tag}, {"colour": more.get("colour", "red")})
    value = b'{"metadata":{"resourceVersion":"%016d"},"tag":"%b"}' % (revision, tag.encode())
    return Entry(revision, operation, key, value, image, previous)


def log() -> Log:
    """Five commits: the third holds two entries."""
    return Log(
        [
            entry(100, "ADDED", A, "t1"),
            entry(200, "ADDED", B, "t2"),
            entry(300, "MODIFIED", A, "t3", 100, colour="blue"),
            entry(301, "MODIFIED", B, "t4", 200),
            entry(400, "DELETED", A, "t3", 300, colour="blue"),
            entry(500, "MODIFIED", B, "t5", 301),
        ],
        # 450 and 600 are of other resources.
        [100, 200, 300, 301, 400, 450, 500, 600],
    )


def acked(verb: str, key: Key, tag: str, revision: int, expected: int = -1) -> Write:
    uid = f"uid-{key.name}" if verb == "delete" else ""
    heard = 0 if verb == "delete" else revision
    return Write(
        verb,
        key,
        tag,
        called=revision - 10,
        expected=expected,
        outcome=Outcome.ACKED,
        returned=revision + 10,
        revision=heard,
        uid=uid,
        code=200,
    )


def history() -> History:
    writes = [
        acked("create", A, "t1", 100, 0),
        acked("create", B, "t2", 200, 0),
        acked("update", A, "t3", 300, 100),
        acked("patch", B, "t4", 301),
        acked("delete", A, "", 400, 300),
        Write("update", B, "t5", called=490),
    ]
    found = {one.revision: one for one in log().entries}
    reads = [
        Read(A, 120, 130, 100, found[100].checksum),
        Read(A, 320, 330, 300, found[300].checksum),
        Read(A, 420, 430, 0),
        Read(B, 320, 340, 301, found[301].checksum),
    ]
    return History(1, writes, reads)


def event_at(revision: int, type: str = "") -> Event:
    found = log().by_revision[revision]
    return Event(type or found.operation, revision, found.key, found.checksum)


def bookmark(revision: int) -> Event:
    return Event("BOOKMARK", revision, Key("", "", ""))


def watch(**scope: object) -> Watch:
    """A watch of everything: a state at 200, a session, a resumed one with bookmarks."""
    state = [event_at(100, "ADDED"), event_at(200, "ADDED")]
    first = Session(200, initial=True, state=state, events=[event_at(300), event_at(301)])
    second = Session(301, events=[bookmark(301), event_at(400), bookmark(450), event_at(500)])
    return Watch("watcher", Scope(**{"cluster": "*", **scope}), [first, second])  # type: ignore[arg-type]


def stored() -> Stored:
    table = {"a": (1, 1)}
    return Stored(log(), [(100, 1), (200, 2)], table, dict(table), [])


# --- what is in order passes


def test_a_history_in_order_passes() -> None:
    durability.store_is_sound(stored())
    durability.replay_is_the_table(stored())
    durability.log_only_grows(stored(), stored())
    durability.revisions_rise(history(), log().revisions)
    for check in OF_WRITES:
        check(history(), log())
    watches.all_promises([watch()], log())


def test_a_run_without_anything_passes() -> None:
    for check in OF_WRITES:
        check(History(1), Log([]))
    watches.all_promises([Watch("none", Scope("*"))], Log([]))


def test_a_selected_watch_sees_what_enters_and_leaves() -> None:
    red = Watch("red", Scope("*", label=("colour", "red")))
    before = log().by_revision[100]
    left = Event("DELETED", 300, A, crc32c(respliced(before.value, 100, 300)))
    red.sessions = [Session(0, events=[event_at(100), event_at(200), left, event_at(301), event_at(500)])]
    watches.all_promises([red], log())


def test_a_session_cut_anywhere_is_no_fault() -> None:
    events = watch().sessions[1].events
    for length in range(len(events) + 1):
        cut = watch()
        cut.sessions[1].events = events[:length]
        watches.all_promises([cut], log())


OF_WRITES: tuple[Callable[[History, Log], None], ...] = (
    durability.acknowledged_writes_are_logged,
    durability.unknown_writes_are_whole_or_absent,
    durability.nothing_else_is_logged,
    order.order_agrees_with_time,
    order.preconditions_held,
    order.changes_build_on_what_stood,
    order.reads_are_fresh,
)


# --- one fault each


def without(*revisions: int) -> Log:
    return Log([one for one in log().entries if one.revision not in revisions])


def with_entry(revision: int, **changes: object) -> Log:
    return Log([msgspec.structs.replace(one, **changes) if one.revision == revision else one for one in log().entries])


def with_write(index: int, **changes: object) -> History:
    changed = history()
    changed.writes[index] = msgspec.structs.replace(changed.writes[index], **changes)
    return changed


def with_read(read: Read) -> History:
    changed = history()
    changed.reads.append(read)
    return changed


Validation = Callable[[], None]


def write_faults() -> Iterator[tuple[str, type[named.Violation], Validation]]:
    other = Image("uid-cold-a", "t3", {"tag": "t3", "more": "x"}, {})
    lost, half = durability.acknowledged_writes_are_logged, durability.unknown_writes_are_whole_or_absent
    phantom, fresh = durability.nothing_else_is_logged, order.reads_are_fresh
    yield "a lost create", named.LostWrite, lambda: lost(history(), without(100))
    yield "a lost delete", named.LostWrite, lambda: lost(history(), without(400))
    yield "another's entry at the revision", named.LostWrite, lambda: lost(with_write(0, key=B), log())
    yield "another tag at the revision", named.LostWrite, lambda: lost(with_write(0, tag="t9"), log())
    content = {"tag": "t3"}
    yield "other content", named.LostWrite, lambda: lost(with_write(2, content=content), with_entry(300, image=other))
    yield "a create that modified", named.LostWrite, lambda: lost(history(), with_entry(100, operation="MODIFIED"))
    yield "the wrong revision inside", named.LostWrite, lambda: lost(history(), with_entry(100, value=b"{}"))
    twice = Log([*log().entries, entry(600, "MODIFIED", B, "t5", 500)])
    yield "an unknown write applied twice", named.HalfApplied, lambda: half(history(), twice)
    yield "an unknown write of another key", named.HalfApplied, lambda: half(with_write(5, key=A), log())
    yield "a refused write that was done", named.Phantom, lambda: phantom(with_write(0, outcome=Outcome.REFUSED), log())
    nobody = Log([*log().entries, entry(600, "MODIFIED", B, "t9", 500)])
    yield "a write by nobody", named.Phantom, lambda: phantom(history(), nobody)
    again = Log([*log().entries, entry(600, "MODIFIED", B, "t4", 500)])
    yield "an acknowledged write done twice", named.Phantom, lambda: phantom(history(), again)
    gone = Log([*log().entries, entry(600, "DELETED", B, "t5", 500)])
    yield "a delete by nobody", named.Phantom, lambda: phantom(history(), gone)
    late = with_write(3, called=50, returned=60)
    yield "order against time", named.OutOfOrder, lambda: order.order_agrees_with_time(late, log())
    yield (
        "a condition that did not hold",
        named.BrokenPrecondition,
        lambda: order.preconditions_held(with_write(2, expected=99), log()),
    )
    yield (
        "a create over an object",
        named.BrokenPrecondition,
        lambda: order.preconditions_held(with_write(3, expected=0), log()),
    )
    bare = Image("uid-cold-b", "t4", {"tag": "t4", "older": "x"}, {"colour": "red"})
    yield (
        "a patch of something older",
        named.LostUpdate,
        lambda: order.changes_build_on_what_stood(history(), with_entry(301, image=bare)),
    )
    yield (
        "a stale read",
        named.StaleRead,
        lambda: fresh(with_read(Read(A, 350, 360, 100, event_at(100).checksum)), log()),
    )
    yield "a read of what never stood", named.StaleRead, lambda: fresh(with_read(Read(A, 350, 360, 300, 7)), log())
    yield "a read that misses an object", named.StaleRead, lambda: fresh(with_read(Read(B, 350, 360, 0)), log())
    yield (
        "two writes with one revision",
        named.RevisionReused,
        lambda: durability.revisions_rise(with_write(0, revision=200), log().revisions),
    )
    yield "a revision that falls", named.RevisionReused, lambda: durability.revisions_rise(history(), [1, 3, 2])
    yield (
        "a problem of fsck",
        named.StoreDamaged,
        lambda: durability.store_is_sound(
            msgspec.structs.replace(stored(), problems=["objects 00: checksum mismatch"])
        ),
    )
    yield (
        "a table that is not the replay",
        named.ReplayDiffers,
        lambda: durability.replay_is_the_table(msgspec.structs.replace(stored(), table={})),
    )
    yield (
        "an entry rewritten",
        named.HistoryRewritten,
        lambda: durability.log_only_grows(stored(), msgspec.structs.replace(stored(), entries=[(100, 1), (200, 9)])),
    )
    yield (
        "a log cut short",
        named.HistoryRewritten,
        lambda: durability.log_only_grows(stored(), msgspec.structs.replace(stored(), entries=[(100, 1)])),
    )
    yield "half of a submit", named.TornSubmit, lambda: durability.submits_are_whole([["x", "y"]], {"x"})


def of_session(index: int, **changes: object) -> Watch:
    found = watch()
    found.sessions[index] = msgspec.structs.replace(found.sessions[index], **changes)
    return found


def watch_faults() -> Iterator[tuple[str, type[named.Violation], Validation]]:
    def of(promise: watches.Promise, faulty: Watch) -> Validation:
        return lambda: promise(faulty, log())

    yield "a fall", named.Unordered, of(watches.ordered, of_session(0, events=[event_at(301), event_at(300)]))
    repeated = of_session(1, events=[event_at(301), event_at(400)])
    yield "a repetition in a resumed session", named.Duplicate, of(watches.unique, repeated)
    twice = of_session(0, events=[event_at(300), event_at(300)])
    yield "a repetition in one session", named.Duplicate, of(watches.unique, twice)
    yield "a bookmark inside a commit", named.Torn, of(watches.atomic, of_session(1, events=[bookmark(300)]))
    yield "a state inside a commit", named.Torn, of(watches.atomic, of_session(0, start=300))
    yield "a gap", named.Missed, of(watches.reliable, of_session(1, events=[event_at(500)]))
    yield "a gap before a bookmark", named.Missed, of(watches.reliable, of_session(1, events=[bookmark(450)]))
    yield "the revision resumed from again", named.NotResumed, of(watches.resumable, repeated)
    yield "the next one skipped", named.NotResumed, of(watches.resumable, of_session(1, events=[event_at(500)]))
    refused = msgspec.structs.replace(watch(), refused=1)
    yield "a resumption refused", named.NotResumed, of(watches.resumable, refused)
    ahead = of_session(1, events=[bookmark(450), event_at(400)])
    yield "an event after its bookmark", named.EarlyBookmark, of(watches.bookmarkable, ahead)
    leap = of_session(1, events=[bookmark(600)])
    yield "a bookmark ahead of events", named.EarlyBookmark, of(watches.bookmarkable, leap)
    behind = of_session(0, start=300, events=[event_at(300)])
    yield "an event of the state again", named.EarlyBookmark, of(watches.bookmarkable, behind)
    invented = of_session(1, events=[bookmark(401)])
    yield "a bookmark one too high", named.EarlyBookmark, of(watches.marked, invented)
    yield "a state of no revision", named.EarlyBookmark, of(watches.marked, of_session(0, start=201))
    yield "silence before the end", named.Stalled, of(watches.caught_up, of_session(1, events=[event_at(400)]))
    yield "silence from the start", named.Stalled, of(watches.caught_up, Watch("silent", Scope("c1"), [Session(0)]))
    other_cluster = watch(cluster="c1")
    yield "another cluster's event", named.Unfiltered, of(watches.filtered, other_cluster)
    yield "another name", named.Unfiltered, of(watches.filtered, watch(name="cold-z"))
    yield "another label", named.Unfiltered, of(watches.filtered, watch(label=("colour", "green")))
    bent = of_session(1, events=[msgspec.structs.replace(event_at(400), checksum=7)])
    yield "other bytes", named.Unfaithful, of(watches.faithful, bent)
    wrong_type = of_session(0, events=[event_at(300, "ADDED")])
    yield "another kind of change", named.Unfaithful, of(watches.faithful, wrong_type)
    invented = of_session(1, events=[Event("ADDED", 450, A, 1)])
    yield "an event of nothing", named.Unfaithful, of(watches.faithful, invented)
    yield "a state that lacks one", named.Unfaithful, of(watches.faithful, of_session(0, state=[event_at(100)]))


ALL = ("atoll.changes.root.>",)
C1 = ("atoll.changes.root.*.*.*.c1", CONTROL)


def messages() -> list[StreamMessage]:
    """The messages that the log implies: two clusters in turn."""
    stem = "atoll.changes.root.core.core.configmaps.c"
    return [StreamMessage(f"{stem}{1 + number % 2}", "MODIFIED", 100 * number, 0, number) for number in range(1, 6)]


def stream_faults() -> Iterator[tuple[str, type[named.Violation], Validation]]:
    differs = named.StreamDiffers

    def of(*received: Round) -> Validation:
        return lambda: subscriber_has_the_truth(list(received), ALL, messages(), log())

    def holding(held: list[StreamMessage]) -> Validation:
        return lambda: void(stream_is_the_log(held, messages()))

    bent = msgspec.structs.replace(messages()[2], checksum=9)
    yield "a stream with a gap", differs, holding([*messages()[:2], *messages()[3:]])
    yield "a stream with a bent event", differs, holding([*messages()[:2], bent, *messages()[3:]])
    yield "a stream cut short", differs, holding(messages()[:4])
    yield "a subscriber with a gap", differs, of(Round(events=[*messages()[:2], *messages()[3:]]))
    yield "a subscriber told twice", differs, of(Round(events=[*messages()[:2], *messages()[1:]]))
    yield "a subscriber that lags for ever", differs, of(Round(events=messages()[:4]))
    yield ("a wrong reread", differs, of(Round(events=messages()[:2]), Round(300, "RESYNC", {}, messages()[3:])))
    state = {"c1/default/cold-a": 300, "c2/default/cold-b": 200}
    yield "a gap behind a reread", differs, of(Round(), Round(300, "RESYNC", state, messages()[4:]))


def void(_value: object) -> None:
    """Take a value and return nothing."""


def test_a_subscriber_in_order_passes() -> None:
    state = {"c1/default/cold-a": 300, "c2/default/cold-b": 200}
    subscriber_has_the_truth([Round(events=messages())], ALL, messages(), log())
    subscriber_has_the_truth([Round(events=[messages()[1], messages()[3]])], C1, messages(), log())
    rereading = [Round(events=messages()[:2]), Round(300, "RESYNC", state, messages()[3:])]
    subscriber_has_the_truth(rereading, ALL, messages(), log())
    resync = StreamMessage(CONTROL, "RESYNC", 0, 0, 0)
    assert stream_is_the_log([resync, resync, *messages()], messages()) == 2


FAULTS = [*write_faults(), *watch_faults(), *stream_faults()]


@pytest.mark.parametrize(("error", "validate"), [fault[1:] for fault in FAULTS], ids=[fault[0] for fault in FAULTS])
def test_a_fault_is_named(error: type[named.Violation], validate: Validation) -> None:
    with pytest.raises(error):
        validate()


def test_every_named_violation_has_a_fault_that_shows_it() -> None:
    elsewhere = {named.NotFenced, named.WrongAnswer, named.VoidRun, named.WrittenAgain, named.Violation}
    every = {value for value in vars(named).values() if isinstance(value, type) and issubclass(value, Exception)}
    assert {fault[1] for fault in FAULTS} == every - elsewhere


def test_a_run_with_too_little_traffic_is_void() -> None:
    slow = history()
    slow.watches = [watch()]
    with pytest.raises(named.VoidRun):
        validate(slow, stored())


def test_a_run_of_which_a_watcher_saw_nothing_is_void() -> None:
    blind = history()
    blind.watches = [watch(), Watch("blind", Scope("*"))]
    with pytest.raises(named.VoidRun):
        validate(blind, stored())


def test_a_saved_history_is_the_same_again(tmp_path: Path) -> None:
    kept = history()
    kept.watches = [watch()]
    kept.save(tmp_path / "history.json")
    assert load(tmp_path / "history.json") == kept
