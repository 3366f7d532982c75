"""Admission of APIExports, APIResourceSchemas, APIConversions, Partitions and PartitionSets."""

from __future__ import annotations

from typing import Any

import pytest

from harness.clients.api import Api, Object, eventually
from harness.clients.exports import (
    CONVERSIONS,
    EXPORTS,
    SCHEMAS,
    SLICES,
    claim,
    cluster_of,
    condition,
    export,
    make_export,
    schema,
    wait_condition,
)

NO_IDENTITY = (
    'spec.permissionClaims[0].identityHash: Invalid value: "": identityHash is required for API types that are not'
    " built-in"
)
CLAIMABLE = [
    ("configmaps", ""),
    ("events", ""),
    ("events", "events.k8s.io"),
    ("roles", "rbac.authorization.k8s.io"),
    ("customresourcedefinitions", "apiextensions.k8s.io"),
    ("logicalclusters", "core.kcp.io"),
    ("apibindings", "apis.kcp.io"),
    ("subjectaccessreviews", "authorization.k8s.io"),
    ("leases", "coordination.k8s.io"),
]
TOPOLOGY = "/apis/topology.kcp.io/v1alpha1"


@pytest.mark.parametrize(("resource", "group"), CLAIMABLE, ids=[f"{each[1] or 'core'} {each[0]}" for each in CLAIMABLE])
def test_built_in_kinds_are_claimed_without_an_identity(provider: Api, resource: str, group: str) -> None:
    provider.post(EXPORTS, export("claiming", claims=[claim(resource, group)]))


@pytest.mark.parametrize("version", ["v1alpha1", "v1alpha2"])
@pytest.mark.parametrize(
    ("resource", "group"), [("widgets", "example.io"), ("pods", ""), ("workspaces", "tenancy.kcp.io")]
)
def test_other_kinds_are_claimed_by_their_identity(provider: Api, resource: str, group: str, version: str) -> None:
    sent = export("claiming", claims=[claim(resource, group)])
    if version == "v1alpha1":
        sent |= {"apiVersion": "apis.kcp.io/v1alpha1"}
        sent["spec"] = {"permissionClaims": [{"group": group, "resource": resource, "all": True}]}
    answer = provider.post(EXPORTS.replace("v1alpha2", version), sent, expect=403)
    assert NO_IDENTITY in answer.message
    sent["spec"]["permissionClaims"][0]["identityHash"] = "ab" * 32
    provider.post(EXPORTS.replace("v1alpha2", version), sent)


@pytest.mark.parametrize(
    ("name", "group", "named", "end"),
    [
        ("circles", "shapes.example.com", "today.squares.shapes.example.com", ".circles.shapes.example.com"),
        ("circles", "shapes.example.com", "circles.shapes.example.com", ".circles.shapes.example.com"),
        ("pods", "", "today.pods.example.com", ".pods.core"),
    ],
    ids=["other kind", "no prefix", "core"],
)
def test_a_schema_is_named_after_its_resource(provider: Api, name: str, group: str, named: str, end: str) -> None:
    sent = export("named")
    sent["spec"]["resources"] = [{"name": name, "group": group, "schema": named}]
    answer = provider.post(EXPORTS, sent, expect=403)
    assert f'spec.resources[0].schema: Invalid value: "{named}": must end in {end}' in answer.message


def test_no_tenant_writes_the_identity_hash(master: Api, provider: Api) -> None:
    """With another's hash a tenant would see its objects. Masters may write the hash; the controller corrects it."""
    made = make_export(provider, "shapes", schema("circles"))
    path, own = f"{EXPORTS}/shapes", made["status"]["identityHash"]
    provider.patch(f"{path}/status", {"status": {"identityHash": "ab" * 32}}, expect=403)
    assert provider.get(path).json["status"]["identityHash"] == own
    here = Api(master.shard, cluster_of(provider), "shard-admin")
    here.patch(f"{path}/status", {"status": {"identityHash": "ab" * 32}})

    def verified() -> bool:
        found = condition(provider.get(path).json, "IdentityValid")
        return bool(found["status"] == "False" and found["reason"] == "IdentityVerificationFailed")

    eventually(verified, "the mismatch in the conditions")
    here.patch(f"{path}/status", {"status": {"identityHash": None}})
    eventually(lambda: provider.get(path).json["status"].get("identityHash") == own, "the hash of the key")
    here.close()


