"""Labels of permission claims on the wire: after writes, accepted claims, changes and withdrawals."""

from __future__ import annotations

from typing import Any

import pytest

from harness.clients.api import APPLY, JSON_PATCH, MERGE, Api, Object, configmap, eventually
from harness.clients.exports import (
    BINDINGS,
    EXPORTS,
    PATIENCE_S,
    accepted,
    an_object,
    bind,
    binding,
    claim,
    cluster_of,
    condition,
    identity_of,
    is_true,
    make_export,
    objects_path,
    schema,
    unbind,
    wait,
    wait_bound,
)
from harness.oracles.claim_labels import CLAIMED, applied, carries, claim_pair, claimed, reflexive_pair

MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def maps(provider: Api) -> tuple[str, tuple[str, str]]:
    """An export that claims ConfigMaps: return its path, and the label pair of the claim."""
    make_export(provider, "shapes", schema("circles"), claims=[claim("configmaps")])
    return provider.cluster, claim_pair(cluster_of(provider), "shapes", "", "configmaps")


Maps = tuple[str, tuple[str, str]]


def test_what_is_there_and_what_comes_is_labelled_once_a_claim_is_accepted(consumer: Api, maps: Maps) -> None:
    path, pair = maps
    consumer.post(MAPS, configmap("before"))
    bind(consumer, path, "shapes", [accepted(claim("configmaps"))])
    found = applied(consumer, "shapes")
    assert claimed(consumer.get(f"{MAPS}/before").json) == dict([pair])
    made = consumer.post(MAPS, configmap("after", labels={"mine": "yes"})).json
    assert made["metadata"]["labels"] == {"mine": "yes", **dict([pair])}
    asked = {**claim("configmaps"), "identityHash": ""}
    assert found["status"]["exportPermissionClaims"] == [asked]
    assert found["status"]["appliedPermissionClaims"] == [{**asked, "selector": {"matchAll": True}}]
    assert is_true(found, "PermissionClaimsValid")
    assert consumer.get(f"/api/v1/configmaps?labelSelector={pair[0]}={pair[1]}").json["items"], "found by the label"


def test_a_claim_that_is_not_accepted_labels_nothing(consumer: Api, maps: Maps) -> None:
    path, _ = maps
    bind(consumer, path, "shapes", [accepted(claim("configmaps"), "Rejected")])
    found = applied(consumer, "shapes")
    assert "appliedPermissionClaims" not in found["status"]
    assert claimed(consumer.post(MAPS, configmap("plain")).json) == {}


def test_a_new_claim_of_the_export_is_not_accepted_by_itself(consumer: Api, provider: Api, maps: Maps) -> None:
    path, _ = maps
    bind(consumer, path, "shapes")
    asked = [claim("configmaps"), claim("secrets")]
    provider.patch(f"{EXPORTS}/shapes", {"spec": {"permissionClaims": asked}})
    path = f"{BINDINGS}/shapes"
    found = wait(consumer, path, lambda obj: len(obj["status"].get("exportPermissionClaims", [])) == len(asked))
    assert "permissionClaims" not in found["spec"] and "appliedPermissionClaims" not in found["status"]
    assert claimed(consumer.post(MAPS, configmap("plain")).json) == {}


