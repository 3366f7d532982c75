"""Discovery, version, health, OpenAPI and metrics: the first requests of every client."""

from __future__ import annotations

import re

import pytest

from harness.clients.api import Api, crd, define

AGGREGATED = (
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
)
V2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_FULL = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


@pytest.mark.parametrize("path", ["/api", "/apis"])
def test_aggregated_discovery_is_served_on_both_roots_with_its_exact_content_type(api: Api, path: str) -> None:
    answer = api.get(path, accept=AGGREGATED)
    assert answer.header("content-type") == V2
    assert (answer.json["kind"], answer.json["apiVersion"]) == ("APIGroupDiscoveryList", "apidiscovery.k8s.io/v2")
    assert re.fullmatch(r'"[0-9A-F]{128}"', answer.header("etag"))
    assert (answer.header("vary"), answer.header("cache-control")) == ("Accept", "public")


def test_the_older_aggregated_version_and_the_newest_profile_are_understood(api: Api) -> None:
    beta = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
    assert api.get("/apis", accept=beta).header("content-type") == beta
    profile = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer,application/json"
    assert api.get("/apis", accept=profile).header("content-type") == V2


def test_discovery_with_the_known_etag_is_a_304_without_body(api: Api) -> None:
    etag = api.get("/apis", accept=AGGREGATED).header("etag")
    again = api.get("/apis", accept=AGGREGATED, headers={"If-None-Match": etag}, expect=304)
    assert (again.body, again.header("etag")) == (b"", etag)
    define(api, crd("circles"))
    assert api.get("/apis", accept=AGGREGATED, headers={"If-None-Match": etag}).header("etag") != etag


def test_aggregated_entries_say_scope_kind_verbs_and_subresources(api: Api) -> None:
    core = api.get("/api", accept=AGGREGATED).json["items"]
    assert len(core) == 1
    assert not core[0]["metadata"].get("name")
    version = core[0]["versions"][0]
    assert (version["version"], version["freshness"]) == ("v1", "Current")
    by_name = {entry["resource"]: entry for entry in version["resources"]}
    assert by_name["configmaps"]["scope"] == "Namespaced"
    assert by_name["configmaps"]["responseKind"] == {"group": "", "version": "v1", "kind": "ConfigMap"}
    assert sorted(by_name["configmaps"]["verbs"]) == _FULL
    assert sorted(by_name["namespaces"]["verbs"]) == [verb for verb in _FULL if verb != "deletecollection"]
    subresources = {each["subresource"]: each for each in by_name["namespaces"]["subresources"]}
    assert set(subresources) == {"status", "finalize"}
    token = by_name["serviceaccounts"]["subresources"][0]
    expected = {"group": "authentication.k8s.io", "version": "v1", "kind": "TokenRequest"}
    assert (token["subresource"], token["responseKind"]) == ("token", expected)


def test_legacy_discovery_holds_what_the_aggregated_one_does(api: Api) -> None:
    versions = api.get("/api").json
    assert (versions["kind"], versions["versions"]) == ("APIVersions", ["v1"])
    assert versions["serverAddressByClientCIDRs"][0]["clientCIDR"] == "0.0.0.0/0"
    groups = api.get("/apis").json
    aggregated = api.get("/apis", accept=AGGREGATED).json["items"]
    assert [group["name"] for group in groups["groups"]] == [item["metadata"]["name"] for item in aggregated]
    for group, item in zip(groups["groups"], aggregated, strict=True):
        assert group["preferredVersion"] == group["versions"][0]
        assert api.get(f"/apis/{group['name']}").json == {"kind": "APIGroup", "apiVersion": "v1", **group}
        for version, entry in zip(group["versions"], item["versions"], strict=True):
            found = api.get(f"/apis/{version['groupVersion']}").json
            assert (found["kind"], found["groupVersion"]) == ("APIResourceList", version["groupVersion"])
            names = {each["name"] for each in found["resources"] if "/" not in each["name"]}
            assert names == {each["resource"] for each in entry["resources"]}
            assert all("singularName" in each for each in found["resources"])


def test_the_workspace_serves_the_groups_of_a_kcp_workspace(api: Api) -> None:
    names = [group["name"] for group in api.get("/apis").json["groups"]]
    expected = {
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "authentication.k8s.io",
        "authorization.k8s.io",
        "certificates.k8s.io",
        "coordination.k8s.io",
        "events.k8s.io",
        "rbac.authorization.k8s.io",
        "apis.kcp.io",
        "core.kcp.io",
        "tenancy.kcp.io",
        "topology.kcp.io",
    }
    assert expected <= set(names)
    assert "" not in names


