"""Permission claims: keys, verbs, selectors, labels, and their status in a binding."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.machinery.kcp.apis import claim_status, permission_claims
from atoll.machinery.kcp.apis.claim_labels import NO_CLAIMS, labelling
from atoll.machinery.kcp.apis.permission_claims import ClaimKey
from atoll.machinery.meta.hashes import EXPORT_LABEL, export_hash
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.meta.types import API_BINDINGS, CONFIG_MAPS, EVENTS, SECRETS
from harness.oracles.claim_labels import claim_pair, reflexive_pair

Object = dict[str, Any]
NOW = "2026-01-01T00:00:00Z"
IDENTITY = "a" * 64
MAPS = ClaimKey("", "configmaps")


def claim(resource: str, group: str = "", verbs: tuple[str, ...] = ("*",), **more: Any) -> Object:
    return {"group": group, "resource": resource, "verbs": list(verbs), **more}


def accepted(made: Object, state: str = "Accepted", **selector: Any) -> Object:
    return {**made, "selector": selector or {"matchAll": True}, "state": state}


def export(*claimed: Object, resources: tuple[Object, ...] = ()) -> Object:
    return {"metadata": {"name": "e"}, "spec": {"permissionClaims": list(claimed), "resources": list(resources)}}


def binding(*granted: Object, exported: tuple[Object, ...] = (), applied: tuple[Object, ...] = ()) -> Object:
    status: Object = {"exportPermissionClaims": list(exported), "appliedPermissionClaims": list(applied)}
    metadata = {"name": "b", "labels": {EXPORT_LABEL: export_hash("c", "e")}}
    return {"metadata": metadata, "spec": {"permissionClaims": list(granted)}, "status": status}


def condition(obj: Object, type: str) -> Object:
    return next(dict(each) for each in obj["status"]["conditions"] if each["type"] == type)


def scoped(made: Object) -> Object:
    return {key: value for key, value in made.items() if key != "state"}


# --- what is effective -------------------------------------------------------------------------------------------


def test_a_claim_counts_where_the_export_makes_it_and_the_binding_accepts_it() -> None:
    wanted = claim("configmaps")
    assert permission_claims.effective(export(wanted), binding(accepted(wanted))).keys() == {MAPS}
    assert permission_claims.effective(export(wanted), binding()) == {}
    assert permission_claims.effective(export(wanted), binding(accepted(wanted, "Rejected"))) == {}
    assert permission_claims.effective(export(), binding(accepted(wanted))) == {}
    of_others = claim("configmaps", identityHash=IDENTITY)
    assert permission_claims.effective(export(wanted), binding(accepted(of_others))) == {}


@pytest.mark.parametrize(
    ("wanted", "granted", "allowed", "refused"),
    [
        (("*",), ("*",), ("get", "anything"), ()),
        (("get", "list"), ("get",), ("get",), ("list", "*")),
        # A star on one side only grants nothing by itself.
        (("*",), ("get",), (), ("get", "list")),
        (("get",), ("*",), (), ("get",)),
        (("*", "get"), ("get", "list"), ("get",), ("list",)),
    ],
)
def test_verbs_are_those_that_both_name(
    wanted: tuple[str, ...], granted: tuple[str, ...], allowed: tuple[str, ...], refused: tuple[str, ...]
) -> None:
    found = permission_claims.effective(
        export(claim("configmaps", verbs=wanted)), binding(accepted(claim("configmaps", verbs=granted)))
    )
    assert [verb for verb in allowed if not found[MAPS].allows(verb)] == []
    assert [verb for verb in refused if found[MAPS].allows(verb)] == []


def test_what_the_export_offers_itself_shadows_a_claim_on_it() -> None:
    wanted = claim("widgets", "example.io", identityHash=IDENTITY)
    offered = {"group": "example.io", "name": "widgets", "schema": "v1.widgets.example.io"}
    assert permission_claims.effective(export(wanted, resources=(offered,)), binding(accepted(wanted))) == {}
    assert len(permission_claims.effective(export(wanted), binding(accepted(wanted)))) == 1


def test_events_are_one_kind_in_two_groups() -> None:
    new, core = claim("events", "events.k8s.io", ("get",)), claim("events", verbs=("list",))
    found = permission_claims.effective(export(new), binding(accepted(new)))
    assert found.keys() == {ClaimKey("", "events")}
    assert ClaimKey("events.k8s.io", "events").covered in found and ClaimKey("", "events").type == EVENTS
    both = permission_claims.effective(
        export(new, core), binding(accepted(new, matchLabels={"a": "b"}), accepted(core))
    )
    one = both[ClaimKey("", "events")]
    assert one.allows("get") and one.allows("list") and one.selects({})


def test_what_one_group_of_events_selects_is_not_for_the_verbs_of_the_other() -> None:
    new, core = claim("events", "events.k8s.io", ("delete",)), claim("events", verbs=("get", "delete"))
    given = accepted(new, matchLabels={"a": "b"}), accepted({**core, "verbs": ["get"]})
    found = permission_claims.effective(export(new, core), binding(*given))[ClaimKey("", "events")]
    assert found.under("get").selects({}) and found.under("delete").selects({"a": "b"})
    assert not found.under("delete").selects({})
    assert not found.under("create").allows("create")


@pytest.mark.parametrize(
    ("verbs", "is_withheld"), [(("*",), False), (("list",), False), (("watch",), False), (("get", "create"), True)]
)
def test_what_is_not_granted_to_be_listed_is_marked(verbs: tuple[str, ...], is_withheld: bool) -> None:
    applied = labelling([binding(applied=(scoped(accepted(claim("configmaps", verbs=verbs))),))])
    label, _ = permission_claims.withheld_label(export_hash("c", "e"))
    found = applied.wanted(CONFIG_MAPS, {})
    assert (label in found, len(found)) == (is_withheld, 1 + is_withheld)


def test_a_binding_is_seen_by_its_provider_whatever_it_withholds() -> None:
    applied = labelling([binding(applied=(scoped(accepted(claim("apibindings", "apis.kcp.io", verbs=("get",)))),))])
    label, _ = permission_claims.withheld_label(export_hash("c", "e"))
    assert label not in applied.wanted(API_BINDINGS, {EXPORT_LABEL: export_hash("c", "e")})
    assert label in applied.wanted(API_BINDINGS, {})


def test_kinds_are_claimed_by_whose_they_are() -> None:
    assert MAPS.type == CONFIG_MAPS
    assert ClaimKey("example.io", "widgets", IDENTITY).type == ResourceType("example.io", "widgets", IDENTITY)
    assert not permission_claims.needs_identity("", "secrets") and not permission_claims.needs_identity(
        "apis.kcp.io", "apibindings"
    )
    assert not permission_claims.needs_identity("authorization.k8s.io", "subjectaccessreviews")
    assert permission_claims.needs_identity("", "pods") and permission_claims.needs_identity("example.io", "widgets")
    assert permission_claims.needs_identity("tenancy.kcp.io", "workspaces")


# --- selectors ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selector", "selected", "not_selected"),
    [
        ({"matchAll": True}, {}, None),
        ({"matchLabels": {"a": "b"}}, {"a": "b", "c": "d"}, {"a": "c"}),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}, {"a": "b"}, {}),
        (
            {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "x", "operator": "Exists"}]},
            {"a": "b", "x": ""},
            {"a": "b"},
        ),
        # An empty or malformed selector selects nothing.
        ({}, None, {}),
        ({"matchLabels": {"-": "b"}}, None, {"-": "b"}),
        ({"matchAll": False, "matchLabels": {}}, None, {}),
    ],
)
def test_selectors_select(selector: Object, selected: Object | None, not_selected: Object | None) -> None:
    found = permission_claims.selector_of({"selector": selector})
    assert selected is None or found.matches(selected)
    assert not_selected is None or not found.matches(not_selected)


def test_what_is_created_under_a_claim_gets_what_its_selector_requires() -> None:
    wanted = claim("configmaps")
    selector: dict[str, Any] = {
        "matchLabels": {"team": "a"},
        "matchExpressions": [{"key": "old", "operator": "DoesNotExist"}],
    }
    found = permission_claims.effective(export(wanted), binding(accepted(wanted, **selector)))[MAPS]
    assert permission_claims.labelled_for(found, {"mine": "1"}) == {"mine": "1", "team": "a"}
    assert permission_claims.unselected(found, {"team": "a"}) is None
    # A label of the writer is never overwritten: a conflicting one is refused.
    assert permission_claims.labelled_for(found, {"team": "b"}) == {"team": "b"}
    assert "configmaps" in str(permission_claims.unselected(found, {"team": "b"}))
    assert permission_claims.unselected(found, permission_claims.labelled_for(found, {"old": "1"})) is not None
    everything = permission_claims.effective(export(wanted), binding(accepted(wanted)))[MAPS]
    assert permission_claims.labelled_for(everything, {}) == {} and permission_claims.unselected(everything, {}) is None


def test_default_bindings_accept_on_what_the_export_selects() -> None:
    proposed = {"matchLabels": {"a": "b"}}
    wanted = claim("secrets", defaultSelector=proposed)
    assert permission_claims.accept(wanted) == {**wanted, "selector": proposed, "state": "Accepted"}
    assert permission_claims.accept(claim("secrets")) == accepted(claim("secrets"))


# --- labels ------------------------------------------------------------------------------------------------------


def test_labels_are_kcps_own() -> None:
    assert permission_claims.label(export_hash("c", "e"), MAPS) == claim_pair("c", "e", "", "configmaps")
    widgets = ClaimKey("example.io", "widgets", IDENTITY)
    assert permission_claims.label(export_hash("c", "e"), widgets) == claim_pair(
        "c", "e", "example.io", "widgets", IDENTITY
    )
    events = ClaimKey("events.k8s.io", "events")
    assert permission_claims.label(export_hash("c", "e"), events) == claim_pair("c", "e", "", "events")
    assert permission_claims.reflexive_label(export_hash("c", "e")) == reflexive_pair("c", "e")


def test_a_cluster_whose_bindings_grant_nothing_labels_bindings_alone() -> None:
    wanted = claim("configmaps")
    # A claim that was just accepted labels nothing before the status lists it.
    for each in (binding(), binding(accepted(wanted), exported=(wanted,))):
        assert labelling([each]) is NO_CLAIMS
    assert NO_CLAIMS.wanted(CONFIG_MAPS, {"a": "b"}) == {} and not NO_CLAIMS.covers(CONFIG_MAPS)
    assert NO_CLAIMS.wanted(API_BINDINGS, {EXPORT_LABEL: export_hash("c", "e")}) == dict([reflexive_pair("c", "e")])
    assert NO_CLAIMS.wanted(API_BINDINGS, None) == {}


def test_labels_follow_from_type_and_other_labels() -> None:
    wanted = claim("configmaps")
    found = labelling([binding(applied=(scoped(accepted(wanted, matchLabels={"a": "b"})),))])
    pair = claim_pair("c", "e", "", "configmaps")
    assert found.wanted(CONFIG_MAPS, {"a": "b"}) == dict([pair])
    assert found.wanted(CONFIG_MAPS, {"a": "c"}) == found.wanted(CONFIG_MAPS, None) == {}
    assert found.wanted(SECRETS, {"a": "b"}) == {}
    assert found.misses(CONFIG_MAPS, {"a": "b"}) and not found.misses(CONFIG_MAPS, {"a": "b", **dict([pair])})
    assert found.misses(CONFIG_MAPS, dict([pair])) and found.misses(SECRETS, dict([pair]))


def test_a_selector_is_never_judged_by_the_labels_of_claims() -> None:
    wanted = claim("configmaps")
    key, value = claim_pair("c", "e", "", "configmaps")
    found = labelling([binding(applied=(scoped(accepted(wanted, matchLabels={key: value})),))])
    assert found.wanted(CONFIG_MAPS, {key: value}) == {}


def test_a_claim_on_bindings_takes_the_place_of_the_reflexive_label() -> None:
    wanted = claim("apibindings", "apis.kcp.io")
    found = labelling([binding(applied=(scoped(accepted(wanted)),))])
    pair = claim_pair("c", "e", "apis.kcp.io", "apibindings")
    mine, others = {EXPORT_LABEL: export_hash("c", "e")}, {EXPORT_LABEL: export_hash("c", "other")}
    assert found.wanted(API_BINDINGS, mine) == dict([pair])
    assert found.wanted(API_BINDINGS, others) == dict([pair, reflexive_pair("c", "other")])


def test_reviews_are_claimed_and_never_labelled() -> None:
    wanted = claim("subjectaccessreviews", "authorization.k8s.io")
    assert len(permission_claims.effective(export(wanted), binding(accepted(wanted)))) == 1
    assert claim_status.types_to_label(binding(accepted(wanted)), [wanted]) == set()
    assert labelling([binding(applied=(scoped(accepted(wanted)),))]) is NO_CLAIMS


# --- status ------------------------------------------------------------------------------------------------------


def test_status_names_what_is_claimed_then_what_is_applied() -> None:
    wanted = claim("configmaps")
    granting = {**binding(accepted(wanted)), "status": {"phase": "Bound"}}
    first = claim_status.with_exported_claims(granting, [wanted], NOW)
    assert first["status"]["exportPermissionClaims"] == [wanted] and "appliedPermissionClaims" not in first["status"]
    assert claim_status.types_to_label(first, [wanted]) == {CONFIG_MAPS} and not claim_status.is_complete(first)
    begun = claim_status.labelling_started(first, [wanted], NOW)
    assert begun["status"]["appliedPermissionClaims"] == [scoped(accepted(wanted))]
    assert claim_status.is_changing(begun) and claim_status.labelled_types(begun) is None
    assert condition(begun, "PermissionClaimsApplied")["severity"] == "Info" and not claim_status.is_complete(begun)
    last = claim_status.labelling_finished(begun, [wanted], {}, NOW)
    assert not claim_status.is_changing(last) and claim_status.labelled_types(last) == {CONFIG_MAPS}
    assert last["status"]["appliedPermissionClaims"] == [scoped(accepted(wanted))]
    assert last["status"]["phase"] == "Bound" and claim_status.is_complete(last)
    assert claim_status.types_to_label(last, [wanted]) == set()
    assert claim_status.labelling_finished(last, [wanted], {}, "2027-01-01T00:00:00Z") == last
    # The earlier condition does not cover a claim that was accepted later.
    more = claim("secrets")
    edited = {**last, "spec": {"permissionClaims": [accepted(wanted), accepted(more)]}}
    assert not claim_status.is_complete(claim_status.with_exported_claims(edited, [wanted, more], NOW))
    gone = claim_status.labelling_finished(last, [], {}, NOW)["status"]
    assert "appliedPermissionClaims" not in gone and "exportPermissionClaims" not in gone


def test_only_what_labels_go_by_asks_for_labelling() -> None:
    wanted = claim("configmaps")
    before = scoped(accepted(wanted))
    other_verbs, withheld = claim("configmaps", verbs=("get", "list")), claim("configmaps", verbs=("get",))
    assert claim_status.types_to_label(binding(accepted(other_verbs), applied=(before,)), [wanted]) == set()
    assert claim_status.types_to_label(binding(accepted(withheld), applied=(before,)), [wanted]) == {CONFIG_MAPS}
    other_selector = accepted(wanted, matchLabels={"a": "b"})
    assert claim_status.types_to_label(binding(other_selector, applied=(before,)), [wanted]) == {CONFIG_MAPS}
    assert claim_status.types_to_label(binding(applied=(before,)), [wanted]) == {CONFIG_MAPS}
    assert claim_status.types_to_label(binding(accepted(wanted), applied=(before,)), []) == {CONFIG_MAPS}


def test_what_could_not_be_labelled_is_told() -> None:
    maps, secrets = claim("configmaps"), claim("secrets")
    granting = binding(accepted(maps), accepted(secrets))
    found = claim_status.labelling_finished(granting, [maps, secrets], {SECRETS: '"s": refused'}, NOW)
    said = condition(found, "PermissionClaimsApplied")
    assert (said["status"], said["reason"], said["severity"]) == ("False", "InternalError", "Error")
    assert "secrets" in said["message"] and not claim_status.is_complete(found) and claim_status.is_changing(found)
    # Both claims are applied: the other objects have their labels, and new objects get theirs.
    assert len(found["status"]["appliedPermissionClaims"]) == 2


@pytest.mark.parametrize(
    ("granted", "claimed", "reason", "severity"),
    [
        (accepted(claim("configmaps")), claim("configmaps"), "", ""),
        (accepted(claim("configmaps")), claim("configmaps", verbs=("get",)), "", ""),
        (accepted(claim("configmaps")), claim("secrets"), "InvalidPermissionClaims", "Error"),
        (
            accepted(claim("configmaps", verbs=("get",))),
            claim("configmaps", verbs=("get", "list")),
            "PermissionClaimsMismatch",
            "Warning",
        ),
        (
            accepted(claim("configmaps")),
            claim("configmaps", defaultSelector={"matchLabels": {"a": "b"}}),
            "PermissionClaimsMismatch",
            "Warning",
        ),
        (
            accepted(claim("configmaps"), matchLabels={"a": "b"}),
            claim("configmaps", defaultSelector={"matchLabels": {"a": "b"}}),
            "",
            "",
        ),
        (accepted(claim("configmaps"), matchLabels={"a": "b"}), claim("configmaps"), "", ""),
        (accepted(claim("configmaps"), "Rejected"), claim("secrets"), "", ""),
    ],
)
def test_claims_are_valid_as_far_as_both_sides_agree(
    granted: Object, claimed: Object, reason: str, severity: str
) -> None:
    found = condition(claim_status.with_exported_claims(binding(granted), [claimed], NOW), "PermissionClaimsValid")
    assert (found["status"], found.get("reason", ""), found.get("severity", "")) == (
        "False" if reason else "True",
        reason,
        severity,
    )


def test_a_status_names_no_more_than_can_be_read() -> None:
    many = [accepted(claim(f"kind{number}", "example.io", identityHash=IDENTITY)) for number in range(15)]
    found = condition(claim_status.with_exported_claims(binding(*many), [], NOW), "PermissionClaimsValid")
    assert found["message"].count("example.io") == 10 and "5 more" in found["message"]