def test_users_cannot_write_the_labels(consumer: Api, maps: Maps) -> None:
    path, pair = maps
    bind(consumer, path, "shapes", [accepted(claim("configmaps"))])
    applied(consumer, "shapes")
    stranger = CLAIMED + "somebodyelse"
    made = consumer.post(MAPS, configmap("one", labels={pair[0]: "wrong", stranger: "x", "mine": "1"})).json
    assert made["metadata"]["labels"] == {"mine": "1", **dict([pair])}
    # A PUT without the labels, a merge patch that removes one and adds another, a JSON patch and an apply fail.
    made["metadata"]["labels"] = {"mine": "2"}
    assert claimed(consumer.put(f"{MAPS}/one", made).json) == dict([pair])
    labels: dict[str, Any] = {pair[0]: None, stranger: "x"}
    assert claimed(consumer.patch(f"{MAPS}/one", {"metadata": {"labels": labels}}).json) == dict([pair])
    operations = [{"op": "replace", "path": "/metadata/labels", "value": {stranger: "x"}}]
    assert claimed(consumer.patch(f"{MAPS}/one", operations, JSON_PATCH).json) == dict([pair])
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", "labels": {pair[0]: "x", "a": "b"}}}
    answer = consumer.patch(f"{MAPS}/one?fieldManager=me&force=true", body, APPLY).json
    assert claimed(answer) == dict([pair]) and answer["metadata"]["labels"]["a"] == "b"


def test_nobody_comes_to_own_a_label_of_a_claim(consumer: Api, maps: Maps) -> None:
    path, pair = maps
    bind(consumer, path, "shapes", [accepted(claim("configmaps"))])
    applied(consumer, "shapes")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", "labels": {pair[0]: "x", "a": "b"}}}
    for manager in ("first", "second"):
        body["metadata"]["labels"][pair[0]] = manager  # type: ignore[index]
        found = consumer.patch(f"{MAPS}/one?fieldManager={manager}", body, APPLY, expect=0)
        assert found.code in {200, 201}, found.body
    assert CLAIMED not in str(consumer.get(f"{MAPS}/one").json["metadata"]["managedFields"])
    consumer.patch(f"{MAPS}/one?fieldManager=third", {"metadata": {"labels": {pair[0]: "y", "c": "d"}}}, MERGE)
    found = consumer.get(f"{MAPS}/one").json
    assert CLAIMED not in str(found["metadata"]["managedFields"]) and claimed(found) == dict([pair])


def test_a_write_that_changes_nothing_stays_one_on_a_labelled_object(consumer: Api, maps: Maps) -> None:
    path, pair = maps
    bind(consumer, path, "shapes", [accepted(claim("configmaps"))])
    applied(consumer, "shapes")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", "labels": {"a": "b"}}}
    first = consumer.patch(f"{MAPS}/one?fieldManager=me", body, APPLY, expect=201).json
    assert claimed(first) == dict([pair])
    assert consumer.patch(f"{MAPS}/one?fieldManager=me", body, APPLY).json == first
    assert consumer.patch(f"{MAPS}/one", {}, MERGE).json == first
    assert consumer.patch(f"{MAPS}/one", {"metadata": {"labels": {pair[0]: "x"}}}, MERGE).json == first
    assert consumer.put(f"{MAPS}/one", first).json == first


def test_a_selector_is_judged_on_every_write(consumer: Api, maps: Maps) -> None:
    path, pair = maps
    selector: dict[str, Any] = {
        "matchLabels": {"team": "a"},
        "matchExpressions": [{"key": "old", "operator": "DoesNotExist"}],
    }
    bind(consumer, path, "shapes", [accepted(claim("configmaps"), **selector)])
    applied(consumer, "shapes")
    assert claimed(consumer.post(MAPS, configmap("one")).json) == {}
    for labels, is_claimed in (
        ({"team": "a"}, True),
        ({"team": "a", "old": "1"}, False),
        ({"old": None, "team": "a"}, True),
        ({"team": "b"}, False),
    ):
        answer = consumer.patch(f"{MAPS}/one", {"metadata": {"labels": labels}}).json
        assert claimed(answer) == (dict([pair]) if is_claimed else {}), labels


def test_an_edited_selector_moves_the_labels(consumer: Api, maps: Maps) -> None:
    path, pair = maps
    consumer.post(MAPS, configmap("a", labels={"team": "a"}))
    consumer.post(MAPS, configmap("b", labels={"team": "b"}))
    bind(consumer, path, "shapes", [accepted(claim("configmaps"), matchLabels={"team": "a"})])
    applied(consumer, "shapes")
    carries(consumer, f"{MAPS}/a", pair)
    carries(consumer, f"{MAPS}/b")
    edited = [accepted(claim("configmaps"), matchLabels={"team": "b"})]
    consumer.patch(f"{BINDINGS}/shapes", {"spec": {"permissionClaims": edited}})
    applied(consumer, "shapes")
    carries(consumer, f"{MAPS}/a")
    carries(consumer, f"{MAPS}/b", pair)


