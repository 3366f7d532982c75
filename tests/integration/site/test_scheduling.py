"""Scheduling of workspaces in a site, and their default objects."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest

from atoll.machinery.kcp.sharding.scheduling import NO_SHARDS, RESERVED_FOR
from atoll.machinery.kcp.sharding.shards import UNSCHEDULABLE
from atoll.machinery.meta import hashes
from harness.clients.api import Api, configmap, eventually
from harness.clients.kubectl import Kubectl
from harness.clients.site_workspaces import CLUSTER, WORKSPACES, condition, marked, on, ready, shard_of, workspace
from harness.servers.site import Site


def knows(parent: Api, **labels: str) -> None:
    """Return when the shard of a workspace has a Shard with these labels, and so all earlier writes."""
    ready(parent, workspace(parent, selector=labels))


def test_a_workspace_is_made_on_the_shard_that_its_selector_names(site: Site, admin: Api) -> None:
    made = ready(admin, workspace(admin, selector=on("shard-1")))
    name, cluster = made["metadata"]["name"], made["spec"]["cluster"]
    assert shard_of(made) == "shard-1"
    assert cluster == hashes.cluster_name_of("root", made["metadata"]["uid"], "shard-1")
    assert made["spec"]["URL"] == f"{site.proxy.url}/clusters/root:{name}"
    assert condition(made, "WorkspaceScheduled")["status"] == "True"

    there = site.shards["shard-1"].api(cluster)
    found = there.get(CLUSTER).json
    assert found["spec"]["owner"]["uid"] == made["metadata"]["uid"]
    assert found["metadata"]["annotations"]["kcp.io/path"] == f"root:{name}"
    namespaces = {item["metadata"]["name"] for item in there.get("/api/v1/namespaces").json["items"]}
    assert {"default", "kube-system"} <= namespaces
    there.get("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/workspace-admin")
    site.root.api(cluster).get(CLUSTER, expect=403)


def test_a_workspace_below_one_elsewhere_goes_where_its_own_selector_says(site: Site, admin: Api) -> None:
    above = ready(admin, workspace(admin, selector=on("shard-1")))
    there = site.shards["shard-1"].api(above["spec"]["cluster"])
    below = ready(there, workspace(there, selector=on("shard-2")))
    assert shard_of(below) == "shard-2"
    site.shards["shard-2"].api(below["spec"]["cluster"]).post("/api/v1/namespaces/default/configmaps", configmap("a"))
    # And one that comes back to the root shard.
    again = site.shards["shard-2"].api(below["spec"]["cluster"])
    assert shard_of(ready(again, workspace(again, selector=on("root")))) == "root"


def test_a_workspace_stays_in_its_parents_region_unless_it_says_otherwise(site: Site, admin: Api, master: Api) -> None:
    with (
        marked(master, "root", labels={"region": "eu"}),
        marked(master, "shard-2", labels={"region": "eu"}),
        marked(master, "shard-1", labels={"region": "us"}),
    ):
        away = ready(admin, workspace(admin, selector={"region": "us"}))
        assert shard_of(away) == "shard-1"
        assert away["metadata"]["labels"]["region"] == "us"
        for _ in range(3):
            assert shard_of(ready(admin, workspace(admin))) in {"root", "shard-2"}
        there = site.shards["shard-1"].api(away["spec"]["cluster"])
        knows(there, region="us")
        for _ in range(3):
            assert shard_of(ready(there, workspace(there))) == "shard-1"


def test_reserved_shards_are_for_their_tenant_and_he_for_them(admin: Api, master: Api) -> None:
    tenant = f"tenant-{uuid.uuid4().hex[:6]}"
    with marked(master, "shard-2", annotations={RESERVED_FOR: f"root:{tenant}"}):
        refused = admin.post(WORKSPACES, workspace(admin, selector=on("shard-2"), send=False), expect=403)
        assert "reserved for other workspaces" in refused.message
        refused = admin.post(WORKSPACES, workspace(admin, name=tenant, selector=on("root"), send=False), expect=403)
        assert f"none of the shards that are reserved for root:{tenant}" in refused.message
        assert shard_of(ready(admin, workspace(admin, name=tenant))) == "shard-2"
        for _ in range(3):
            assert shard_of(ready(admin, workspace(admin))) != "shard-2"


def test_a_drained_shard_gets_nothing_until_it_is_back(admin: Api, master: Api) -> None:
    with marked(master, "shard-1", annotations={UNSCHEDULABLE: "true"}):
        name = workspace(admin, selector=on("shard-1"))

        def reported() -> bool:
            found = condition(admin.get(f"{WORKSPACES}/{name}").json, "WorkspaceScheduled")
            return bool(found.get("reason") == "Unschedulable" and found["message"] == NO_SHARDS)

        eventually(reported, "it says that there is no shard")
    assert shard_of(ready(admin, name)) == "shard-1"


def test_workspaces_without_a_word_are_spread(admin: Api) -> None:
    seen: set[str] = set()
    for _ in range(60):
        seen.add(shard_of(ready(admin, workspace(admin))))
        if len(seen) > 1:
            return
    pytest.fail(f"all went to {seen}")


def test_a_selector_that_is_not_valid_is_refused_at_once(admin: Api) -> None:
    body = workspace(admin, send=False)
    body["spec"]["location"] = {"selector": {"matchExpressions": [{"key": "region", "operator": "Near"}]}}
    assert "spec.location.selector" in admin.post(WORKSPACES, body, expect=422).message


def test_nobody_comes_with_a_choice_of_his_own(site: Site, admin: Api) -> None:
    body: dict[str, Any] = workspace(admin, selector=on("root"), send=False)
    body["metadata"]["annotations"] = {
        "core.kcp.io/shard": "shard-1",
        "internal.tenancy.kcp.io/cluster": "stolen",
        "mine": "kept",
    }
    admin.post(WORKSPACES, body)
    made = ready(admin, body["metadata"]["name"])
    assert shard_of(made) == "root"
    assert made["spec"]["cluster"] != "stolen"
    assert made["metadata"]["annotations"]["mine"] == "kept"
    admin.patch(f"{WORKSPACES}/{body['metadata']['name']}", {"metadata": {"annotations": {"core.kcp.io/shard": "x"}}})
    assert shard_of(admin.get(f"{WORKSPACES}/{body['metadata']['name']}").json) == "root"


def test_a_home_is_asked_for_at_root_alone(site: Site, admin: Api) -> None:
    assert admin.get(f"{WORKSPACES}/~").json["spec"]["cluster"]
    assert site.shards["shard-1"].api("root").get(f"{WORKSPACES}/~", expect=403).json["reason"] == "Forbidden"


@pytest.mark.long
def test_the_plugins_see_one_tree_over_all_shards(site: Site, tmp_path: Path) -> None:
    own = tmp_path / "admin.kubeconfig"
    shutil.copy(site.kubeconfig, own)
    kubectl = Kubectl(tmp_path, own)
    top = f"top-{uuid.uuid4().hex[:6]}"
    kubectl.ok("create", "workspace", top, "--location-selector", "name=shard-1", "--enter")
    kubectl.ok("create", "workspace", "middle", "--location-selector", "name=shard-2", "--enter")
    kubectl.ok("create", "workspace", "leaf", "--location-selector", "name=root")
    kubectl.ok("ws", f":root:{top}")
    seen = kubectl.ok("ws", "tree")
    assert seen == f".\n└── {top}\n    └── middle\n        └── leaf\n"
    admin = site.root.api("root")
    assert shard_of(admin.get(f"{WORKSPACES}/{top}").json) == "shard-1"
    admin.delete(f"{WORKSPACES}/{top}")
