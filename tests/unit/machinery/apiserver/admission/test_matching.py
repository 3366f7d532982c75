"""Matching of requests with the rules and selectors of webhooks and policies, as in Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from atoll.machinery.apiserver.admission.configured.matching import Criteria, Request, is_exempt
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.kinds.registry import NATIVE
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import NotFound


def _kind(plural: str, group: str = "example.com", version: str = "v1") -> Kind:
    return Kind(group=group, version=version, kind=plural.title(), plural=plural, singular=plural)


PODS, NODES, NAMESPACES = _kind("pods", ""), _kind("nodes", ""), _kind("namespaces", "")
WIDGETS, WIDGETS_V2 = _kind("widgets"), _kind("widgets", version="v2")


def _labelled(**labels: str) -> Object:
    return {"metadata": {"name": "one", "labels": labels}}


def _request(kind: Kind = WIDGETS, operation: str = "CREATE", **fields: Any) -> Request:
    fields.setdefault("obj", None if operation == "DELETE" else _labelled())
    fields.setdefault("namespace", "" if kind in (NODES, NAMESPACES) else "default")
    return Request(kind=kind, operation=operation, **fields)


def _rule(**fields: Any) -> Object:
    return {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "scope": "*", **fields}


def _webhook(*rules: Object, **fields: Any) -> Criteria:
    return Criteria.of_webhook({"rules": list(rules), **fields})


def _policy(**fields: Any) -> Criteria:
    return Criteria.of_match_resources(fields)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, True),
        ({"operations": ["CREATE", "UPDATE"]}, True),
        ({"operations": ["DELETE"]}, False),
        ({"apiGroups": ["", "example.com"]}, True),
        ({"apiGroups": [""]}, False),
        ({"apiVersions": ["v1"]}, True),
        ({"apiVersions": ["v2"]}, False),
        ({"resources": ["widgets"]}, True),
        ({"resources": ["widgets/status"]}, False),
        ({"resources": ["*/*"]}, True),
        ({"resources": ["widgets/*"]}, True),
        ({"resources": ["*/status"]}, False),
        ({"resources": ["gadgets"]}, False),
        ({"resources": []}, False),
        ({"scope": "Namespaced"}, True),
        ({"scope": "Cluster"}, False),
    ],
)
def test_a_rule_names_operation_group_version_resource_and_scope(fields: Object, expected: bool) -> None:
    assert (_webhook(_rule(**fields)).match(_request()) is WIDGETS) is expected


@pytest.mark.parametrize(
    ("resource", "expected"),
    [("widgets", False), ("*", False), ("widgets/status", True), ("widgets/*", True), ("*/status", True),
     ("*/*", True), ("widgets/scale", False)],
)  # fmt: skip
def test_a_subresource_is_matched_only_where_it_is_named(resource: str, expected: bool) -> None:
    request = _request(operation="UPDATE", subresource="status")
    assert (_webhook(_rule(resources=[resource])).match(request) is not None) is expected


def test_a_namespace_is_cluster_scoped_although_its_request_carries_a_namespace() -> None:
    request = _request(NAMESPACES, namespace="team")
    assert _webhook(_rule(scope="Cluster")).match(request) is NAMESPACES
    assert _webhook(_rule(scope="Namespaced")).match(request) is None
    assert _webhook(_rule(scope="Cluster")).match(_request(NODES)) is NODES


def test_a_webhook_without_rules_matches_nothing_and_a_binding_without_rules_everything() -> None:
    assert _webhook().match(_request()) is None
    assert _policy().match(_request()) is WIDGETS
    assert Criteria.of_match_resources(None).match(_request()) is WIDGETS


def test_exact_matches_the_version_of_the_request_and_equivalent_any_version_of_the_resource() -> None:
    request = _request(WIDGETS_V2, equivalents=(WIDGETS,))
    rule = _rule(apiGroups=["example.com"], apiVersions=["v1"], resources=["widgets"])
    assert _webhook(rule, matchPolicy="Exact").match(request) is None
    assert _webhook(rule, matchPolicy="Equivalent").match(request) is WIDGETS
    assert _webhook(rule).match(request) is WIDGETS


def test_the_version_of_the_request_goes_before_an_equivalent_that_an_earlier_rule_names() -> None:
    request = _request(WIDGETS_V2, equivalents=(WIDGETS,))
    rules = _rule(apiVersions=["v1"]), _rule(apiVersions=["v2"])
    assert _webhook(*rules).match(request) is WIDGETS_V2


def test_an_earlier_rule_decides_which_equivalent_is_presented() -> None:
    first, second = _kind("widgets", version="v3"), _kind("widgets", version="v4")
    request = _request(equivalents=(first, second))
    rules = _rule(apiVersions=["v4"]), _rule(apiVersions=["v3"])
    assert _webhook(*rules).match(request) is second


def test_an_equivalent_in_another_group_is_found() -> None:
    core, other = _kind("events", ""), _kind("events", "events.k8s.io")
    request = _request(other, equivalents=(core,))
    assert _webhook(_rule(apiGroups=[""], resources=["events"])).match(request) is core


def test_an_excluded_rule_wins_and_looks_at_equivalents_too() -> None:
    request = _request(WIDGETS_V2, equivalents=(WIDGETS,))
    excluded = [_rule(apiVersions=["v1"])]
    assert _policy(resourceRules=[_rule()], excludeResourceRules=excluded).match(request) is None
    exact = _policy(resourceRules=[_rule()], excludeResourceRules=excluded, matchPolicy="Exact")
    assert exact.match(request) is WIDGETS_V2


def test_resource_names_restrict_a_rule_and_a_name_to_be_generated_is_none_of_them() -> None:
    criteria = _policy(resourceRules=[_rule(resourceNames=["one", "two"])])
    assert criteria.match(_request(name="two")) is WIDGETS
    assert criteria.match(_request(name="three")) is None
    assert criteria.match(_request(name="")) is None


def test_an_object_is_selected_by_its_new_or_its_old_labels() -> None:
    criteria = _webhook(_rule(), objectSelector={"matchLabels": {"tier": "web"}})
    update = _request(operation="UPDATE", obj=_labelled(), old=_labelled(tier="web"))
    assert criteria.match(update) is WIDGETS
    assert criteria.match(replace(update, obj=_labelled(tier="web"), old=_labelled())) is WIDGETS
    assert criteria.match(replace(update, old=_labelled())) is None
    assert criteria.match(_request(operation="DELETE", old=_labelled(tier="web"))) is WIDGETS


def test_a_namespaced_object_is_selected_by_the_labels_of_its_namespace() -> None:
    criteria = _webhook(_rule(), namespaceSelector={"matchLabels": {"env": "prod"}})
    assert criteria.match(_request(namespace_object=lambda: _labelled(env="prod"))) is WIDGETS
    assert criteria.match(_request(namespace_object=lambda: _labelled(env="test"))) is None


def test_cluster_scoped_objects_pass_every_namespace_selector() -> None:
    criteria = _webhook(_rule(), namespaceSelector={"matchLabels": {"env": "prod"}})
    assert criteria.match(_request(NODES)) is NODES


def test_a_namespace_is_selected_by_its_own_new_labels_and_when_deleted_by_its_stored_ones() -> None:
    criteria = _webhook(_rule(resources=["*/*"]), namespaceSelector={"matchLabels": {"env": "prod"}})
    new = _request(NAMESPACES, namespace="team", obj=_labelled(env="prod"))
    assert criteria.match(new) is NAMESPACES
    gone = replace(new, operation="DELETE", obj=None, namespace_object=lambda: _labelled(env="prod"))
    assert criteria.match(gone) is NAMESPACES
    status = replace(new, operation="UPDATE", subresource="status", namespace_object=lambda: _labelled(env="test"))
    assert criteria.match(status) is None


def test_a_namespace_that_is_missing_is_an_error_only_for_what_else_matches() -> None:
    selector = {"matchLabels": {"env": "prod"}}
    with pytest.raises(NotFound, match='namespaces "default" not found'):
        _webhook(_rule(), namespaceSelector=selector).match(_request())
    assert _webhook(_rule(operations=["DELETE"]), namespaceSelector=selector).match(_request()) is None
    assert _webhook(_rule()).match(_request()) is WIDGETS


def test_a_namespace_is_not_read_where_no_selector_looks_at_it() -> None:
    def never() -> Object | None:
        raise AssertionError("the namespace was read")

    assert _webhook(_rule(), namespaceSelector={}).match(_request(namespace_object=never)) is WIDGETS


def test_what_no_rule_concerns_is_left_out_early() -> None:
    criteria = _webhook(_rule(apiGroups=["example.com"], resources=["widgets/status"]))
    assert criteria.concerns(WIDGETS)
    assert not criteria.concerns(PODS)
    other = _webhook(_rule(apiGroups=["events.k8s.io"]), matchPolicy="Equivalent")
    assert other.concerns(_kind("events", ""), (_kind("events", "events.k8s.io"),))


def test_configurations_and_policies_themselves_are_exempt() -> None:
    exempt = {kind.plural for kind in NATIVE if is_exempt(kind)}
    assert exempt == {
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
        "mutatingwebhookconfigurations",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "validatingwebhookconfigurations",
    }
    everything = _rule(resources=["*/*"])
    for kind in (each for each in NATIVE if is_exempt(each)):
        assert _webhook(everything).match(_request(kind, namespace="")) is None