@pytest.mark.parametrize("withdrawal", ["rejected", "dropped by the binding", "dropped by the export", "unbound"])
def test_a_withdrawn_claim_leaves_no_label(consumer: Api, provider: Api, maps: Maps, withdrawal: str) -> None:
    path, pair = maps
    for name in ("one", "two"):
        consumer.post(MAPS, configmap(name))
    bind(consumer, path, "shapes", [accepted(claim("configmaps"))])
    applied(consumer, "shapes")
    carries(consumer, f"{MAPS}/one", pair)
    if withdrawal == "unbound":
        unbind(consumer, "shapes")
    elif withdrawal == "dropped by the export":
        provider.patch(f"{EXPORTS}/shapes", {"spec": {"permissionClaims": None}})
    else:
        left = [accepted(claim("configmaps"), "Rejected")] if withdrawal == "rejected" else None
        consumer.patch(f"{BINDINGS}/shapes", {"spec": {"permissionClaims": left}})
    for name in ("one", "two", "kube-root-ca.crt"):
        carries(consumer, f"{MAPS}/{name}")
    assert claimed(consumer.post(MAPS, configmap("three")).json) == {}
    if withdrawal != "unbound":
        found = wait(consumer, f"{BINDINGS}/shapes", lambda obj: "appliedPermissionClaims" not in obj["status"])
        assert is_true(found, "PermissionClaimsApplied")


def test_claims_are_told_apart_by_verdict(consumer: Api, provider: Api) -> None:
    proposed: dict[str, Any] = {"matchLabels": {"team": "a"}}
    asked = [claim("configmaps", "", "get", "list"), claim("secrets", defaultSelector=proposed)]
    make_export(provider, "shapes", schema("circles"), claims=asked)
    bind(consumer, provider.cluster, "shapes", [accepted(claim("namespaces"))])

    def says(reason: str, severity: str) -> Object:
        def right(obj: Object) -> bool:
            found = condition(obj, "PermissionClaimsValid")
            return (found.get("status"), found.get("reason"), found.get("severity")) == ("False", reason, severity)

        return wait(consumer, f"{BINDINGS}/shapes", right)

    found = says("InvalidPermissionClaims", "Error")
    assert "namespaces" in condition(found, "PermissionClaimsValid")["message"]
    assert "appliedPermissionClaims" not in found["status"]
    for other, word in ((accepted(claim("configmaps", "", "get")), "configmaps"), (accepted(asked[1]), "secrets")):
        consumer.patch(f"{BINDINGS}/shapes", {"spec": {"permissionClaims": [other]}})

        def tells(obj: Object, word: str = word) -> bool:
            return word in str(condition(obj, "PermissionClaimsValid"))

        wait(consumer, f"{BINDINGS}/shapes", tells)
        says("PermissionClaimsMismatch", "Warning")
    right = [accepted(asked[0]), accepted(asked[1], **proposed)]
    consumer.patch(f"{BINDINGS}/shapes", {"spec": {"permissionClaims": right}})
    assert is_true(applied(consumer, "shapes"), "PermissionClaimsValid")


