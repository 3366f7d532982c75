"""Bindings that pin the identity of their export: one made anew under its path gets nothing of them."""

from __future__ import annotations

from typing import Any

import pytest

from harness.clients.api import MERGE, Api, Object, configmap, eventually, workspace_under
from harness.clients.exports import (
    BINDINGS,
    EXPORTS,
    PATIENCE_S,
    accepted,
    an_object,
    binding,
    claim,
    cluster_of,
    condition,
    export,
    make_export,
    objects_path,
    phase,
    schema,
    wait,
    wait_bound,
    wait_condition,
)
from harness.clients.tenants import allow
from integration.exports.test_identity import hash_of, named, secret
from integration.views import test_replication as replication
from integration.views.test_apiexport import grant, view_of

PIN, EXTRA = "bindings.atoll.dev/identity", "extra.apis.kcp.io/note"
CIRCLES, CLAIM = schema("circles"), claim("configmaps")
HERE, CONFIGMAPS = objects_path(CIRCLES), "/api/v1/namespaces/default/configmaps"
OTHER = "0" * 64


def offer(api: Api, key: str = "first") -> str:
    """Export circles, with a claim on ConfigMaps, under the identity of a key of its own; return the hash."""
    api.send("POST", "/api/v1/namespaces/default/secrets", secret(key, key, "default"))
    make_export(api, "shapes", CIRCLES, claims=[CLAIM], identity=named(key))
    api.patch(f"{EXPORTS}/shapes", {"metadata": {"annotations": {EXTRA: key}}})
    grant(api, "worker")
    return hash_of(key)


def offer_again(api: Api, key: str) -> None:
    """Delete the export and make it anew, under the identity of another key."""
    api.delete(f"{EXPORTS}/shapes")
    eventually(lambda: api.get(f"{EXPORTS}/shapes", expect=0).code == 404, "the export is gone", PATIENCE_S)
    api.send("POST", "/api/v1/namespaces/default/secrets", secret(key, key, "default"))
    made = export("shapes", CIRCLES, claims=[CLAIM], identity=named(key))
    made["metadata"]["annotations"] = {EXTRA: key}
    api.post(EXPORTS, made)
    wait_condition(api, f"{EXPORTS}/shapes", "IdentityValid")


def pinned(path: str, identity: str, called: str = "") -> Object:
    made = binding(path, "shapes", [accepted(CLAIM)], called)
    return {**made, "metadata": {**made["metadata"], "annotations": {PIN: identity}}}


def refused(api: Api, name: str = "shapes") -> Object:
    return wait_condition(api, f"{BINDINGS}/{name}", "APIExportValid", "False", "IdentityMismatch")


def sees(provider: Api, consumer: Api) -> list[str]:
    """The consumer's ConfigMaps that carry a label, as the provider's view lists them."""
    cluster = cluster_of(consumer)
    answer = view_of(provider).get("/*/api/v1/configmaps", expect=0)
    items = answer.json["items"] if answer.code == 200 else []
    of_cluster = [each for each in items if each["metadata"]["annotations"]["kcp.io/cluster"] == cluster]
    return [each["metadata"]["name"] for each in of_cluster if each["metadata"]["name"] == "mine"]


def beside(consumer: Api) -> Api:
    """A second consumer, whose binding pins nothing."""
    return consumer.at(workspace_under(consumer, type_="universal"))


def test_a_binding_to_the_identity_that_it_pins_is_bound(provider: Api, consumer: Api) -> None:
    identity = offer(provider)
    consumer.post(BINDINGS, pinned(provider.cluster, identity))
    wait_bound(consumer, "shapes")
    consumer.post(CONFIGMAPS, configmap("mine"))
    eventually(lambda: sees(provider, consumer) == ["mine"], "the claim is applied", PATIENCE_S)


def test_an_export_of_another_identity_gets_nothing_of_a_new_binding(provider: Api, consumer: Api) -> None:
    offer(provider)
    consumer.post(CONFIGMAPS, configmap("mine"))
    consumer.post(BINDINGS, pinned(provider.cluster, OTHER))
    found = refused(consumer)
    assert phase(found) == "Binding"
    assert OTHER in condition(found, "APIExportValid")["message"]
    assert "internal.apis.kcp.io/export" not in found["metadata"].get("labels", {})
    other = beside(consumer)
    other.post(BINDINGS, binding(provider.cluster, "shapes", [accepted(CLAIM)]))
    other.post(CONFIGMAPS, configmap("mine"))
    eventually(lambda: sees(provider, other) == ["mine"], "a binding without a pin is followed", PATIENCE_S)
    assert consumer.get(HERE, expect=0).code == 404
    assert sees(provider, consumer) == []
    # The export gets the identity: no change of the binding is needed.
    with_key = "zero"
    consumer.patch(f"{BINDINGS}/shapes", {"metadata": {"annotations": {PIN: hash_of(with_key)}}})
    offer_again(provider, with_key)
    wait_bound(consumer, "shapes")
    eventually(lambda: sees(provider, consumer) == ["mine"], "the claim is applied", PATIENCE_S)


