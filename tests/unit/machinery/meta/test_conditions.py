"""Conditions in the format of kcp and in that of Kubernetes."""

from __future__ import annotations

from atoll.machinery.meta.conditions import (
    ERROR,
    FALSE,
    INFO,
    TRUE,
    UNKNOWN,
    WARNING,
    Condition,
    find,
    is_true,
    remove,
    set_condition,
    set_status_condition,
    set_summary,
)
from atoll.machinery.meta.objects import Object

T1, T2 = "2026-01-01T00:00:00Z", "2026-01-01T00:00:05Z"


def kcp(*conditions: Condition, now: str = T1) -> list[Object]:
    result: list[Object] = []
    for condition in conditions:
        result = set_condition(result, condition, now)
    return result


def test_kcp_conditions_are_sorted_with_ready_first() -> None:
    found = kcp(Condition("Zed", TRUE), Condition("Alpha", TRUE), Condition("Ready", TRUE), Condition("Alike", TRUE))
    assert [condition["type"] for condition in found] == ["Ready", "Alike", "Alpha", "Zed"]


def test_kcp_conditions_omit_what_is_empty() -> None:
    assert kcp(Condition("A", TRUE)) == [{"type": "A", "status": "True", "lastTransitionTime": T1}]


def test_only_a_false_kcp_condition_has_a_severity() -> None:
    assert "severity" not in kcp(Condition("A", TRUE, severity=ERROR))[0]
    assert kcp(Condition("A", FALSE, severity=INFO))[0]["severity"] == INFO


def test_saying_the_same_again_keeps_the_time() -> None:
    said = Condition("A", FALSE, "Why", "because", WARNING)
    before = kcp(said)
    assert set_condition(before, said, T2) == before


def test_a_new_message_is_a_transition_of_a_kcp_condition() -> None:
    before = kcp(Condition("A", FALSE, "Why", "because"))
    after = set_condition(before, Condition("A", FALSE, "Why", "still"), T2)
    assert after[0]["lastTransitionTime"] == T2
    assert before[0]["lastTransitionTime"] == T1


def test_a_summary_is_true_when_all_parts_are() -> None:
    found = set_summary(kcp(Condition("A", TRUE), Condition("B", TRUE)), ["A", "B"], T1)
    assert is_true(found, "Ready")
    assert found[0]["type"] == "Ready"


def test_a_summary_tells_of_the_loudest_failure() -> None:
    parts = kcp(
        Condition("A", FALSE, "Quiet", "", INFO), Condition("B", FALSE, "Loud", "no", ERROR), Condition("C", UNKNOWN)
    )
    ready = find(set_summary(parts, ["A", "B", "C"], T2), "Ready")
    assert ready == {
        "type": "Ready",
        "status": "False",
        "reason": "Loud",
        "message": "no",
        "severity": "Error",
        "lastTransitionTime": T2,
    }


def test_a_summary_is_unknown_when_a_part_is_and_none_failed() -> None:
    parts = kcp(Condition("A", TRUE), Condition("B", UNKNOWN, "Wait"))
    ready = find(set_summary(parts, ["A", "B"], T1), "Ready")
    assert ready is not None
    assert (ready["status"], ready["reason"]) == ("Unknown", "Wait")


def test_a_summary_of_nothing_says_nothing() -> None:
    assert find(set_summary(kcp(Condition("X", TRUE)), ["A"], T1), "Ready") is None


def test_metav1_conditions_keep_their_place_and_their_time() -> None:
    first = set_status_condition([], Condition("B", FALSE, "Installing", "wait"), T1)
    both = set_status_condition(first, Condition("A", TRUE, "Fine", ""), T1)
    after = set_status_condition(both, Condition("B", FALSE, "Other", "still"), T2, observed_generation=3)
    assert [condition["type"] for condition in after] == ["B", "A"]
    assert after[0] == {
        "type": "B",
        "status": "False",
        "reason": "Other",
        "message": "still",
        "lastTransitionTime": T1,
        "observedGeneration": 3,
    }


def test_a_change_of_status_moves_a_metav1_condition_s_time() -> None:
    before = set_status_condition([], Condition("A", FALSE, "X"), T1)
    assert set_status_condition(before, Condition("A", TRUE, "X"), T2)[0]["lastTransitionTime"] == T2


def test_conditions_can_be_removed() -> None:
    assert remove(kcp(Condition("A", TRUE), Condition("B", TRUE)), "A") == kcp(Condition("B", TRUE))