def test_a_binding_shows_itself_to_the_provider_whatever_it_grants(consumer: Api, provider: Api) -> None:
    make_export(provider, "shapes", schema("circles"), claims=[claim("apibindings", "apis.kcp.io")])
    make_export(provider, "others", schema("squares"))
    mine, other = (reflexive_pair(cluster_of(provider), name) for name in ("shapes", "others"))
    everywhere = claim_pair(cluster_of(provider), "shapes", "apis.kcp.io", "apibindings")
    bind(consumer, provider.cluster, "others")
    bind(consumer, provider.cluster, "shapes")
    carries(consumer, f"{BINDINGS}/shapes", mine)
    carries(consumer, f"{BINDINGS}/others", other)
    granted = [accepted(claim("apibindings", "apis.kcp.io"))]
    consumer.patch(f"{BINDINGS}/shapes", {"spec": {"permissionClaims": granted}})
    applied(consumer, "shapes")
    carries(consumer, f"{BINDINGS}/shapes", everywhere)
    carries(consumer, f"{BINDINGS}/others", everywhere, other)
    unbind(consumer, "shapes")
    carries(consumer, f"{BINDINGS}/others", other)


def test_kinds_of_another_export_are_claimed_by_its_identity(consumer: Api, provider: Api, admin: Api) -> None:
    circles = schema("circles")
    make_export(provider, "shapes", circles)
    identity = identity_of(provider, "shapes")
    asked = claim("circles", "shapes.example.com", identity=identity)
    make_export(provider, "painter", claims=[asked])
    pair = claim_pair(cluster_of(provider), "painter", "shapes.example.com", "circles", identity)
    bind(consumer, provider.cluster, "shapes")
    path = objects_path(circles)
    consumer.post(path, an_object(circles, "before"))
    bind(consumer, provider.cluster, "painter", [accepted(asked)])
    applied(consumer, "painter")
    carries(consumer, f"{path}/before", pair)
    made = consumer.post(path, an_object(circles, "after", spec={"size": 1})).json
    assert claimed(made) == dict([pair])
    # The same check covers writes of the status.
    made["status"] = {"replicas": 3}
    made["metadata"]["labels"] = {}
    answer = consumer.put(f"{path}/after/status", made).json
    assert claimed(answer) == dict([pair]) and answer["metadata"]["generation"] == 1


def test_events_are_claimed_in_either_group(consumer: Api, provider: Api) -> None:
    asked = claim("events", "events.k8s.io")
    make_export(provider, "shapes", schema("circles"), claims=[asked])
    bind(consumer, provider.cluster, "shapes", [accepted(asked)])
    applied(consumer, "shapes")
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "default"},
        "involvedObject": {"kind": "ConfigMap", "namespace": "default", "name": "x"},
        "reason": "R",
        "type": "Normal",
    }
    made = consumer.post("/api/v1/namespaces/default/events", event).json
    assert claimed(made) == dict([claim_pair(cluster_of(provider), "shapes", "", "events")])


def test_two_exports_claim_the_same_objects_side_by_side(consumer: Api, provider: Api) -> None:
    pairs = []
    for name in ("left", "right"):
        make_export(provider, name, claims=[claim("secrets")])
        pairs.append(claim_pair(cluster_of(provider), name, "", "secrets"))
        bind(consumer, provider.cluster, name, [accepted(claim("secrets"))])
        applied(consumer, name)
    path = "/api/v1/namespaces/default/secrets"
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
    assert claimed(consumer.post(path, secret).json) == dict(pairs)
    unbind(consumer, "left")
    carries(consumer, f"{path}/s", pairs[1])


@pytest.mark.long
def test_more_objects_than_fit_a_page_are_labelled_and_unlabelled(consumer: Api, maps: Maps) -> None:
    path, pair = maps
    for number in range(530):
        consumer.post(MAPS, configmap(f"m-{number}"))
    bind(consumer, path, "shapes", [accepted(claim("configmaps"))])
    selector = f"?labelSelector={pair[0]}={pair[1]}"

    def labelled() -> int:
        return len(consumer.get(f"{MAPS}{selector}").json["items"])

    eventually(lambda: labelled() == 531, "all labelled", PATIENCE_S)
    consumer.patch(f"{BINDINGS}/shapes", {"spec": {"permissionClaims": None}})
    eventually(lambda: labelled() == 0, "none labelled", PATIENCE_S)


