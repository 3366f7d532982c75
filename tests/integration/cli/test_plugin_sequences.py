"""The requests of kcp's kubectl plug-ins, one by one, and the fields of the answers that they use."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from harness.clients.api import Answer, Api, Object, eventually, workspace_under
from harness.clients.exports import accepted, binding, claim, make_export, phase, schema, wait
from harness.servers.shard_process import ShardProcess

DISCOVERY = (
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
)
WORKSPACES = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
CLUSTER = "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"
BINDINGS = "/apis/apis.kcp.io/v1alpha2/apibindings"


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """The plug-ins of kcp-admin, which keep the host of the server and put `/clusters/<path>` behind it."""
    directory: Path = tmp_path_factory.mktemp("sequences")
    (directory / "tokens.csv").write_text("nobody-token,nobody,u-nobody\n")
    with ShardProcess(directory, "--token-auth-file", str(directory / "tokens.csv")) as shard:
        yield Api(shard, "root")


def discovered(api: Api) -> tuple[Answer, Answer]:
    return api.send("GET", "/api", accept=DISCOVERY), api.send("GET", "/apis", accept=DISCOVERY)


def made(name: str, **spec: Any) -> Object:
    return {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name}, "spec": spec}


def unique(name: str) -> str:
    return f"{name}-{secrets.token_hex(3)}"


def test_use_looks_around_in_the_target_asks_its_parent_and_reads_the_claims(plugin: Api) -> None:
    path = workspace_under(plugin)
    parent, _, name = path.rpartition(":")
    there = plugin.at(path)
    for answer in discovered(there):
        assert (answer.code, answer.json["kind"]) == (200, "APIGroupDiscoveryList")
    found = plugin.at(parent).get(f"{WORKSPACES}/{name}").json
    assert (found["status"]["phase"], found["spec"]["type"]["path"]) == ("Ready", "root")
    assert urlsplit(found["spec"]["URL"]).path == f"/clusters/{path}"
    bindings = there.get(BINDINGS).json
    assert bindings["kind"] == "APIBindingList"
    assert {each["spec"]["reference"]["export"]["name"] for each in bindings["items"]} >= {"tenancy.kcp.io"}
    assert all(each["status"]["phase"] == "Bound" for each in bindings["items"])


def test_use_tells_what_is_not_there_from_what_is_closed(plugin: Api) -> None:
    """404: the user may not look inside, and the parent has no such workspace. 403 otherwise."""
    missing = unique("missing")
    assert [answer.code for answer in discovered(plugin.at(f"root:{missing}"))] == [403, 403]
    assert plugin.get(f"{WORKSPACES}/{missing}", expect=404).json["details"]["name"] == missing
    path = workspace_under(plugin)
    nobody = Api(plugin.shard, path, token="nobody-token")
    assert [answer.code for answer in discovered(nobody)] == [403, 403]
    # In root every authenticated user reads workspaces; below it the parent reveals nothing.
    assert nobody.at("root").get(f"{WORKSPACES}/{path.rpartition(':')[2]}").code == 200
    below = workspace_under(plugin, path)
    assert nobody.get(f"{WORKSPACES}/{below.rpartition(':')[2]}", expect=403).json["reason"] == "Forbidden"


def test_a_tilde_is_asked_of_root_and_leads_by_its_url(plugin: Api) -> None:
    home = plugin.get(f"{WORKSPACES}/~").json
    path = urlsplit(home["spec"]["URL"]).path.removeprefix("/clusters/")
    assert [answer.code for answer in discovered(plugin.at(path))] == [200, 200]
    assert plugin.at(path).get(WORKSPACES).json["kind"] == "WorkspaceList"


def test_tree_lists_level_by_level_and_reads_each_cluster_when_wide(plugin: Api) -> None:
    top = workspace_under(plugin)
    paths = {workspace_under(plugin, top), workspace_under(plugin, top)}
    paths |= {workspace_under(plugin, min(paths))}
    seen, level = set(), [top]
    while level:
        path = level.pop()
        for item in plugin.at(path).get(WORKSPACES).json["items"]:
            below = f"{path}:{item['metadata']['name']}"
            assert plugin.at(below).get(CLUSTER).json["metadata"]["annotations"]["kcp.io/path"] == below
            seen.add(below)
            level.append(below)
    assert seen == paths


def test_create_posts_and_asks_until_ready_and_hears_of_one_that_exists(plugin: Api) -> None:
    name = unique("made")
    answer = plugin.post(WORKSPACES, made(name, type={"name": "organization", "path": "root"})).json
    assert answer["status"]["phase"] in {"Scheduling", "Initializing", "Ready"}

    def ready() -> bool:
        return bool(plugin.get(f"{WORKSPACES}/{name}").json["status"]["phase"] == "Ready")

    eventually(ready, "the workspace Ready")
    again = plugin.post(WORKSPACES, made(name), expect=409).json
    assert again["reason"] == "AlreadyExists"
    unknown = plugin.post(WORKSPACES, made(unique("x"), type={"name": "unheard-of", "path": "root"}), expect=403).json
    assert unknown["reason"] == "Forbidden"


def test_bind_prefers_a_version_reads_the_export_and_posts_a_binding_of_its_name(plugin: Api) -> None:
    there = plugin.at(workspace_under(plugin, type_="universal"))
    groups = {group["name"]: group for group in there.get("/apis").json["groups"]}
    preferred = groups["apis.kcp.io"]["preferredVersion"]["version"]
    assert preferred in {"v1alpha1", "v1alpha2"}
    assert plugin.get(f"/apis/apis.kcp.io/{preferred}/apiexports/cache.kcp.io").json["kind"] == "APIExport"
    body: Object = {
        "apiVersion": f"apis.kcp.io/{preferred}",
        "kind": "APIBinding",
        "metadata": {"name": "cache.kcp.io"},
        "spec": {"reference": {"export": {"path": "root", "name": "cache.kcp.io"}}},
    }
    path = f"/apis/apis.kcp.io/{preferred}/apibindings"
    answer = there.post(path, body).json
    assert (answer["metadata"]["name"], answer["spec"]["reference"]) == ("cache.kcp.io", body["spec"]["reference"])
    assert there.get(f"{path}/cache.kcp.io").json["metadata"]["uid"] == answer["metadata"]["uid"]
    assert there.post(path, body, expect=409).json["reason"] == "AlreadyExists"
    # An export may be created later; a path must resolve.
    later = {**body, "metadata": {"name": "x"}, "spec": {"reference": {"export": {"path": "root", "name": "x"}}}}
    there.post(path, later)
    lost = {**body, "metadata": {"name": "y"}, "spec": {"reference": {"export": {"path": "root:no", "name": "x"}}}}
    assert there.post(path, lost, expect=403).json["reason"] == "Forbidden"


def offered(plugin: Api) -> Api:
    """A provider's workspace with an export of boats that claims secrets and configmaps."""
    provider = plugin.at(workspace_under(plugin, type_="universal"))
    claims = [claim("secrets", "", "get", "list"), claim("configmaps")]
    make_export(provider, "boats", schema("boats", "sea.example.com"), claims=claims)
    return provider


