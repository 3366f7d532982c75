"""A third party's virtual workspace: the README's view, in its own process, behind consumers' ordinary URLs."""

from __future__ import annotations

import ast
import contextlib
import http.client
from pathlib import Path

import pytest

from harness.clients.api import Api, Object, configmap, eventually
from harness.clients.exports import EXPORTS, PATIENCE_S, cluster_of
from harness.clients.kubectl import Kubectl
from harness.servers.shard_process import process_of
from harness.servers.third_party_view import program
from harness.servers.virtual_workspaces import OfThirdParty

GROUP = "teams.example.com"
TEAMS = f"/apis/{GROUP}/v1/namespaces/default/teams"
ROSTERS = f"/apis/{GROUP}/v1/namespaces/default/rosters"
ALL = f"/apis/{GROUP}/v1/rosters"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


def team(api: Api, name: str, *members: str, **labels: str) -> None:
    body = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Team",
        "metadata": {"name": name, "labels": labels},
        "spec": {"motto": f"{name} first"},
    }
    api.post(TEAMS, body)
    api.post(CONFIGMAPS, configmap(name, dict.fromkeys(members, "")))


def allow(api: Api, user: str, *rules: Object) -> None:
    name = f"{user}-{len(rules)}"
    api.post(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": list(rules)})
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    body = {"metadata": {"name": name}, "subjects": [subject], "roleRef": reference}
    api.post(f"{RBAC}/clusterrolebindings", body)


def roster(api: Api, name: str) -> Object:
    """A row, once it is there."""
    eventually(lambda: api.get(f"{ROSTERS}/{name}", expect=0).code == 200, f"roster {name}", PATIENCE_S)
    return dict(api.get(f"{ROSTERS}/{name}").json)


def test_the_program_imports_nothing_but_the_public_package() -> None:
    code = program()
    imported = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert [node.module for node in imported if isinstance(node, ast.ImportFrom)] == ["atoll.virtualworkspace_sdk"]
    assert len(imported) == 1
    assert len(code.splitlines()) < 120


def test_a_row_is_made_of_two_kinds_and_follows_both(third: OfThirdParty) -> None:
    consumer = third.consumer()
    team(consumer, "north", "ann", "bo", side="up")
    found = roster(consumer, "north")
    assert found["spec"] == {"motto": "north first", "members": ["ann", "bo"], "size": 2}
    assert (found["apiVersion"], found["kind"]) == (f"{GROUP}/v1", "Roster")
    assert found["metadata"]["annotations"]["kcp.io/cluster"] == cluster_of(consumer)
    assert found["metadata"]["labels"] == {"side": "up"}
    revision = consumer.get(ROSTERS).json["metadata"]["resourceVersion"]
    with consumer.watch(f"{ROSTERS}?watch=1&resourceVersion={revision}") as events:
        consumer.patch(f"{CONFIGMAPS}/north", {"data": {"cy": ""}})
        changed = events.next()
        assert (changed.type, changed.object["spec"]["size"]) == ("MODIFIED", 3)
        assert changed.object["metadata"]["uid"] == found["metadata"]["uid"]
        consumer.patch(f"{TEAMS}/north", {"spec": {"motto": "south"}})
        assert events.next().object["spec"]["motto"] == "south"
        consumer.delete(f"{CONFIGMAPS}/north")
        assert events.next().type == "DELETED"
    consumer.get(f"{ROSTERS}/north", expect=404)


def test_it_is_not_served_by_its_identity(third: OfThirdParty) -> None:
    consumer = third.consumer()
    team(consumer, "north", "ann")
    roster(consumer, "north")
    identity = third.provider.get(f"{EXPORTS}/teams").json["status"]["identityHash"]
    for cluster in (cluster_of(consumer), "*"):
        Api(consumer.shard, cluster, "shard-admin").get(f"{ALL}:{identity}", expect=404)


def test_consumers_do_not_see_each_other(third: OfThirdParty) -> None:
    one, other = third.consumer(), third.consumer()
    team(one, "mine", "ann")
    team(other, "theirs", "bo")
    roster(one, "mine")
    roster(other, "theirs")
    for api, name in ((one, "mine"), (other, "theirs")):
        assert [item["metadata"]["name"] for item in api.get(ALL).json["items"]] == [name]


def test_who_may_not_read_it_in_the_workspace_does_not(third: OfThirdParty) -> None:
    consumer = third.consumer()
    team(consumer, "north", "ann")
    roster(consumer, "north")
    bob = Api(consumer.shard, consumer.cluster, token="bob-token")
    bob.get(ROSTERS, expect=403)
    own = {"apiGroups": [GROUP], "resources": ["rosters"], "verbs": ["list"]}
    allow(consumer, "bob", own, {"nonResourceURLs": ["/"], "verbs": ["access"]})
    eventually(lambda: bob.get(ROSTERS, expect=0).code == 200, "bob lists", PATIENCE_S)
    bob.get(f"{ROSTERS}/north", expect=403)


def test_who_may_not_read_it_in_the_workspace_does_not_even_from_the_shard(third: OfThirdParty) -> None:
    consumer = third.consumer()
    there = f"/clusters/{cluster_of(consumer)}{ROSTERS}"
    assert third.view.get(there, "bob")[0] == 403
    own = {"apiGroups": [GROUP], "resources": ["rosters"], "verbs": ["list"]}
    allow(consumer, "bob", own, {"nonResourceURLs": ["/"], "verbs": ["access"]})
    eventually(lambda: third.view.get(there, "bob")[0] == 200, "bob lists", PATIENCE_S)
    assert third.view.get(f"{there}/x", "bob")[0] == 403
    assert third.view.get("/clusters/unheardof" + ROSTERS, "bob")[0] == 403


def test_an_open_watch_ends_when_it_would_not_be_allowed_any_more(third: OfThirdParty) -> None:
    consumer = third.consumer()
    team(consumer, "north", "ann")
    roster(consumer, "north")
    own = {"apiGroups": [GROUP], "resources": ["rosters"], "verbs": ["list", "watch"]}
    allow(consumer, "bob", own, {"nonResourceURLs": ["/"], "verbs": ["access"]})
    bob = Api(consumer.shard, consumer.cluster, token="bob-token")
    eventually(lambda: bob.get(ROSTERS, expect=0).code == 200, "bob lists", PATIENCE_S)
    connection = bob.open()
    connection.timeout = 2 * PATIENCE_S
    with contextlib.closing(connection):
        connection.request("GET", f"{bob.prefix}{ROSTERS}?watch=1", headers=bob.headers())
        response = connection.getresponse()
        assert response.status == 200
        assert b"ADDED" in response.readline()
        consumer.delete(f"{RBAC}/clusterrolebindings/bob-2")
        # The shard cuts the connection, or the view ends its answer.
        with contextlib.suppress(http.client.IncompleteRead):
            assert response.read() == b""


def test_a_service_account_reads_it_at_home(third: OfThirdParty) -> None:
    consumer = third.consumer()
    team(consumer, "north", "ann")
    roster(consumer, "north")
    path = "/api/v1/namespaces/default/serviceaccounts/default/token"
    eventually(lambda: consumer.send("GET", path.removesuffix("/token")).code == 200, "the account", PATIENCE_S)
    token = consumer.post(path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}).json
    account = Api(consumer.shard, consumer.cluster, token=token["status"]["token"])
    account.get(ROSTERS, expect=403)
    consumer.post(
        f"{RBAC}/clusterroles",
        {"metadata": {"name": "sa"}, "rules": [{"apiGroups": [GROUP], "resources": ["rosters"], "verbs": ["list"]}]},
    )
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": "default"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "sa"}
    body = {"metadata": {"name": "sa"}, "subjects": [subject], "roleRef": reference}
    consumer.post(f"{RBAC}/clusterrolebindings", body)
    eventually(lambda: account.get(ROSTERS, expect=0).code == 200, "the account lists", PATIENCE_S)


