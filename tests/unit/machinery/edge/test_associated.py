"""Rules of associated objects and their states: what is refused, what is counted, what is left out."""

from __future__ import annotations

import random
from typing import Any

import pytest

from atoll.machinery.edge.associated import AssociatedQuery, field_values, query_of, query_row
from atoll.machinery.edge.associated_states import (
    MAX_COUNTS,
    Observed,
    associated_state,
    content_of,
    decoded,
    since_of,
    state_key,
    subject_of,
)
from atoll.machinery.edge.names import SOURCES, ObjectRef
from atoll.machinery.edge.summaries.collectors import InvalidCollector, collector_of
from atoll.machinery.edge.syncerconfigs import specs_of
from atoll.machinery.edge.syncset import sync_set
from atoll.machinery.meta.objects import Object

WEB = ObjectRef("apps", "deployments", "shop", "web")
KINDS = {("", "pods"): ("v1", "Pod")}
RULE: Object = {"resource": "pods", "owners": [{"apiGroup": "apps", "resource": "replicasets"}]}


def pod(name: str, reason: str = "", phase: str = "Running", **fields: Any) -> Observed:
    return Observed(ObjectRef("", "pods", "shop", name), f"uid-{name}", phase, reason, reason.lower(), **fields)


def state(*pods: Observed, limit: int = 10, since: str = "2026-01-01T00:00:00Z") -> Object:
    return associated_state(WEB, pods, {each.ref: since for each in pods if each.reason}, KINDS, {("", "pods"): limit})


def test_a_state_counts_by_phase_and_reason_and_lists_what_is_broken_whatever_the_order() -> None:
    pods = [pod("a"), pod("b"), pod("c", "Waiting"), pod("d", "Phase", "Failed"), pod("e", "Waiting")]
    found = state(*pods, limit=2)
    for seed in range(10):
        random.Random(seed).shuffle(pods)
        assert state(*pods, limit=2) == found
    counts = {(each["phase"], each["reason"]): each["count"] for each in found["counts"]}
    assert counts == {("Running", ""): 2, ("Running", "Waiting"): 2, ("Failed", "Phase"): 1}
    assert [each["name"] for each in found["brokenObjects"]] == ["c", "d"]
    assert (found["total"], found["broken"], found["brokenTruncated"]) == (5, 3, 1)


def test_what_is_broken_for_too_short_a_time_counts_as_sound() -> None:
    found = associated_state(WEB, [pod("a", "Pending", "Pending")], {}, KINDS, {})
    assert found["counts"] == [{"group": "", "resource": "pods", "phase": "Pending", "reason": "", "count": 1}]
    assert found["brokenObjects"] == []


def test_a_state_is_read_as_it_was_written() -> None:
    found = state(pod("a"), pod("b", "Waiting", fields={"node": "n1"}))
    found["metadata"]["resourceVersion"] = "7"
    assert (found["metadata"]["namespace"], found["metadata"]["name"]) == state_key(WEB)
    assert subject_of(found) == WEB
    assert since_of(found) == {ObjectRef("", "pods", "shop", "b"): "2026-01-01T00:00:00Z"}
    read = decoded(found)
    (broken,) = read.broken
    assert (broken.kind, broken.reason, broken.message) == (("v1", "Pod"), "Waiting", "waiting (node=n1)")
    numbers = {"total": 2, "broken": 1, "phases": {"Running": 2}, "reasons": {"Waiting": 1}}
    assert read.variable() == {"pods": numbers}
    assert content_of(found) == content_of({**found, "metadata": {}})


def test_a_state_of_many_phases_has_the_largest_numbers() -> None:
    pods = [pod(f"{phase}-{number}", phase=f"p{phase}") for phase in range(60) for number in range(phase + 1)]
    found = state(*pods)
    assert len(found["counts"]) == MAX_COUNTS
    assert {each["count"] for each in found["counts"]} == set(range(11, 61))
    assert found["total"] == len(pods)


def test_what_a_collector_asks_reaches_the_syncer() -> None:
    spec = {"target": [{"apiGroup": "apps", "resources": ["deployments"]}], "associated": [RULE]}
    (part,) = specs_of({}, (), associated=[query_row("one", spec)])
    metadata = {"name": "the-one", "annotations": {"edge.kubestellar.io/whole": "1"}}
    (found,) = sync_set([{"metadata": metadata, "spec": part}]).associated
    assert found == query_of(query_row("one", spec))
    (rule,) = found.rules
    assert (rule.kind, rule.owners, rule.max_objects) == (("", "pods"), (("apps", "replicasets"),), 10)


@pytest.mark.parametrize(
    ("source", "copy", "is_concerned"),
    [
        ("one", {"annotations": {SOURCES: "one,two"}}, True),
        ("three", {"annotations": {SOURCES: "one,two"}}, False),
        ("", {}, True),
        ("one", {}, False),
    ],
)
def test_a_collector_is_about_the_objects_of_its_workspace(source: str, copy: Object, is_concerned: bool) -> None:
    found = query_of(query_row(source, {"associated": [RULE]}))
    assert isinstance(found, AssociatedQuery)
    assert found.concerns(WEB, {"metadata": copy}) is is_concerned


def test_rows_that_are_not_valid_ask_for_nothing() -> None:
    assert query_of({"objects": [{"resource": "x", "field": "no path"}]}) is None
    assert query_of({"target": [{}], "objects": [RULE]}) is None


@pytest.mark.parametrize(
    ("rule", "field"),
    [
        ({"resource": "pods", "field": "spec"}, "spec.associated[0].field"),
        ({"resource": "pods", "fields": [{"name": "a", "path": "$["}]}, "spec.associated[0].fields[0].path"),
        ({"resource": "pods", "label": "x" * 70_000}, "spec.associated"),
    ],
)
def test_a_collector_with_a_bad_rule_is_refused(rule: Object, field: str) -> None:
    with pytest.raises(InvalidCollector) as refused:
        collector_of({"metadata": {"name": "c"}, "spec": {"associated": [rule]}})
    assert [each.field for each in refused.value.errors] == [field]


def test_fields_are_texts_and_numbers_and_short() -> None:
    fields = (
        collector_of(
            {
                "metadata": {"name": "c"},
                "spec": {
                    "associated": [
                        {
                            "resource": "pods",
                            "fields": [
                                {"name": "node", "path": "$.spec.nodeName"},
                                {"name": "restarts", "path": "$.status.containerStatuses[*].restartCount"},
                                {"name": "ready", "path": "$.status.ready"},
                                {"name": "object", "path": "$.spec"},
                                {"name": "missing", "path": "$.spec.a.b"},
                            ],
                        }
                    ]
                },
            }
        )
        .associated[0]
        .fields
    )
    counts = [{"restartCount": 7}, {"restartCount": 0}]
    obj = {"spec": {"nodeName": "n" * 99}, "status": {"containerStatuses": counts, "ready": True}}
    assert field_values(obj, fields) == {"node": "n" * 63, "restarts": "7,0", "ready": "true"}
