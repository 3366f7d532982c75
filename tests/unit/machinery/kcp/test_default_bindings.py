"""Default bindings: which a workspace needs, when one is done, what the LogicalCluster tells."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.machinery.kcp.workspaces import default_bindings
from atoll.machinery.kcp.workspaces.default_bindings import (
    INITIALIZED,
    RECONCILED,
    RequiredBindings,
    bindings_condition,
    with_bindings_condition,
)
from atoll.machinery.kcp.workspaces.workspacetypes import (
    DefaultBinding,
    TypeRefused,
    WorkspaceType,
    read_type,
    resolve_present,
    with_bases,
)
from atoll.machinery.meta import hashes
from harness.data.kcp_objects import type_lookup

Object = dict[str, Any]
NOW = "2026-01-01T00:00:00Z"
CLAIM = {"group": "", "resource": "configmaps", "verbs": ["*"]}
LIFECYCLE = "experimental.tenancy.kcp.io/default-api-binding-lifecycle"


def type_(name: str, *, annotation: str = "", **spec: Any) -> WorkspaceType:
    annotations = {"kcp.io/cluster": "c1", "kcp.io/path": "root:acme"}
    if annotation:
        annotations[LIFECYCLE] = annotation
    return read_type({"metadata": {"name": name, "annotations": annotations}, "spec": spec})


def bound(wanted: RequiredBindings, conditions: tuple[str, ...], **spec: Any) -> Object:
    body = {
        **default_bindings.binding_of(wanted, ()),
        "status": {"conditions": [{"type": each, "status": "True"} for each in conditions]},
    }
    return {**body, "spec": {**body["spec"], **spec}}


WANTED = default_bindings.required("c9", [DefaultBinding("shapes", "root:a")])[0]


def test_names_are_kcps_and_each_binding_is_required_once() -> None:
    twice = [DefaultBinding("shapes", "root:a"), DefaultBinding("shapes", "root:a"), DefaultBinding("shapes", "root:b")]
    found = default_bindings.required("c9", twice)
    assert [each.path for each in found] == ["root:a", "root:b"]
    assert WANTED.name == hashes.default_binding_name("c9", "root:a", "shapes")


@pytest.mark.parametrize(
    ("spec", "annotation", "maintains"),
    [
        ("", "", False),
        ("InitializeOnly", "", False),
        ("Maintain", "", True),
        ("", "Maintain", True),
        ("InitializeOnly", "Maintain", False),
        ("Maintain", "InitializeOnly", True),
    ],
)
def test_the_lifecycle_is_what_the_spec_says_and_else_the_annotation(
    spec: str, annotation: str, maintains: bool
) -> None:
    more = {"defaultAPIBindingLifecycle": spec} if spec else {}
    found = type_("t", annotation=annotation, defaultAPIBindings=[{"export": "shapes"}], **more)
    assert found.maintains is maintains


def test_bases_are_asked_each_for_its_own_lifecycle() -> None:
    kept = type_("kept", defaultAPIBindings=[{"export": "a"}], defaultAPIBindingLifecycle="Maintain")
    once = type_("once", defaultAPIBindings=[{"export": "b"}])
    bases = [{"name": each, "path": "root:acme"} for each in ("kept", "once")]
    derived = type_("derived", extend={"with": bases}, defaultAPIBindings=[{"export": "c"}])
    lookup = type_lookup(kept, once, derived)
    found = with_bases(derived, lookup)
    assert {each.export for each in found.default_bindings} == {"a", "b", "c"}
    assert {each.export for each in found.maintained_bindings} == {"a"}
    cluster = {"metadata": {"annotations": {"internal.tenancy.kcp.io/type": "root:acme:derived"}}}
    assert resolve_present(cluster, lookup) == found
    assert resolve_present({"metadata": {}}, lookup) is None
    with pytest.raises(TypeRefused):
        resolve_present({"metadata": {"annotations": {"internal.tenancy.kcp.io/type": "root:acme:gone"}}}, lookup)


def test_a_binding_of_another_name_stands_for_a_default_one() -> None:
    own = {"metadata": {"name": "mine"}, "spec": {"reference": {"export": WANTED.reference}}}
    other = {"metadata": {"name": "x"}, "spec": {"reference": {"export": {"path": "root:b", "name": "shapes"}}}}
    named = default_bindings.binding_of(WANTED, ())
    assert default_bindings.find_binding([other, own], WANTED) is own
    assert default_bindings.find_binding([own, named], WANTED) is named
    assert default_bindings.find_binding([other], WANTED) is None
    # What its workspace made itself is not brought up to date.
    assert not default_bindings.is_outdated(own, WANTED, [CLAIM])
    assert default_bindings.is_outdated(named, WANTED, [CLAIM])
    assert not default_bindings.is_outdated(default_bindings.binding_of(WANTED, [CLAIM]), WANTED, [CLAIM])


def test_a_binding_is_done_when_bound_once_and_its_claims_are_applied() -> None:
    bound_once, applied = "InitialBindingCompleted", "PermissionClaimsApplied"
    granted = [{**CLAIM, "selector": {"matchAll": True}, "state": "Accepted"}]
    assert not default_bindings.is_done(bound(WANTED, ()))
    assert default_bindings.is_done(bound(WANTED, (bound_once,)))
    assert not default_bindings.is_done(bound(WANTED, (bound_once,), permissionClaims=granted))
    assert default_bindings.is_done(bound(WANTED, (bound_once, applied), permissionClaims=granted))
    rejected = [{**granted[0], "state": "Rejected"}]
    assert default_bindings.is_done(bound(WANTED, (bound_once,), permissionClaims=rejected))


def test_the_initializer_goes_with_the_last_binding_and_no_other_does() -> None:
    cluster = {"metadata": {}, "status": {"initializers": ["c1:mine", "system:apibindings"]}}
    waiting = with_bindings_condition(cluster, bindings_condition(INITIALIZED, ["a", "b"], []), NOW)["status"]
    assert waiting["initializers"] == ["c1:mine", "system:apibindings"]
    (said,) = waiting["conditions"]
    assert (said["status"], said["reason"], said["severity"]) == ("False", "WaitingOnAPIBindings", "Info")
    assert said["message"].endswith("a, b")
    done = with_bindings_condition(cluster, bindings_condition(INITIALIZED, [], []), NOW)["status"]
    assert done["initializers"] == ["c1:mine"] and done["conditions"][0]["status"] == "True"
    kept = with_bindings_condition(cluster, bindings_condition(RECONCILED, [], []), NOW)["status"]
    assert kept["initializers"] == ["c1:mine", "system:apibindings"]
    last = {"metadata": {}, "status": {"initializers": ["system:apibindings"]}}
    assert "initializers" not in with_bindings_condition(last, bindings_condition(INITIALIZED, [], []), NOW)["status"]


def test_what_went_wrong_comes_before_what_is_waited_for() -> None:
    found = bindings_condition(RECONCILED, ["a"], [default_bindings.no_export(WANTED)])
    assert (found.type, found.reason, found.severity) == (RECONCILED, "APIBindingErrors", "Error")
    assert "root:a|shapes not found" in found.message
    assert default_bindings.types_invalid(INITIALIZED, "no").reason == "WorkspaceTypesInvalid"