def test_it_is_read_only_in_discovery_too(third: OfThirdParty) -> None:
    consumer = third.consumer()
    verbs = {each["name"]: each["verbs"] for each in consumer.get(f"/apis/{GROUP}/v1").json["resources"]}
    assert verbs["rosters"] == ["get", "list", "watch"]
    assert "create" in verbs["teams"]
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    aggregated = consumer.get("/apis", accept=accept).json
    group = next(each for each in aggregated["items"] if each["metadata"]["name"] == GROUP)
    found = {each["resource"]: each["verbs"] for each in group["versions"][0]["resources"]}
    assert found["rosters"] == ["get", "list", "watch"]
    body = {"apiVersion": f"{GROUP}/v1", "kind": "Roster", "metadata": {"name": "x"}}
    assert consumer.send("POST", ROSTERS, body).code in {403, 405}


@pytest.mark.long
def test_kubectl_reads_it_as_any_kind(third: OfThirdParty, tmp_path: Path) -> None:
    consumer = third.consumer()
    team(consumer, "north", "ann", "bo")
    roster(consumer, "north")
    kubectl = Kubectl(tmp_path, process_of(consumer).kubeconfig)
    here = ("--server", f"{consumer.shard.url}/clusters/{cluster_of(consumer)}")
    assert kubectl.ok("get", "rosters", *here).splitlines()[0].split() == ["NAME", "SIZE"]
    assert kubectl.ok("get", "roster", "north", "-o", "jsonpath={.spec.members}", *here) == '["ann","bo"]'
    assert "<integer>" in kubectl.ok("explain", "roster.spec.size", *here)
    assert kubectl.run("delete", "roster", "north", *here).code != 0


