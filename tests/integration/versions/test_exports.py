"""APIExports in v1alpha1 and v1alpha2 over the wire: one object in two versions."""

from __future__ import annotations

import json
from typing import Any

from harness.clients.api import APPLY, JSON_PATCH, TABLE, Api, Object
from harness.clients.exports import EXPORTS, SCHEMAS, claim, export, resource_of, schema, wait_condition

OLD_EXPORTS = "/apis/apis.kcp.io/v1alpha1/apiexports"
CLAIMS = "apis.v1alpha2.kcp.io/permission-claims"
RESOURCES = "apis.v1alpha2.kcp.io/resource-schemas"
OLD_CLAIMS = "apis.v1alpha2.kcp.io/v1alpha1-permission-claims"
VIRTUAL = {"virtual": {"reference": {"kind": "Slice", "name": "a"}, "identityHash": "ab"}}


def old_export(name: str, **spec: Any) -> Object:
    return {"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIExport", "metadata": {"name": name}, "spec": spec}


def notes(obj: Object) -> Object:
    return {key: value for key, value in obj["metadata"].get("annotations", {}).items() if "v1alpha2.kcp.io" in key}


def owned(obj: Object, manager: str) -> Object:
    """Fields of spec that a manager owns, by version."""
    entries = [each for each in obj["metadata"]["managedFields"] if each["manager"] == manager]
    return {each["apiVersion"]: each["fieldsV1"].get("f:spec") for each in entries}


def test_discovery_serves_both_versions_and_prefers_the_later(provider: Api) -> None:
    group = provider.get("/apis/apis.kcp.io").json
    assert [each["version"] for each in group["versions"]] == ["v1alpha2", "v1alpha1"]
    assert group["preferredVersion"]["version"] == "v1alpha2"
    for version, more in (("v1alpha2", set()), ("v1alpha1", {"apiresourceschemas", "apiconversions"})):
        served = provider.get(f"/apis/apis.kcp.io/{version}").json["resources"]
        names = {each["name"] for each in served}
        assert {"apiexports", "apiexports/status", "apibindings", "apibindings/status", *more} <= names


def test_what_is_written_in_the_old_version_is_read_in_the_new_one(provider: Api) -> None:
    provider.post(SCHEMAS, schema("circles"))
    selected = [{"name": "one", "namespace": "default"}]
    claims: list[dict[str, Any]] = [
        {"resource": "configmaps", "all": True},
        {"resource": "secrets", "resourceSelector": selected},
    ]
    sent = old_export("old", latestResourceSchemas=["today.circles.shapes.example.com"], permissionClaims=claims)
    made = provider.post(OLD_EXPORTS, sent).json
    assert made["apiVersion"] == "apis.kcp.io/v1alpha1"
    assert made["spec"]["latestResourceSchemas"] == ["today.circles.shapes.example.com"]
    assert notes(made) == {}

    found = provider.get(f"{EXPORTS}/old").json
    assert found["apiVersion"] == "apis.kcp.io/v1alpha2"
    assert found["spec"]["resources"] == [{**resource_of(schema("circles")), "storage": {"crd": {}}}]
    assert found["spec"]["permissionClaims"] == [
        {"group": "", "resource": name, "verbs": ["*"], "identityHash": ""} for name in ("configmaps", "secrets")
    ]
    assert json.loads(notes(found)[OLD_CLAIMS]) == [{"group": "", **each} for each in claims]

    again = provider.get(f"{OLD_EXPORTS}/old").json
    assert again["spec"]["permissionClaims"] == [{"group": "", **each} for each in claims]
    assert again["metadata"]["uid"] == found["metadata"]["uid"]