def test_a_schema_never_changes(provider: Api) -> None:
    made = schema("circles")
    provider.post(SCHEMAS, made)
    path = f"{SCHEMAS}/{made['metadata']['name']}"
    assert "is immutable" in provider.patch(path, {"spec": {"names": {"categories": ["all"]}}}, expect=403).message
    provider.patch(path, {"metadata": {"labels": {"a": "b"}}})


def _two(**conversion: Any) -> Object:
    """A schema in two versions: v1 (stored) has the field `width`, v2 `size.width`."""
    sides = {
        "v1": {"width": {"type": "integer"}, "unit": {"type": "string"}},
        "v2": {"size": {"type": "object", "properties": {"width": {"type": "integer"}}}, "unit": {"type": "string"}},
    }
    made = schema("boxes", prefix="two")
    made["spec"]["versions"] = [
        {
            "name": name,
            "served": True,
            "storage": name == "v1",
            "schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": sides[name]}}},
        }
        for name in ("v1", "v2")
    ]
    made["spec"]["conversion"] = conversion or {"strategy": "None"}
    return made


def _conversion(*directions: Object, name: str = "two.boxes.shapes.example.com") -> Object:
    return {
        "apiVersion": "apis.kcp.io/v1alpha1",
        "kind": "APIConversion",
        "metadata": {"name": name},
        "spec": {"conversions": list(directions)},
    }


def _rule(field: str, destination: str, transformation: str = "") -> Object:
    rule = {"field": field, "destination": destination}
    return {**rule, "transformation": transformation} if transformation else rule


BAD_RULES: dict[str, tuple[Object, str]] = {
    "no such version": ({"from": "v3", "to": "v1", "rules": []}, 'spec.conversions[0].from: Invalid value: "v3"'),
    "no such target": ({"from": "v1", "to": "v3", "rules": []}, 'spec.conversions[0].to: Invalid value: "v3"'),
    "no such field": (
        {"from": "v1", "to": "v2", "rules": [_rule(".spec.height", ".spec.size.width")]},
        'spec.conversions[0].rules[0].field: Invalid value: ".spec.height": field "spec.height" doesn\'t exist',
    ),
    "no CEL": (
        {"from": "v1", "to": "v2", "rules": [_rule(".spec.width", ".spec.size.width", "self +")]},
        "spec.conversions[0].rules[0].transformation: Invalid value:",
    ),
    "wrong type": (
        {"from": "v1", "to": "v2", "rules": [_rule(".spec.width", ".spec.size.width", "self.upperAscii()")]},
        "error compiling CEL program",
    ),
    "into metadata": (
        {"from": "v1", "to": "v2", "rules": [_rule(".spec.unit", ".metadata.name")]},
        "spec.conversions[0].rules[0].destination: Forbidden: only fields outside of metadata can be converted",
    ),
    "metadata kept": (
        {"from": "v1", "to": "v2", "rules": [], "preserve": [".metadata.uid"]},
        "spec.conversions[0].preserve[0]: Forbidden:",
    ),
}


@pytest.mark.parametrize("case", BAD_RULES)
def test_rules_of_a_conversion_fit_its_schema(provider: Api, case: str) -> None:
    direction, text = BAD_RULES[case]
    provider.post(SCHEMAS, _two())
    message = provider.post(CONVERSIONS, _conversion(direction), expect=403).message
    assert "error compiling conversion rules" in message and text in message
    provider.post(CONVERSIONS, _conversion({"from": "v1", "to": "v2", "rules": []}))
    path = f"{CONVERSIONS}/two.boxes.shapes.example.com"
    assert text in provider.patch(path, {"spec": {"conversions": [direction]}}, expect=403).message


def test_a_conversion_has_the_name_of_a_schema(provider: Api) -> None:
    answer = provider.post(CONVERSIONS, _conversion(name="two.boxes.shapes.example.com"), expect=403)
    assert "error getting APIResourceSchema two.boxes.shapes.example.com" in answer.message