def test_the_scale_of_a_custom_kind_is_listed_with_its_own_group(api: Api) -> None:
    define(api, crd("circles"))
    found = {each["name"]: each for each in api.get("/apis/shapes.example.com/v1").json["resources"]}
    scale = found["circles/scale"]
    assert (scale["group"], scale["version"], scale["kind"]) == ("autoscaling", "v1", "Scale")
    assert sorted(scale["verbs"]) == ["get", "patch", "update"]
    assert found["circles/status"]["kind"] == "Circle"


def test_versions_are_ordered_by_stability_and_number(api: Api) -> None:
    definition = crd("circles")
    first = definition["spec"]["versions"][0]
    names = ("v1alpha1", "v10", "v2beta1", "v2", "v11alpha2")
    definition["spec"]["versions"] = [{**first, "name": name, "storage": name == "v2"} for name in names]
    define(api, definition)
    group = api.get("/apis/shapes.example.com").json
    assert [each["version"] for each in group["versions"]] == ["v10", "v2", "v2beta1", "v11alpha2", "v1alpha1"]


def test_the_version_can_be_parsed_by_helm_and_kubectl(api: Api) -> None:
    version = api.get("/version").json
    assert re.fullmatch(r"v1\.\d+\.\d+.*", version["gitVersion"])
    assert re.fullmatch(r"[1-9]", version["major"])
    assert re.fullmatch(r"[1-9]\d*\+?", version["minor"])


def test_the_root_lists_its_paths_in_order(api: Api) -> None:
    paths = api.get("/").json["paths"]
    assert paths == sorted(paths)
    assert {"/api", "/api/v1", "/apis", "/healthz", "/openapi/v2", "/openapi/v3", "/version"} <= set(paths)


@pytest.mark.parametrize("prefix", ["", "/clusters/root"])
@pytest.mark.parametrize("endpoint", ["healthz", "livez", "readyz"])
def test_health_is_told_to_anyone(admin: Api, prefix: str, endpoint: str) -> None:
    nobody = Api(admin.shard, "", "")
    answer = nobody.get(f"{prefix}/{endpoint}")
    assert (answer.body, answer.header("x-content-type-options")) == (b"ok", "nosniff")
    assert answer.header("content-type") == "text/plain; charset=utf-8"
    verbose = nobody.get(f"{prefix}/{endpoint}?verbose").body.decode()
    assert verbose.startswith("[+]ping ok\n")
    assert verbose.rstrip().endswith(f"{endpoint} check passed")
    assert nobody.get(f"{prefix}/{endpoint}?exclude=ping&exclude=store").body == b"ok"
    left_out = nobody.get(f"{prefix}/{endpoint}?verbose&exclude=ping&exclude=nothing").body.decode()
    assert left_out.startswith("[+]ping excluded: ok\n[+]store ok\n")
    assert 'cannot be excluded: no matches for "nothing"\n' in left_out
    nobody.get("/version")


@pytest.mark.parametrize("endpoint", ["healthz", "livez", "readyz"])
def test_each_health_check_has_a_path_that_administrators_may_read(master: Api, endpoint: str) -> None:
    own = ("shutdown", "store-space", "controllers") if endpoint == "readyz" else ()
    listed = master.get(f"/{endpoint}?verbose").body.decode().splitlines()[:-1]
    assert listed == [f"[+]{name} ok" for name in ("ping", "store", *own)]
    for name in ("ping", "store", *own):
        assert master.get(f"/{endpoint}/{name}").body == b"ok"
        assert f"/{endpoint}/{name}" in master.get("/").json["paths"]
    for name in ("nothing", "ping/more", *(() if own else ("shutdown",))):
        master.get(f"/{endpoint}/{name}", expect=404)
    assert Api(master.shard, "", "").get(f"/{endpoint}/ping", expect=403).json["reason"] == "Forbidden"


def test_metrics_have_the_names_of_kubernetes_and_belong_to_the_shard(master: Api, admin: Api) -> None:
    shard = Api(master.shard, "", "shard-admin")
    text = shard.get("/metrics").body.decode()
    for name in (
        "apiserver_request_total",
        "apiserver_request_duration_seconds_bucket",
        "workqueue_depth",
        "apiserver_longrunning_requests",
    ):
        assert f"\n{name}" in text, name
    assert admin.get("/metrics", expect=501).json["code"] == 501
    nobody = Api(master.shard, "", "")
    assert nobody.get("/metrics", expect=0).code in {401, 403}


def test_the_issuer_of_service_account_tokens_is_discoverable(api: Api) -> None:
    issuer = api.get("/.well-known/openid-configuration")
    assert set(issuer.json) >= {"issuer", "jwks_uri", "response_types_supported", "subject_types_supported"}
    keys = api.get("/openid/v1/jwks")
    assert keys.header("content-type") == "application/jwk-set+json"
    assert all({"kid", "alg", "use"} <= set(key) for key in keys.json["keys"])
