"""The lock annotation: read, written, and brought in step with what there is."""

from __future__ import annotations

import pytest

from atoll.machinery.kcp.apis.locks import (
    Lock,
    expiries,
    in_step,
    lock_annotation,
    only_adds_locks,
    read_locks,
    with_locks,
    without_binding,
)
from atoll.machinery.meta.objects import Object, encode
from atoll.machinery.meta.wellknown import LOCKS

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"


def test_the_annotation_is_kcps() -> None:
    locks = {"sheriffs.wild.wild.west": Lock(c=True), "cowboys.wildwest.dev": Lock("cowboys")}
    text = '{"cowboys.wildwest.dev":{"n":"cowboys"},"sheriffs.wild.wild.west":{"c":true}}'
    assert lock_annotation(locks) == text
    cluster = with_locks({"metadata": {"annotations": {"kept": "yes"}}}, locks)
    assert cluster["metadata"]["annotations"] == {"kept": "yes", LOCKS: text}
    assert read_locks(cluster) == locks


@pytest.mark.parametrize(
    "annotations", [None, {}, {LOCKS: "{"}, {LOCKS: "[]"}], ids=["none", "empty", "broken", "list"]
)
def test_what_is_not_there_or_not_readable_is_none(annotations: dict[str, str] | None) -> None:
    assert read_locks({"metadata": {"annotations": annotations}}) is None


def test_locks_of_what_is_gone_fall_away_and_those_that_lack_are_added() -> None:
    locks = {"a.x": Lock("gone"), "b.x": Lock("here"), "c.x": Lock(c=True), "d.x": Lock(c=True, e=LATER)}
    wanted = in_step(locks, {"here": ["b.x", "e.x"], "second": ["e.x"]}, ["d.x", "f.x", "b.x"], NOW)
    assert wanted == {"b.x": Lock("here"), "d.x": Lock(c=True), "e.x": Lock("here"), "f.x": Lock(c=True)}


def test_a_definition_that_never_came_holds_its_lock_until_it_runs_out() -> None:
    locks = {"a.x": Lock(c=True, e=LATER)}
    assert in_step(locks, {}, [], NOW) == locks
    assert in_step(locks, {}, [], LATER) == {}
    assert expiries({**locks, "b.x": Lock(c=True), "c.x": Lock("n")}) == [LATER]


def test_a_binding_that_goes_takes_its_own() -> None:
    assert without_binding({"a.x": Lock("one"), "b.x": Lock("two"), "c.x": Lock(c=True)}, "one") == {
        "b.x": Lock("two"),
        "c.x": Lock(c=True),
    }


HELD = {"a.x": Lock("one"), "b.x": Lock(c=True, e=LATER)}
CLUSTER: Object = {"metadata": {"name": "cluster", "annotations": {"kept": "yes"}}, "status": {"phase": "Ready"}}


def stored(locks: dict[str, Lock], **changed: Object) -> bytes:
    return encode({**with_locks(CLUSTER, locks), **changed})[0]


@pytest.mark.parametrize(
    ("after", "adds_only"),
    [
        (stored(HELD), True),
        (stored({**HELD, "c.x": Lock("two")}), True),
        (stored({**HELD, "c.x": Lock("two")}, status={"phase": "Inactive"}), False),
        (stored({**HELD, "c.x": Lock("two")}, spec={"directlyDeletable": True}), False),
        (stored({"a.x": Lock("one")}), False),
        (stored({**HELD, "a.x": Lock("two")}), False),
        (stored({**HELD, "b.x": Lock(c=True, e=NOW)}), False),
        (encode({"metadata": {"annotations": {LOCKS: "{", "kept": "yes"}}, "status": {"phase": "Ready"}})[0], False),
        (encode(CLUSTER)[0], False),
    ],
    ids=["same", "more", "phase", "spec", "fewer", "other holder", "other expiry", "broken", "none"],
)
def test_a_write_that_only_adds_locks_frees_no_name(after: bytes, adds_only: bool) -> None:
    assert only_adds_locks(stored(HELD), after) is adds_only


@pytest.mark.parametrize("field", ["annotations", "deletionTimestamp", "finalizers"])
def test_other_metadata_counts_too(field: str) -> None:
    others: Object = {"annotations": {"kept": "no"}, "deletionTimestamp": NOW, "finalizers": ["a/b"]}
    cluster = {**CLUSTER, "metadata": {**CLUSTER["metadata"], field: others[field]}}
    assert not only_adds_locks(stored(HELD), encode(with_locks(cluster, HELD))[0])