def test_an_export_made_anew_under_its_name_gets_nothing_until_it_has_the_identity_again(
    provider: Api, consumer: Api
) -> None:
    other = beside(consumer)
    identity = offer(provider)
    consumer.post(BINDINGS, pinned(provider.cluster, identity))
    other.post(BINDINGS, binding(provider.cluster, "shapes", [accepted(CLAIM)]))
    for each in (consumer, other):
        wait_bound(each, "shapes")
        each.post(CONFIGMAPS, configmap("mine"))
        each.post(HERE, an_object(CIRCLES, "kept"))
        wait(each, f"{BINDINGS}/shapes", lambda obj: obj["metadata"]["annotations"].get(EXTRA) == "first")
    offer_again(provider, "second")
    wait(other, f"{BINDINGS}/shapes", lambda obj: obj["metadata"]["annotations"].get(EXTRA) == "second")
    refused(consumer)
    eventually(lambda: sees(provider, other) == ["mine"], "the other binding follows the export", PATIENCE_S)
    eventually(lambda: sees(provider, consumer) == [], "the claims of the pinned one are withdrawn", PATIENCE_S)
    found = consumer.get(f"{BINDINGS}/shapes").json
    assert found["metadata"]["annotations"][EXTRA] == "first"
    assert [each["schema"]["identityHash"] for each in found["status"]["boundResources"]] == [identity]
    assert consumer.get(f"{HERE}/kept").json["metadata"]["name"] == "kept"
    consumer.post(CONFIGMAPS, configmap("later"))
    assert "claimed.internal" not in str(consumer.get(f"{CONFIGMAPS}/later").json["metadata"].get("labels"))
    offer_again(provider, "first")
    wait_condition(consumer, f"{BINDINGS}/shapes", "APIExportValid")
    eventually(lambda: sees(provider, consumer) == ["mine"], "the claim is applied again", PATIENCE_S)


def test_a_workspace_made_anew_under_its_path_gets_nothing(admin: Api, consumer: Api) -> None:
    path = workspace_under(admin, type_="universal")
    name = path.rpartition(":")[2]
    first, other = admin.at(path), beside(consumer)
    home, identity = cluster_of(first), offer(first)
    consumer.post(BINDINGS, pinned(path, identity))
    other.post(BINDINGS, binding(path, "shapes", [accepted(CLAIM)]))
    for each in (consumer, other):
        wait_bound(each, "shapes")
        each.post(CONFIGMAPS, configmap("mine"))
        each.post(HERE, an_object(CIRCLES, "kept"))
    workspaces = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
    admin.delete(f"{workspaces}/{name}")
    eventually(lambda: admin.get(f"{workspaces}/{name}", expect=0).code == 404, "the workspace is gone", PATIENCE_S)
    body = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name}}
    admin.post(workspaces, {**body, "spec": {"type": {"name": "universal", "path": "root"}}})
    wait(admin, f"{workspaces}/{name}", lambda obj: phase(obj) == "Ready")
    second = admin.at(path)
    offer(second, "second")
    eventually(lambda: sees(second, other) == ["mine"], "the other binding follows the path", PATIENCE_S)
    found = refused(consumer)
    assert found["status"]["apiExportClusterName"] == home
    # A write of the binding computes its label again.
    consumer.patch(f"{BINDINGS}/shapes", {"metadata": {"annotations": {"note": "x"}}})
    consumer.patch(f"{CONFIGMAPS}/mine", {"data": {"touched": "x"}})
    assert refused(consumer)["metadata"]["labels"] == found["metadata"]["labels"]
    assert sees(second, consumer) == []
    assert consumer.get(f"{HERE}/kept").json["metadata"]["name"] == "kept"
    consumer.patch(f"{BINDINGS}/shapes", {"metadata": {"annotations": {PIN: None}}})
    eventually(lambda: sees(second, consumer) == ["mine"], "without the pin it follows the path too", PATIENCE_S)


