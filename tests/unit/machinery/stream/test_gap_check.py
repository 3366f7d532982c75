"""The checks of a consumer, event by event."""

from __future__ import annotations

import msgspec

from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.stream.consumer import gap_check as chain_module
from atoll.machinery.stream.consumer.gap_check import Gap, GapCheck, Verdict
from atoll.machinery.stream.events import Event, Operation, control, from_entry
from harness.models.shard_log import CONFIGMAPS, ShardLog, Source

A, B = (ObjectKey(CONFIGMAPS, cluster, "default", "m") for cluster in ("a", "b"))


def written(*keys: ObjectKey) -> list[Event]:
    log = ShardLog()
    return [from_entry("changes", log.identity, log.put(key)) for key in keys]


def judge(chain: GapCheck, *events: Event) -> list[Verdict | Gap]:
    return [chain.judge(event.subject, event) for event in events]


def test_a_whole_chain_is_applied() -> None:
    assert judge(GapCheck(None), *written(A, B, A, B)) == [Verdict.APPLY] * 4


def test_duplicates_are_dropped() -> None:
    one, two, three = written(A, A, A)
    assert judge(GapCheck(None), one, two, one, two, three) == [
        Verdict.APPLY,
        Verdict.APPLY,
        Verdict.DROP,
        Verdict.DROP,
        Verdict.APPLY,
    ]


def test_a_missing_change_is_a_gap_on_its_own_subject_only() -> None:
    one, _, other, three = written(A, A, B, A)
    assert judge(GapCheck(None), one, other, three) == [Verdict.APPLY, Verdict.APPLY, Gap.MISSING]


def test_the_first_event_of_a_subject_must_follow_what_was_listed() -> None:
    one, two, three = written(A, A, A)
    assert judge(GapCheck(two.revision), three) == [Verdict.APPLY]
    assert judge(GapCheck(one.revision), three) == [Gap.MISSING]
    assert judge(GapCheck(two.revision), one, two, three) == [Verdict.DROP, Verdict.DROP, Verdict.APPLY]


def test_what_is_forgotten_is_covered_by_the_floor(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(chain_module, "_MAX_SUBJECTS", 1)
    one, other, two = written(A, B, A)
    chain = GapCheck(None)
    assert judge(chain, one, other, one, two) == [Verdict.APPLY, Verdict.APPLY, Verdict.DROP, Verdict.APPLY]


def test_damage_a_new_lineage_and_a_resync_are_gaps() -> None:
    one, two = written(A, A)
    damaged = msgspec.structs.replace(two, payload=two.payload.replace(b"Thing", b"Thong"))
    assert judge(GapCheck(None), one, damaged) == [Verdict.APPLY, Gap.DAMAGED]
    assert judge(GapCheck(None), one, msgspec.structs.replace(two, lineage="b2")) == [Verdict.APPLY, Gap.LINEAGE]
    assert judge(GapCheck(None), control("changes", Operation.RESYNC, Source(), 1)) == [Gap.RESYNC]
    assert judge(GapCheck(None), control("changes", Operation.FENCE, Source(), 1)) == [Verdict.DROP]


def test_a_new_epoch_is_no_gap() -> None:
    one, two = written(A, A)
    assert judge(GapCheck(None), one, msgspec.structs.replace(two, epoch=two.epoch + 1)) == [Verdict.APPLY] * 2