def test_paths_are_kept_by_the_system(provider: Api) -> None:
    cluster = provider.get("/apis/core.kcp.io/v1alpha1/logicalclusters/cluster").json
    path = cluster["metadata"]["annotations"]["kcp.io/path"]
    for version in ("v1alpha1", "v1alpha2"):
        sent = export(f"pathed-{version}") | {"apiVersion": f"apis.kcp.io/{version}", "spec": {}}
        sent["metadata"]["annotations"] = {"kcp.io/path": "root:elsewhere"}
        made = provider.post(EXPORTS.replace("v1alpha2", version), sent).json
        assert made["metadata"]["annotations"]["kcp.io/path"] == path
        body = {"metadata": {"annotations": {"kcp.io/path": None}}}
        found = provider.patch(f"{EXPORTS}/pathed-{version}", body).json
        assert found["metadata"]["annotations"]["kcp.io/path"] == path


def test_a_slices_reference_never_changes(provider: Api) -> None:
    made = make_export(provider, "shapes", schema("circles"))
    assert made["metadata"]["name"] == "shapes"
    provider.post(
        SLICES,
        {
            "apiVersion": "apis.kcp.io/v1alpha1",
            "kind": "APIExportEndpointSlice",
            "metadata": {"name": "more"},
            "spec": {"export": {"path": cluster_of(provider), "name": "shapes"}},
        },
    )
    body = {"spec": {"export": {"name": "other"}}}
    assert "APIExport reference must not be changed" in provider.patch(f"{SLICES}/more", body, expect=422).message


BAD_PARTITIONS = {
    "operator": {"matchExpressions": [{"key": "region", "operator": "Like"}]},
    "key": {"matchLabels": {"not a key": "x"}},
    "value": {"matchLabels": {"region": "not a value"}},
    "no values": {"matchExpressions": [{"key": "region", "operator": "In"}]},
    "values": {"matchExpressions": [{"key": "region", "operator": "Exists", "values": ["x"]}]},
}


@pytest.mark.parametrize("case", BAD_PARTITIONS)
@pytest.mark.parametrize("kind", ["Partition", "PartitionSet"])
def test_partitions_select_shards_by_sound_labels(provider: Api, kind: str, case: str) -> None:
    field = "selector" if kind == "Partition" else "shardSelector"
    sent: Object = {
        "apiVersion": "topology.kcp.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": "mine"},
        "spec": {field: BAD_PARTITIONS[case]},
    }
    path = f"{TOPOLOGY}/{kind.lower()}s"
    answer = provider.post(path, sent, expect=422)
    assert f"spec.{field}" in answer.message
    sent["spec"] = {field: {"matchLabels": {"region": "eu"}}}
    provider.post(path, sent)
    body = {"spec": {field: BAD_PARTITIONS[case]}}
    assert f"spec.{field}" in provider.patch(f"{path}/mine", body, expect=422).message


@pytest.mark.parametrize(
    "several",
    [
        {"matchLabels": {f"l{number}": "x" for number in range(11)}},
        {"matchExpressions": [{"key": f"l{number}", "operator": "Exists"} for number in range(11)]},
    ],
    ids=["labels", "expressions"],
)
def test_a_partition_set_has_ten_requirements_at_most(provider: Api, several: Object) -> None:
    sent = {
        "apiVersion": "topology.kcp.io/v1alpha1",
        "kind": "PartitionSet",
        "metadata": {"name": "many"},
        "spec": {"shardSelector": several},
    }
    assert "must have at most 10 items" in provider.post(f"{TOPOLOGY}/partitionsets", sent, expect=422).message


def test_webhooks_of_a_schema_are_reached_over_https(provider: Api) -> None:
    client = {"url": "http://example.com/convert"}
    webhook = {"clientConfig": client, "conversionReviewVersions": ["v1"]}
    answer = provider.post(SCHEMAS, _two(strategy="Webhook", webhook=webhook), expect=422)
    assert "spec.conversion.webhook.clientConfig.url" in answer.message
    answer = provider.post(SCHEMAS, _two(strategy="Webhook"), expect=422)
    assert "Webhook must be specified if strategy=Webhook" in answer.message
    several = _two()
    del several["spec"]["conversion"]
    answer = provider.post(SCHEMAS, several, expect=422)
    assert "Conversion must be specified when multiple versions exist" in answer.message


def test_an_exports_condition_is_told_in_both_versions(provider: Api) -> None:
    provider.post(EXPORTS, export("told", schema("circles")))
    wait_condition(provider, f"{EXPORTS.replace('v1alpha2', 'v1alpha1')}/told", "IdentityValid")