def test_a_binding_whose_claims_come_before_its_export_is_served_later(consumer: Api, provider: Api) -> None:
    circles = schema("circles")
    make_export(provider, "shapes", circles)
    granted = [accepted(claim("configmaps"))]
    consumer.post(BINDINGS, binding(provider.cluster, "shapes", granted))
    found = wait_bound(consumer, "shapes")
    assert not is_true(found, "PermissionClaimsValid") or "appliedPermissionClaims" not in found["status"]
    provider.patch(f"{EXPORTS}/shapes", {"spec": {"permissionClaims": [claim("configmaps")]}})
    assert is_true(applied(consumer, "shapes"), "PermissionClaimsValid")
    pair = claim_pair(cluster_of(provider), "shapes", "", "configmaps")
    carries(consumer, f"{MAPS}/kube-root-ca.crt", pair)


@pytest.mark.parametrize("labels", ["text", ["a"], {"team": ["a"]}, {"team": 1}])
def test_labels_of_a_wrong_type_are_refused_where_claims_select_by_them(
    consumer: Api, provider: Api, labels: object
) -> None:
    circles = schema("circles")
    make_export(provider, "shapes", circles)
    asked = [claim("configmaps"), claim("circles", "shapes.example.com", identity=identity_of(provider, "shapes"))]
    make_export(provider, "painter", claims=asked)
    selector: dict[str, Any] = {"matchExpressions": [{"key": "team", "operator": "In", "values": ["a", "b"]}]}
    bind(consumer, provider.cluster, "shapes")
    bind(consumer, provider.cluster, "painter", [accepted(each, **selector) for each in asked])
    applied(consumer, "painter")
    for path, make in ((MAPS, configmap), (objects_path(circles), lambda name: an_object(circles, name))):
        good, odd = make("even"), make("odd")
        good["metadata"]["labels"], odd["metadata"]["labels"] = {"team": "a"}, labels
        assert claimed(consumer.post(path, good).json)
        consumer.post(path, odd, expect=400)
        consumer.patch(f"{path}/even", {"metadata": {"labels": labels}}, MERGE, expect=400)
        body = {**good, "metadata": {"name": "even", "labels": labels}}
        answer = consumer.patch(f"{path}/even?fieldManager=me&force=true", body, APPLY, expect=0)
        assert answer.code >= 400 and "metadata.labels" in answer.message


def test_a_dry_run_shows_the_label_and_writes_none(consumer: Api, maps: Maps) -> None:
    path, pair = maps
    bind(consumer, path, "shapes", [accepted(claim("configmaps"))])
    applied(consumer, "shapes")
    assert claimed(consumer.post(f"{MAPS}?dryRun=All", configmap("try")).json) == dict([pair])
    consumer.get(f"{MAPS}/try", expect=404)


def test_a_watch_on_the_label_sees_objects_come_and_go_with_the_claim(consumer: Api, maps: Maps) -> None:
    path, pair = maps
    consumer.post(MAPS, configmap("one"))
    bind(consumer, path, "shapes")
    with consumer.watch(f"{MAPS}?watch=1&labelSelector={pair[0]}={pair[1]}") as events:
        granted = [accepted(claim("configmaps"))]
        consumer.patch(f"{BINDINGS}/shapes", {"spec": {"permissionClaims": granted}})
        came = {(event.type, event.name) for event in events.take(2)}
        assert came == {("ADDED", "one"), ("ADDED", "kube-root-ca.crt")}
        consumer.post(MAPS, configmap("two"))
        assert events.next().type == "ADDED"
        rejected = [accepted(claim("configmaps"), "Rejected")]
        consumer.patch(f"{BINDINGS}/shapes", {"spec": {"permissionClaims": rejected}})
        assert {(event.type, event.name) for event in events.take(3)} == {
            ("DELETED", "one"),
            ("DELETED", "two"),
            ("DELETED", "kube-root-ca.crt"),
        }