def test_what_only_the_new_version_says_survives_a_write_in_the_old_one(provider: Api) -> None:
    sent = export("new", schema("circles"), claims=[claim("configmaps", "", "get", "list")])
    sent["spec"]["resources"].append({**resource_of(schema("squares")), "storage": VIRTUAL})
    provider.post(EXPORTS, sent)
    wait_condition(provider, f"{EXPORTS}/new", "IdentityValid")
    old = provider.get(f"{OLD_EXPORTS}/new").json
    assert old["spec"]["latestResourceSchemas"] == ["today.circles.shapes.example.com"]
    assert old["spec"]["permissionClaims"] == [{"group": "", "resource": "configmaps"}]
    assert set(notes(old)) == {RESOURCES, CLAIMS}
    before = provider.get(f"{EXPORTS}/new").json

    unchanged = provider.put(f"{OLD_EXPORTS}/new", old).json
    assert unchanged["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]

    old["metadata"]["labels"] = {"a": "b"}
    provider.put(f"{OLD_EXPORTS}/new", old)
    after = provider.get(f"{EXPORTS}/new").json
    assert after["spec"] == before["spec"]
    assert after["metadata"]["labels"] == {"a": "b"}
    assert notes(after) == {}


def test_patches_of_either_version_work_on_one_object(provider: Api) -> None:
    provider.post(EXPORTS, export("patched", claims=[claim("configmaps", "", "get")]))
    provider.patch(f"{OLD_EXPORTS}/patched", {"spec": {"latestResourceSchemas": ["today.circles.shapes.example.com"]}})
    found = provider.get(f"{EXPORTS}/patched").json["spec"]
    assert [each["schema"] for each in found["resources"]] == ["today.circles.shapes.example.com"]
    assert found["permissionClaims"][0]["verbs"] == ["get"]
    step = {"op": "add", "path": "/spec/permissionClaims/-", "value": {"resource": "secrets", "all": True}}
    provider.patch(f"{OLD_EXPORTS}/patched", [step], JSON_PATCH)
    found = provider.get(f"{EXPORTS}/patched").json["spec"]
    assert [each["verbs"] for each in found["permissionClaims"]] == [["get"], ["*"]]


def test_field_ownership_is_followed_across_versions(provider: Api) -> None:
    path = f"{OLD_EXPORTS}/owned?fieldManager="
    one, two = "today.circles.shapes.example.com", "today.squares.shapes.example.com"
    provider.patch(path + "first", old_export("owned", latestResourceSchemas=[one]), APPLY, expect=201)
    wait_condition(provider, f"{EXPORTS}/owned", "IdentityValid")
    provider.patch(path + "second", old_export("owned", latestResourceSchemas=[two]), APPLY)
    found = provider.get(f"{EXPORTS}/owned").json
    assert {each["schema"] for each in found["spec"]["resources"]} == {one, two}
    assert owned(found, "first") == {"apis.kcp.io/v1alpha1": {"f:latestResourceSchemas": {f'v:"{one}"': {}}}}

    # A field that v1alpha2 removes has no owner in v1alpha1.
    left = [each for each in found["spec"]["resources"] if each["schema"] == two]
    provider.put(f"{EXPORTS}/owned", {**found, "spec": {**found["spec"], "resources": left}})
    after = provider.get(f"{OLD_EXPORTS}/owned").json
    assert after["spec"]["latestResourceSchemas"] == [two]
    assert owned(after, "first") in ({}, {"apis.kcp.io/v1alpha1": None})
    assert owned(after, "second") == {"apis.kcp.io/v1alpha1": {"f:latestResourceSchemas": {f'v:"{two}"': {}}}}

    # An apply without a field that no other manager owns removes it, in either version.
    new = {"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": {"name": "owned"}, "spec": {}}
    final = provider.patch(f"{EXPORTS}/owned?fieldManager=second", new, APPLY).json
    assert not final["spec"].get("resources")
    assert provider.get(f"{OLD_EXPORTS}/owned").json["spec"].get("latestResourceSchemas", []) == []


def test_a_write_in_the_old_version_takes_fields_from_their_owner_in_the_new_one(provider: Api) -> None:
    applied = export("taken", schema("circles"))
    provider.patch(f"{EXPORTS}/taken?fieldManager=first", applied, APPLY, expect=201)
    found = wait_condition(provider, f"{EXPORTS}/taken", "IdentityValid")
    key = 'k:{"group":"shapes.example.com","name":"circles"}'
    assert "f:schema" in owned(found, "first")["apis.kcp.io/v1alpha2"]["f:resources"][key]
    provider.patch(f"{OLD_EXPORTS}/taken", {"spec": {"latestResourceSchemas": ["next.circles.shapes.example.com"]}})
    found = provider.get(f"{EXPORTS}/taken").json
    left = owned(found, "first")["apis.kcp.io/v1alpha2"]["f:resources"][key]
    assert "f:schema" not in left and "f:name" in left


def test_lists_and_watches_speak_the_version_they_were_asked_in(provider: Api) -> None:
    provider.post(EXPORTS, export("listed", schema("circles")))
    found = provider.get(OLD_EXPORTS).json
    assert (found["apiVersion"], found["kind"]) == ("apis.kcp.io/v1alpha1", "APIExportList")
    mine = next(each for each in found["items"] if each["metadata"]["name"] == "listed")
    assert mine["apiVersion"] == "apis.kcp.io/v1alpha1" and "resources" not in mine["spec"]
    field = "fieldSelector=metadata.name%3Dwatched"
    with provider.watch(f"{OLD_EXPORTS}?watch=1&{field}") as old, provider.watch(f"{EXPORTS}?watch=1&{field}") as new:
        provider.post(OLD_EXPORTS, old_export("watched", latestResourceSchemas=["today.circles.shapes.example.com"]))
        first, second = old.until("ADDED").object, new.until("ADDED").object
    assert first["spec"]["latestResourceSchemas"] == ["today.circles.shapes.example.com"]
    assert second["spec"]["resources"][0]["name"] == "circles"
    assert first["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]


def test_tables_have_the_columns_of_their_version(provider: Api) -> None:
    provider.post(EXPORTS, export("shown"))
    for path, columns in ((EXPORTS, ["Name", "Age"]), (OLD_EXPORTS, ["Name", "Age", "Ready"])):
        table = provider.get(f"{path}/shown", accept=TABLE).json
        assert [each["name"] for each in table["columnDefinitions"]] == columns


def test_names_of_schemas_that_say_no_resource_are_refused(provider: Api) -> None:
    answer = provider.post(OLD_EXPORTS, old_export("bad", latestResourceSchemas=["a.b"]), expect=422)
    text = 'spec.latestResourceSchemas[0]: Invalid value: "a.b": must have at least 3 dot-separated segments'
    assert text in answer.message


def test_nothing_comes_in_by_the_old_version_that_the_new_one_refuses(provider: Api) -> None:
    """Annotations become fields, so they are validated as fields."""
    offered = [{**resource_of(schema("circles")), "storage": {"crd": {}, **VIRTUAL}}]
    sent = old_export("sneaky")
    sent["metadata"]["annotations"] = {RESOURCES: json.dumps(offered)}
    assert "Exactly one of crd or virtual must be set" in provider.post(OLD_EXPORTS, sent, expect=422).message
    sent["metadata"]["annotations"] = {RESOURCES: json.dumps([{**offered[0], "name": "NOT-LOWER"}])}
    assert "spec.resources[0].name" in provider.post(OLD_EXPORTS, sent, expect=422).message
    sent["metadata"]["annotations"] = {RESOURCES: json.dumps([{**resource_of(schema("circles")), "schema": "other"}])}
    assert "must end in .circles.shapes.example.com" in provider.post(OLD_EXPORTS, sent, expect=403).message
    sent["metadata"]["annotations"] = {RESOURCES: "no JSON"}
    assert "failed to decode overhanging resource schemas" in provider.post(OLD_EXPORTS, sent, expect=422).message
    twice = old_export("twice", latestResourceSchemas=["a.circles.example.com", "b.circles.example.com"])
    text = 'spec.latestResourceSchemas[1]: Invalid value: "b.circles.example.com": there is another schema of'
    assert text in provider.post(OLD_EXPORTS, twice, expect=422).message
