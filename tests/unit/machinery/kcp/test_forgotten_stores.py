"""Records of stores that were struck off."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.machinery.kcp.sharding import forgotten_stores
from atoll.machinery.kcp.sharding.forgotten_stores import FORGOTTEN, ForgottenStore, is_lost, with_forgotten

ROOT: dict[str, Any] = {"metadata": {"name": "root", "annotations": {"own": "kept"}}}
EARLY, LATE = "2026-01-02T03:04:05Z", "2026-01-02T03:04:06Z"
RECORD = ForgottenStore("eu-1", "u1", EARLY)


def scheduled(at: str, condition: bool = True) -> dict[str, Any]:
    conditions = [{"type": "WorkspaceScheduled", "status": "True", "lastTransitionTime": at}]
    made = {"metadata": {"creationTimestamp": EARLY if condition else at}}
    return {**made, "status": {"conditions": conditions}} if condition else made


def test_a_record_is_added_once_and_beside_what_stands() -> None:
    once = with_forgotten(ROOT, RECORD)
    assert forgotten_stores.forgotten_stores(once) == (RECORD,)
    assert once["metadata"]["annotations"]["own"] == "kept"
    assert with_forgotten(once, ForgottenStore("other", "u1", LATE)) is once
    twice = with_forgotten(once, ForgottenStore("eu-1", "u2", LATE))
    assert [each.store for each in forgotten_stores.forgotten_stores(twice)] == ["u1", "u2"]


def test_records_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forgotten_stores, "MAX_FORGOTTEN", 1)
    with pytest.raises(ValueError, match="the most"):
        with_forgotten(with_forgotten(ROOT, RECORD), ForgottenStore("eu-2", "u2", LATE))


@pytest.mark.parametrize("text", ["", "{", "{}", '["u1"]', '[{"store":"u1"}]'])
def test_what_is_no_record_names_nothing(text: str) -> None:
    assert forgotten_stores.forgotten_stores({"metadata": {"annotations": {FORGOTTEN: text}}}) == ()


@pytest.mark.parametrize("condition", [True, False])
def test_workspaces_scheduled_before_are_lost_and_those_of_a_new_shard_of_that_name_are_not(condition: bool) -> None:
    assert is_lost((RECORD,), "eu-1", scheduled(EARLY, condition))
    assert not is_lost((RECORD,), "eu-1", scheduled(LATE, condition))
    assert not is_lost((RECORD,), "eu-2", scheduled(EARLY, condition))
    assert not is_lost((), "eu-1", scheduled(EARLY, condition))