def test_bind_with_claims_reads_the_export_and_asks_until_bound(plugin: Api) -> None:
    provider, there = offered(plugin), plugin.at(workspace_under(plugin, type_="universal"))
    # The plug-in reads the claims in the older version, and writes in the preferred one.
    found = provider.get("/apis/apis.kcp.io/v1alpha1/apiexports/boats").json
    assert [each["resource"] for each in found["spec"]["permissionClaims"]] == ["secrets", "configmaps"]
    answers = [accepted(claim("secrets", "", "get", "list"), "Accepted")]
    there.post(BINDINGS, binding(provider.cluster, "boats", answers))
    bound = wait(there, f"{BINDINGS}/boats", lambda found: phase(found) == "Bound")
    assert bound["spec"]["permissionClaims"] == [{**answers[0], "identityHash": ""}]
    made = {each["resource"] for each in bound["status"]["exportPermissionClaims"]}
    assert made == {"secrets", "configmaps"}


def test_claims_are_answered_by_an_update_of_the_whole_binding(plugin: Api) -> None:
    provider, there = offered(plugin), plugin.at(workspace_under(plugin, type_="universal"))
    there.post(BINDINGS, binding(provider.cluster, "boats"))

    def answered(state: str) -> bool:
        """Read, change and send back the whole object; after a conflict with a status write, repeat."""
        found = there.get(f"{BINDINGS}/boats").json
        made = found["status"]["exportPermissionClaims"]
        assert {each["resource"] for each in made} == {"secrets", "configmaps"}
        found["spec"]["permissionClaims"] = [accepted(each, state) for each in made]
        return there.put(f"{BINDINGS}/boats", found, expect=0).code == 200

    wait(there, f"{BINDINGS}/boats", lambda found: bool(found.get("status", {}).get("exportPermissionClaims")))
    for state in ("Accepted", "Rejected", "Accepted"):
        eventually(partial(answered, state), f"claims {state}")
        applied = {"secrets", "configmaps"} if state == "Accepted" else set()
        wait(
            there,
            f"{BINDINGS}/boats",
            lambda found, applied=applied: (
                applied == {each["resource"] for each in found["status"].get("appliedPermissionClaims") or ()}
            ),
        )


def test_an_older_plug_in_binds_and_answers_in_the_older_version(plugin: Api) -> None:
    provider, there = offered(plugin), plugin.at(workspace_under(plugin, type_="universal"))
    body = {**binding(provider.cluster, "boats"), "apiVersion": "apis.kcp.io/v1alpha1"}
    body["spec"]["permissionClaims"] = [{"resource": "configmaps", "all": True, "state": "Accepted"}]
    older = "/apis/apis.kcp.io/v1alpha1/apibindings"
    there.post(older, body)
    found = wait(there, f"{older}/boats", lambda found: bool(found.get("status", {}).get("appliedPermissionClaims")))
    assert (found["apiVersion"], found["status"]["phase"]) == ("apis.kcp.io/v1alpha1", "Bound")
    assert found["spec"]["permissionClaims"][0]["all"] is True
    newer = there.get(f"{BINDINGS}/boats").json["spec"]["permissionClaims"][0]
    assert (newer["verbs"], newer["selector"], newer["state"]) == (["*"], {"matchAll": True}, "Accepted")


def test_claims_are_read_and_written_back_with_the_whole_binding(plugin: Api) -> None:
    there = plugin.at(workspace_under(plugin))
    binding = there.get(BINDINGS).json["items"][0]
    path = f"{BINDINGS}/{binding['metadata']['name']}"
    found = there.get(path).json
    answer = there.put(path, found).json
    assert answer["spec"].get("permissionClaims") == found["spec"].get("permissionClaims")
    assert answer["status"] == found["status"]