def test_a_virtual_resource_of_an_export_made_anew_is_not_read_through_a_pin(provider: Api, consumer: Api) -> None:
    replication.offer(provider)
    provider.post(replication.PLANS, replication.plan("gold"))
    made = provider.get(f"{EXPORTS}/plans").json
    pin = {PIN: made["status"]["identityHash"]}
    other = beside(consumer)
    for each, marks in ((consumer, pin), (other, {})):
        wanted = binding(provider.cluster, "plans")
        each.post(BINDINGS, {**wanted, "metadata": {**wanted["metadata"], "annotations": marks}})
        wait_bound(each, "plans")
        eventually(lambda: _plans(each) == ["gold"], "it is read", PATIENCE_S)  # noqa: B023 - called at once
    provider.delete(f"{EXPORTS}/plans")
    provider.delete("/api/v1/namespaces/kcp-system/secrets/plans", expect=0)
    spec = {"resources": made["spec"]["resources"], "identity": named("another")}
    provider.post("/api/v1/namespaces/default/secrets", secret("another", "another", "default"))
    provider.post(
        EXPORTS, {key: made[key] for key in ("apiVersion", "kind")} | {"metadata": {"name": "plans"}, "spec": spec}
    )
    refused(consumer, "plans")
    eventually(lambda: _plans(other) == ["gold"], "a binding without a pin follows", PATIENCE_S)
    assert _plans(consumer) == []


def _plans(api: Api) -> list[str]:
    answer = api.get(replication.PLANS, expect=0)
    return [each["metadata"]["name"] for each in answer.json["items"]] if answer.code == 200 else []


def _sent(api: Api, verb: str, annotations: dict[str, Any]) -> Any:
    """Create (another binding), replace or patch with annotations."""
    if verb == "create":
        made = binding(api.get(f"{BINDINGS}/shapes").json["spec"]["reference"]["export"]["path"], "shapes", (), "next")
        return api.send("POST", BINDINGS, {**made, "metadata": {**made["metadata"], "annotations": annotations}})
    if verb == "patch":
        return api.send("PATCH", f"{BINDINGS}/shapes", {"metadata": {"annotations": annotations}}, kind=MERGE)

    def replaced() -> Any:
        found = api.get(f"{BINDINGS}/shapes").json
        kept = {key: value for key, value in found["metadata"]["annotations"].items() if key != PIN}
        given = {key: value for key, value in annotations.items() if value is not None}
        metadata = {**found["metadata"], "annotations": {**kept, **given}}
        answer = api.send("PUT", f"{BINDINGS}/shapes", {**found, "metadata": metadata})
        # Controllers write the binding too.
        return answer if answer.code != 409 else None

    return eventually(replaced, "it is replaced", PATIENCE_S)


@pytest.mark.parametrize("verb", ["create", "update", "patch"])
def test_a_pin_that_is_no_hash_is_refused(provider: Api, consumer: Api, verb: str) -> None:
    consumer.post(BINDINGS, pinned(provider.cluster, offer(provider)))
    for bad in ("", "x", OTHER[1:], OTHER + "0", "A" * 64, "é" * 64):
        answer = _sent(consumer, verb, {PIN: bad})
        assert answer.code == 403, (bad, answer.body)
        assert f"metadata.annotations[{PIN}]" in answer.message


@pytest.mark.parametrize("verb", ["update", "patch"])
def test_who_may_not_bind_neither_changes_nor_removes_a_pin(provider: Api, consumer: Api, verb: str) -> None:
    identity = offer(provider)
    consumer.post(BINDINGS, pinned(provider.cluster, identity))
    wait_bound(consumer, "shapes")
    resources = ["apibindings", "apibindings/status"]
    allow(consumer, "edits", "alice", apiGroups=["apis.kcp.io"], resources=resources, verbs=["*"])
    allow(consumer, "enters", "alice", nonResourceURLs=["/"], verbs=["access"])
    alice = Api(consumer.shard, consumer.cluster, token="alice-token")
    for change in ({PIN: OTHER}, {PIN: None}):
        answer = _sent(alice, verb, change)
        assert answer.code == 403, answer.body
        assert "no permission to bind to export" in answer.message
    for path in (f"{BINDINGS}/shapes/status", f"{BINDINGS}/shapes?fieldManager=alice&force=true"):
        alice.send("PATCH", path, {"metadata": {"annotations": {PIN: None}}}, kind=MERGE)
        assert consumer.get(f"{BINDINGS}/shapes").json["metadata"]["annotations"][PIN] == identity
    assert _sent(alice, verb, {"note": "x", PIN: identity}).code == 200
    assert _sent(consumer, verb, {PIN: OTHER}).code == 200
    refused(consumer)
    assert _sent(consumer, verb, {PIN: None}).code == 200
    wait_condition(consumer, f"{BINDINGS}/shapes", "APIExportValid")
    # To pin gives no rights, and whoever may delete the binding may do that.
    assert _sent(alice, verb, {PIN: identity}).code == 200
    alice.delete(f"{BINDINGS}/shapes")
