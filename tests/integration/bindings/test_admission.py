"""Admission of APIBindings."""

from __future__ import annotations

import hashlib
import string
from typing import Any

import pytest

from harness.clients import tenants
from harness.clients.api import Api, eventually, workspace_under
from harness.clients.exports import (
    BINDINGS,
    EXPORTS,
    PATIENCE_S,
    accepted,
    bind,
    binding,
    claim,
    cluster_of,
    export,
    make_export,
    schema,
)

WORKSPACES = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
SELECTOR = "spec.permissionClaims[0].selector"
NEEDED = "either one of matchAll, matchLabels, or matchExpressions must be set"
BAD_SELECTORS: dict[str, tuple[Any, ...]] = {
    "neither": ({}, f"{SELECTOR}: Required value: {NEEDED}"),
    "nothing in it": ({"matchLabels": {}}, NEEDED),
    "all and labels": (
        {"matchAll": True, "matchLabels": {"a": "b"}},
        f"{SELECTOR}.matchLabels: Invalid value: ",
        "matchLabels cannot be used with matchAll",
    ),
    "all and expressions": (
        {"matchAll": True, "matchExpressions": [{"key": "a", "operator": "Exists"}]},
        f"{SELECTOR}.matchExpressions: Invalid value: ",
        "matchExpressions cannot be used with matchAll",
    ),
    "no operator of labels": (
        {"matchExpressions": [{"key": "a", "operator": "Like", "values": ["b"]}]},
        f"{SELECTOR}.matchExpressions[0].operator",
    ),
}


@pytest.mark.parametrize("case", BAD_SELECTORS)
def test_a_claim_is_for_everything_or_for_what_labels_select(consumer: Api, case: str) -> None:
    selector, *texts = BAD_SELECTORS[case]
    sent = binding("root", "tenancy.kcp.io", called="mine")
    sent["spec"]["permissionClaims"] = [{**accepted(claim("configmaps")), "selector": selector}]
    message = consumer.post(BINDINGS, sent, expect=403).message
    assert all(text in message for text in texts), message


def test_a_selector_may_be_narrowed_in_place(provider: Api, consumer: Api) -> None:
    asked = claim("configmaps")
    make_export(provider, "shapes", schema("circles"), claims=[asked])
    bind(consumer, cluster_of(provider), "shapes", [accepted(asked)])
    narrowed = [accepted(asked, matchLabels={"for": "shapes"})]
    answer = consumer.patch(f"{BINDINGS}/shapes", {"spec": {"permissionClaims": narrowed}}).json
    assert answer["spec"]["permissionClaims"][0]["selector"] == {"matchLabels": {"for": "shapes"}}


def test_the_reference_never_changes(provider: Api, consumer: Api) -> None:
    make_export(provider, "shapes", schema("circles"))
    bind(consumer, cluster_of(provider), "shapes")
    other: dict[str, Any] = {"spec": {"reference": {"export": {"name": "others"}}}}
    for path in (BINDINGS, BINDINGS.replace("v1alpha2", "v1alpha1")):
        assert "APIExport reference must not be changed" in consumer.patch(f"{path}/shapes", other, expect=422).message


def test_the_phase_never_goes_back(master: Api, provider: Api, consumer: Api) -> None:
    make_export(provider, "shapes", schema("circles"))
    bind(consumer, cluster_of(provider), "shapes")
    here = Api(master.shard, cluster_of(consumer), "shard-admin")
    answer = here.patch(f"{BINDINGS}/shapes/status", {"status": {"phase": ""}}, expect=403)
    here.close()
    assert 'status.phase: Forbidden: cannot transition from "Bound" to ""' in answer.message


def base62(data: bytes) -> str:
    """The bytes as a number in digits, small letters and capitals, as kcp prints hashes."""
    alphabet = string.digits + string.ascii_lowercase + string.ascii_uppercase
    number, text = int.from_bytes(data, "big"), ""
    while number:
        number, digit = divmod(number, 62)
        text = alphabet[digit] + text
    return text


def test_label_and_finalizer_are_the_systems(provider: Api, consumer: Api) -> None:
    make_export(provider, "shapes", schema("circles"))
    sent = binding(cluster_of(provider), "shapes")
    sent["metadata"] |= {"labels": {"internal.apis.kcp.io/export": "mine"}, "finalizers": ["example.com/own"]}
    made = consumer.post(BINDINGS, sent).json["metadata"]
    label = made["labels"]["internal.apis.kcp.io/export"]
    assert label == base62(hashlib.sha224(f"{cluster_of(provider)}:shapes".encode()).digest())
    assert made["finalizers"] == ["example.com/own", "apis.kcp.io/apibinding-finalizer"]
    for wanted in ("other", None):
        body = {"metadata": {"labels": {"internal.apis.kcp.io/export": wanted}}}
        found = consumer.patch(f"{BINDINGS}/shapes", body).json["metadata"]
        assert found["labels"]["internal.apis.kcp.io/export"] == label
    consumer.patch(f"{BINDINGS}/shapes", {"metadata": {"finalizers": ["apis.kcp.io/apibinding-finalizer"]}})


def test_a_label_stays_when_the_exports_workspace_cannot_be_found(consumer: Api, master: Api) -> None:
    """A caller that could relabel such a binding would appear among another export's consumers."""
    here = Api(master.shard, cluster_of(consumer), "shard-admin")
    here.post(BINDINGS, binding("root:nowhere", "gone"))
    body = {"metadata": {"labels": {"internal.apis.kcp.io/export": "stolen", "a": "b"}}}
    found = consumer.patch(f"{BINDINGS}/gone", body).json["metadata"]
    here.close()
    assert found["labels"].get("a") == "b"
    assert "internal.apis.kcp.io/export" not in found["labels"]


def test_a_binding_keeps_its_label_when_the_exports_workspace_is_gone(admin: Api, consumer: Api) -> None:
    """The label tells that the definition that the binding uses is bound."""
    name = workspace_under(admin, type_="universal").removeprefix("root:")
    provider = admin.at(f"root:{name}")
    make_export(provider, "shapes", schema("circles"))
    bind(consumer, provider.cluster, "shapes")
    label = consumer.get(f"{BINDINGS}/shapes").json["metadata"]["labels"]["internal.apis.kcp.io/export"]
    admin.delete(f"{WORKSPACES}/{name}")
    eventually(lambda: admin.get(f"{WORKSPACES}/{name}", expect=0).code == 404, "the provider gone", PATIENCE_S)
    after = consumer.patch(f"{BINDINGS}/shapes", {"metadata": {"labels": {"a": "b"}}}).json["metadata"]["labels"]
    assert (after["a"], after["internal.apis.kcp.io/export"]) == ("b", label)


def test_nobody_binds_what_they_may_not(provider: Api, consumer: Api) -> None:
    provider.post(EXPORTS, export("hidden"))
    path = cluster_of(provider)
    bob = Api(consumer.shard, cluster_of(consumer), token="bob-token")
    tenants.bind(consumer, "cluster-admin", tenants.user("bob"))
    for name in ("hidden", "missing"):
        text = f"unable to create APIBinding: no permission to bind to export {path}:{name}"
        assert text in bob.post(BINDINGS, binding(path, name), expect=403).message
    bob.close()
