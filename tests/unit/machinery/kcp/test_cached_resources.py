"""What ClusterCachedResources and their slices say of themselves."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.machinery.kcp.apis import cachedresources
from atoll.machinery.kcp.apis.cachedresources import Resource, ResourceCount, SliceReferences
from atoll.machinery.meta.conditions import TRUE, Condition, find, is_true, set_condition

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
IDENTIFIED = {"identityHash": "h", "conditions": set_condition([], Condition("IdentityValid", TRUE), NOW)}


def cached(**status: Any) -> dict[str, Any]:
    spec = {"group": "plans.example.com", "version": "v1", "resource": "plans"}
    return {"metadata": {"name": "plans"}, "spec": spec, "status": status}


def slice_of(path: str = "") -> dict[str, Any]:
    reference = {"name": "plans", **({"path": path} if path else {})}
    return {
        "metadata": {"name": "plans", "annotations": {"kcp.io/cluster": "home"}},
        "spec": {"clusterCachedResource": reference, "export": {"name": "plans"}},
        "status": {"endpoints": [{"url": "https://shard/x"}]},
    }


def test_it_is_ready_with_an_identity_and_a_resource() -> None:
    status = cachedresources.desired_status(cached(**IDENTIFIED), ResourceCount(False, 3), NOW)
    assert (status["phase"], status["resourceCounts"]) == ("Ready", {"cache": 3, "local": 3})
    assert all(is_true(status["conditions"], type) for type in ("IdentityValid", "ResourceValid", "ReplicationStarted"))
    assert cachedresources.desired_status({**cached(), "status": status}, ResourceCount(False, 3), LATER) == status


def test_without_an_identity_nothing_has_started() -> None:
    status = cachedresources.desired_status(cached(), ResourceCount(False, 3), NOW)
    assert status["phase"] == "Initializing"
    assert find(status["conditions"], "ReplicationStarted") is None


@pytest.mark.parametrize(
    ("found", "reason"), [(None, "NoResources"), (ResourceCount(True, 0), "ResourceNotClusterScoped")]
)
def test_what_cannot_be_offered_is_told(found: ResourceCount | None, reason: str) -> None:
    status = cachedresources.desired_status(cached(**IDENTIFIED), found, NOW)
    condition = find(status["conditions"], "ResourceValid")
    assert condition is not None
    assert (condition["status"], condition["reason"], status["phase"]) == ("False", reason, "Initializing")


def test_a_selector_that_makes_no_sense_selects_nothing() -> None:
    assert cachedresources.selector_of(cached()).matches({})
    wrong = cached()
    wrong["spec"]["labelSelector"] = {"matchExpressions": [{"key": "a", "operator": "Is"}]}
    assert not cachedresources.selector_of(wrong).matches({"a": "b"})


@pytest.mark.parametrize(
    ("references", "reason"),
    [
        (SliceReferences("home", "home", None, True), ""),
        (SliceReferences("home", "home", None, False), "ClusterCachedResourceNotFound"),
        (SliceReferences("home", None, None, True), ""),
        (SliceReferences("other", "home", None, True), ""),
        (SliceReferences("other", "home", None, False), "ClusterCachedResourceNotFound"),
        (SliceReferences(None, "home", None, False), "ClusterCachedResourceNotFound"),
    ],
)
def test_a_slice_judges_each_reference_and_ties_what_one_workspace_holds(
    references: SliceReferences, reason: str
) -> None:
    status = cachedresources.desired_slice_status(slice_of(), references, NOW)
    condition = find(status["conditions"], "ResourceValid")
    assert condition is not None
    assert condition.get("reason", "") == reason
    assert cachedresources.is_sound({"status": status}) is not bool(reason)
    assert bool(status.get("endpoints")) is (not reason and references.cached == references.export)


def test_an_export_offers_it_under_its_identity_and_no_other() -> None:
    mine = cached(identityHash="h")
    assert cachedresources.resource_of(mine) == Resource("plans.example.com", "v1", "plans")

    def export(**changes: Any) -> dict[str, Any]:
        entry = {"name": "plans", "group": "plans.example.com", "storage": {"virtual": {"identityHash": "h"}}}
        return {"spec": {"resources": [{**entry, **changes}]}}

    assert cachedresources.offered_by(export(), mine)
    assert not cachedresources.offered_by(export(name="other"), mine)
    assert not cachedresources.offered_by(export(storage={"crd": {}}), mine)
    assert not cachedresources.offered_by(export(storage={"virtual": {"identityHash": "x"}}), mine)
    assert not cachedresources.offered_by(export(storage={"virtual": {"identityHash": ""}}), cached())
