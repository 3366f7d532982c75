"""`--workers 2`: home workspaces are created, and views served, at any of the processes beside the writer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.clients.api import Answer, Api, eventually, workspace_under
from harness.clients.followed_events import follow
from harness.clients.followed_events import path as followed_path
from harness.servers.shard_process import ShardProcess
from harness.servers.subscribed_shard import path
from integration.views.test_apiexport import ENTER, RBAC, give

CLUSTERS = "/apis/core.kcp.io/v1alpha1/logicalclusters"
TENANCY = "/apis/tenancy.kcp.io/v1alpha1"
SECRETS = "/api/v1/namespaces/default/secrets"


@pytest.mark.long
def test_a_home_asked_for_at_any_worker_is_one(tmp_path: Path) -> None:
    (tmp_path / "tokens.csv").write_text("alice-token,oidc:alice,u-alice\n")
    with ShardProcess(tmp_path, "--workers", "2", "--token-auth-file", str(tmp_path / "tokens.csv")) as shard:
        found = {
            Api(shard, "root", token="alice-token").get(f"{TENANCY}/workspaces/~").json["spec"]["cluster"]
            for _ in range(8)
        }
        assert len(found) == 1
        inside = Api(shard, found.pop(), token="alice-token")
        eventually(lambda: inside.send("GET", SECRETS).code == 200, "the home at every worker")


def create(home: Api, kind: str, name: str, spec: dict[str, Any]) -> None:
    body = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    home.post(f"{TENANCY}/{kind.lower()}s", body)


@pytest.mark.long
def test_a_watch_through_a_view_ends_with_the_wait_at_any_worker(tmp_path: Path) -> None:
    with ShardProcess(tmp_path, "--workers", "2") as shard:
        root = Api(shard, "root")
        home = root.at(workspace_under(root))
        own = home.get(f"{CLUSTERS}/cluster").json["metadata"]["annotations"]["kcp.io/cluster"]
        spec = {"initializer": True, "extend": {"with": [{"name": "universal", "path": "root"}]}}
        create(home, "WorkspaceType", "made", spec)
        create(home, "Workspace", "w", {"type": {"name": "made", "path": home.cluster}})

        def waiting() -> str:
            found = home.get(f"{TENANCY}/workspaces/w").json
            phase = found.get("status", {}).get("phase")
            return str(found["spec"]["cluster"]) if phase == "Initializing" else ""

        cluster = eventually(waiting, "Initializing")
        view = Api(shard, token=root.token)
        view.prefix = f"/services/initializingworkspaces/{own}:made/clusters/{cluster}"
        with view.watch(f"{SECRETS}?watch=1") as first, view.watch(f"{SECRETS}?watch=1") as second:
            view.patch(f"{CLUSTERS}/cluster/status", {"status": {"initializers": []}})
            assert all(event.type in {"ADDED", "BOOKMARK"} for event in [*first.rest(), *second.rest()])


@pytest.mark.long
def test_a_subscription_asked_for_at_any_worker_is_one_and_follows_its_right(tmp_path: Path) -> None:
    (tmp_path / "tokens.csv").write_text("alice-token,alice,u-alice\n")
    with ShardProcess(tmp_path, "--workers", "2", "--token-auth-file", str(tmp_path / "tokens.csv")) as shard:
        eventually((shard.root / "event-subscriptions.json").exists, "the embedded server takes subscribers", 60.0)
        home = Api(shard, "root").at(workspace_under(Api(shard, "root")))
        watching = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["watch"]}
        name = give(home, "alice", watching, ENTER)
        body = {"name": "audit", "resources": ["configmaps"]}

        def ask(method: str, end: str = "") -> Answer:
            """Over a connection of its own, which any worker may take."""
            return Api(shard, token="alice-token").send(
                method, path(home.cluster) + end, body if method == "POST" else None
            )

        assert sorted(ask("POST").code for _ in range(4)) == [200, 200, 200, 201]
        assert {ask("GET", "/audit").json["consumer"] for _ in range(4)} == {ask("POST").json["consumer"]}
        alice, events = Api(shard, token="alice-token"), followed_path(home.cluster, "configmaps")
        with follow(alice, events) as first, follow(alice, events) as second:
            for followed in (first, second):
                followed.until("BOOKMARK")
            home.delete(f"{RBAC}/clusterrolebindings/{name}")
            assert {followed.rest()[-1]["atolloperation"] for followed in (first, second)} == {"CLOSED"}
        eventually(lambda: ask("GET", "/audit").json["state"] == "Revoked", "revoked")
