"""The checks of a consumer, event by event."""

from __future__ import annotations

import msgspec
import pytest

from atoll.events import gap_check
from atoll.events.gap_check import EventAction, GapCheck, HintCheck
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.stream.consumer.gaps import Gap
from atoll.machinery.stream.events import Event, Operation
from atoll.machinery.stream.publisher.log_events import control, from_entry
from harness.models.shard_log import CONFIGMAPS, ShardLog, Source

A, B = (ObjectKey(CONFIGMAPS, cluster, "default", "m") for cluster in ("a", "b"))


def written(*keys: ObjectKey) -> list[Event]:
    log = ShardLog()
    return [from_entry("changes", log.identity, log.put(key)) for key in keys]


def actions(check: GapCheck, *events: Event) -> list[EventAction | Gap]:
    return [check.check(event.subject, event) for event in events]


def test_a_whole_chain_is_applied() -> None:
    assert actions(GapCheck(None), *written(A, B, A, B)) == [EventAction.APPLY] * 4


def test_duplicates_are_dropped() -> None:
    one, two, three = written(A, A, A)
    assert actions(GapCheck(None), one, two, one, two, three) == [
        EventAction.APPLY,
        EventAction.APPLY,
        EventAction.DROP,
        EventAction.DROP,
        EventAction.APPLY,
    ]


def test_a_missing_change_is_a_gap_on_its_own_subject_only() -> None:
    one, _, other, three = written(A, A, B, A)
    assert actions(GapCheck(None), one, other, three) == [EventAction.APPLY, EventAction.APPLY, Gap.MISSING]


@pytest.mark.parametrize("kind", [GapCheck, HintCheck])
def test_a_missing_change_of_the_same_moment_is_a_gap(kind: type[GapCheck]) -> None:
    """What is written at once has revisions that differ by one."""
    one, three = written(A, A)
    three = msgspec.structs.replace(three, previous=one.revision + 1)
    assert actions(kind(None), one, three) == [EventAction.APPLY, Gap.MISSING]


def test_the_first_event_of_a_subject_must_follow_what_was_listed() -> None:
    one, two, three = written(A, A, A)
    assert actions(GapCheck(two.revision), three) == [EventAction.APPLY]
    assert actions(GapCheck(one.revision), three) == [Gap.MISSING]
    assert actions(GapCheck(two.revision), one, two, three) == [EventAction.DROP, EventAction.DROP, EventAction.APPLY]


def test_what_is_forgotten_is_covered_by_the_floor(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(gap_check, "_MAX_SUBJECTS", 1)
    one, other, two = written(A, B, A)
    check = GapCheck(None)
    assert actions(check, one, other, one, two) == [
        EventAction.APPLY,
        EventAction.APPLY,
        EventAction.DROP,
        EventAction.APPLY,
    ]


def test_damage_a_new_lineage_and_a_resync_are_gaps() -> None:
    one, two = written(A, A)
    damaged = msgspec.structs.replace(two, payload=two.payload.replace(b"Thing", b"Thong"))
    assert actions(GapCheck(None), one, damaged) == [EventAction.APPLY, Gap.DAMAGED]
    assert actions(GapCheck(None), one, msgspec.structs.replace(two, lineage="b2")) == [EventAction.APPLY, Gap.LINEAGE]
    assert actions(GapCheck(None), control("changes", Operation.RESYNC, Source(), 1)) == [Gap.RESYNC]
    assert actions(GapCheck(None), control("changes", Operation.FENCE, Source(), 1)) == [EventAction.DROP]


def test_a_new_epoch_is_no_gap() -> None:
    one, two = written(A, A)
    assert actions(GapCheck(None), one, msgspec.structs.replace(two, epoch=two.epoch + 1)) == [EventAction.APPLY] * 2


def without_payload(event: Event, **claimed: int) -> Event:
    return msgspec.structs.replace(event, payload=b"", **claimed)


def test_an_event_without_payload_is_damage_where_payloads_are_read_and_a_hint_where_they_are_not() -> None:
    one, two = map(without_payload, written(A, A))
    assert actions(GapCheck(None), one) == [Gap.DAMAGED]
    assert actions(HintCheck(None), one, two) == [EventAction.APPLY] * 2


def test_a_hint_with_a_made_up_revision_hides_no_later_one() -> None:
    one, two, three = map(without_payload, written(A, A, A))
    forged = without_payload(one, revision=three.revision + 1000)
    assert actions(HintCheck(None), one, forged, two, three) == [EventAction.APPLY] * 4


def test_a_missing_hint_is_a_gap_unless_sequences_tell() -> None:
    one, _, three = map(without_payload, written(A, A, A))
    assert actions(HintCheck(None), one, three) == [EventAction.APPLY, Gap.MISSING]
    assert actions(HintCheck(one.revision), three) == [Gap.MISSING]
    assert actions(HintCheck(None, chained=False), one, three) == [EventAction.APPLY] * 2