def test_nobody_but_a_shard_says_who_asks(third: OfThirdParty) -> None:
    everywhere = "/clusters/*" + ALL
    assert third.view.get(everywhere, certificate="")[0] == 403
    assert third.view.get(everywhere, "kcp-admin", certificate="")[0] == 403
    with pytest.raises(OSError):
        third.view.get(everywhere, "kcp-admin", certificate="stranger")
    code, _ = third.view.get(everywhere, "bob")
    assert code == 403
    content = {"apiGroups": ["apis.kcp.io"], "resources": ["apiexports/content"], "verbs": ["list"]}
    allow(third.provider, "carol", content, {"nonResourceURLs": ["/"], "verbs": ["access"]})
    eventually(lambda: third.view.get(everywhere, "carol")[0] == 200, "carol lists", PATIENCE_S)
    assert third.view.get(f"{everywhere}?watch=1", "carol")[0] == 403


@pytest.mark.parametrize(
    "path", ["/clusters/root/api/v1/secrets", "/clusters/*/metrics", "/x", "", "/clusters/a:b/api"]
)
def test_nothing_else_is_behind_it(third: OfThirdParty, path: str) -> None:
    assert third.view.get(path, "kcp-admin")[0] in {403, 404}


@pytest.mark.long
def test_it_goes_on_from_disk_after_a_crash(third: OfThirdParty) -> None:
    consumer = third.consumer()
    team(consumer, "north", "ann")
    before = roster(consumer, "north")
    revision = consumer.get(ROSTERS).json["metadata"]["resourceVersion"]
    third.view.kill()
    try:
        assert consumer.get(ROSTERS, expect=503).json["reason"] == "ServiceUnavailable"
        assert "rosters" in {each["name"] for each in consumer.get(f"/apis/{GROUP}/v1").json["resources"]}
        consumer.patch(f"{CONFIGMAPS}/north", {"data": {"bo": ""}})
    finally:
        third.view.start()
    eventually(lambda: roster(consumer, "north")["spec"]["size"] == 2, "caught up", PATIENCE_S)
    assert roster(consumer, "north")["metadata"]["uid"] == before["metadata"]["uid"]
    with consumer.watch(f"{ROSTERS}?watch=1&resourceVersion={revision}") as events:
        missed = events.next()
        assert (missed.type, missed.object["spec"]["size"]) == ("MODIFIED", 2)


def test_ready_when_the_rows_were_whole(third: OfThirdParty) -> None:
    third.consumer()
    eventually(lambda: third.view.get("/readyz", certificate="")[0] == 200, "ready", PATIENCE_S)


def test_credentials_of_the_client_stay_with_the_shard(third: OfThirdParty) -> None:
    consumer = third.consumer()
    team(consumer, "north", "ann")
    roster(consumer, "north")
    forged = {"X-Remote-User": "kcp-admin", "X-Remote-Group": "system:masters"}
    assert consumer.get(ROSTERS, headers=forged).json == consumer.get(ROSTERS).json
    bob = Api(consumer.shard, consumer.cluster, token="bob-token")
    for spelling in ("X-Remote-User", "X-Remote_User", "x-remote%2duser"):
        assert bob.get(ROSTERS, expect=0, headers={spelling: "kcp-admin"}).code in {401, 403}
