"""A Workspace and its logical cluster on another shard: their calls, up to the deletion of both."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from atoll.machinery.meta import hashes
from harness.clients.api import MERGE, Api, configmap, eventually
from harness.clients.site_workspaces import (
    CLUSTER,
    CLUSTERS,
    WORKSPACES,
    clusters,
    condition,
    gone,
    on,
    ready,
    shard_of,
    workspace,
)
from harness.servers.site import Site

TYPES = "/apis/tenancy.kcp.io/v1alpha1/workspacetypes"
MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture(scope="module")
def lived(admin: Api) -> str:
    """A type whose workspaces wait for an initializer, and at the end for a terminator; both are `root:<its name>`."""
    name = f"lived-{uuid.uuid4().hex[:6]}"
    spec = {"initializer": True, "terminator": True, "extend": {"with": [{"name": "universal", "path": "root"}]}}
    meta = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType", "metadata": {"name": name}}
    admin.post(TYPES, {**meta, "spec": spec})
    return name


def api_of(site: Site, obj: dict[str, Any]) -> Api:
    """The administrator of its shard in a workspace's own cluster."""
    return site.shards[shard_of(obj)].api(obj["spec"]["cluster"], "shard-admin")


def lies_nowhere(site: Site, *names: str) -> bool:
    return all(clusters(shard.api("*", "shard-admin")).keys().isdisjoint(names) for shard in site.shards.values())


def test_phases_of_a_cluster_elsewhere_are_its_workspaces(site: Site, admin: Api, lived: str) -> None:
    name = workspace(admin, type=lived, selector=on("shard-1"))
    # The system removes its own initializer some time after the phase is visible.
    eventually(
        lambda: ready(admin, name, "Initializing")["status"]["initializers"] == [f"root:{lived}"],
        "only the type's initializer is left",
    )
    made = ready(admin, name, "Initializing")
    assert made["metadata"]["labels"]["tenancy.kcp.io/phase"] == "Initializing"
    inside = api_of(site, made)
    assert inside.get(CLUSTER).json["status"]["phase"] == "Initializing"

    inside.patch(f"{CLUSTER}/status", {"status": {"initializers": []}})
    made = ready(admin, name)
    assert "initializers" not in made["status"]
    assert made["status"]["terminators"] == [f"root:{lived}"]
    assert made["metadata"]["annotations"]["experimental.tenancy.kcp.io/owner"] == '{"username":"kcp-admin"}'

    admin.delete(f"{WORKSPACES}/{name}")
    assert ready(admin, name, "Terminating")["metadata"]["deletionTimestamp"]
    inside.patch(f"{CLUSTER}/status", {"status": {"terminators": []}})
    gone(admin, name)
    eventually(lambda: lies_nowhere(site, made["spec"]["cluster"]), "its cluster is gone")


@pytest.mark.long
def test_a_tree_over_three_shards_goes_from_its_top(site: Site, admin: Api) -> None:
    one = ready(admin, workspace(admin, selector=on("shard-1")))
    two = ready(at(site, one), workspace(at(site, one), selector=on("shard-2")))
    three = ready(at(site, two), workspace(at(site, two), selector=on("root")))
    four = ready(at(site, three), workspace(at(site, three), selector=on("shard-1")))
    beside = ready(at(site, two), workspace(at(site, two), selector=on("shard-2")))
    tree = [one, two, three, four, beside]
    assert {shard_of(each) for each in tree} == {"root", "shard-1", "shard-2"}
    for each in tree:
        at(site, each).post(MAPS, configmap("kept"))
    admin.delete(f"{WORKSPACES}/{one['metadata']['name']}")
    gone(admin, one["metadata"]["name"])
    assert lies_nowhere(site, *(each["spec"]["cluster"] for each in tree))


def at(site: Site, obj: dict[str, Any]) -> Api:
    """kcp-admin in a workspace's own cluster, on its shard."""
    return site.shards[shard_of(obj)].api(obj["spec"]["cluster"])


def test_what_holds_content_elsewhere_is_told_and_holds_the_workspace(site: Site, admin: Api) -> None:
    made = ready(admin, workspace(admin, selector=on("shard-2")))
    name, inside = made["metadata"]["name"], at(site, made)
    inside.post(MAPS, configmap("held", finalizers=["example.com/hold"]))
    admin.delete(f"{WORKSPACES}/{name}")

    def reported() -> bool:
        found = admin.get(f"{WORKSPACES}/{name}").json["status"]
        texts = [each.get("message", "") for each in found["conditions"] if each["type"] == "WorkspaceContentDeleted"]
        return bool(found["phase"] == "Deleting" and texts and "example.com/hold" in texts[0])

    eventually(reported, "its condition tells what holds it")
    inside.patch(f"{MAPS}/held", {"metadata": {"finalizers": None}})
    gone(admin, name)
    assert lies_nowhere(site, made["spec"]["cluster"])


def test_a_cluster_that_is_deleted_directly_takes_its_workspace_along(site: Site, admin: Api) -> None:
    made = ready(admin, workspace(admin, selector=on("shard-1")))
    api_of(site, made).delete(CLUSTER)
    gone(admin, made["metadata"]["name"])
    eventually(lambda: lies_nowhere(site, made["spec"]["cluster"]), "its cluster is gone")


def test_a_name_is_free_again_after_its_workspace_is_gone(admin: Api) -> None:
    first = ready(admin, workspace(admin, selector=on("shard-1")))
    name = first["metadata"]["name"]
    admin.delete(f"{WORKSPACES}/{name}")
    gone(admin, name)
    again = ready(admin, workspace(admin, name=name, selector=on("shard-1")))
    assert again["spec"]["cluster"] != first["spec"]["cluster"]


# --- orders ---


def order(uid: str, parent: str = "root", shard: str = "shard-1", name: str = "ordered") -> tuple[str, dict[str, Any]]:
    """A cluster's name, and the LogicalCluster that a parent's shard would create."""
    owner = {
        "apiVersion": "tenancy.kcp.io/v1alpha1",
        "resource": "workspaces",
        "name": name,
        "cluster": parent,
        "uid": uid,
    }
    annotations = {
        "kcp.io/path": f"root:{name}",
        "core.kcp.io/shard": shard,
        "internal.tenancy.kcp.io/type": "root:universal",
    }
    body = {
        "apiVersion": "core.kcp.io/v1alpha1",
        "kind": "LogicalCluster",
        "metadata": {"name": "cluster", "annotations": annotations},
        "spec": {"owner": owner, "initializers": ["root:universal", "system:apibindings"]},
    }
    return hashes.cluster_name_of(parent, uid, shard), body


def test_an_order_is_answered_with_the_whole_cluster_and_carried_out_once(site: Site) -> None:
    cluster, body = order(str(uuid.uuid4()))
    maker = site.shards["shard-1"].api(cluster, "logical-cluster-admin")
    made = maker.post(CLUSTERS, body).json
    assert made["status"]["phase"] == "Ready"
    assert "initializers" not in made["status"]
    assert made["spec"]["initializers"] == ["root:universal", "system:apibindings"]
    assert made["metadata"]["annotations"]["kcp.io/cluster"] == cluster
    assert maker.post(CLUSTERS, body, expect=409).json["reason"] == "AlreadyExists"

    stolen = {**made["spec"]["owner"], "uid": str(uuid.uuid4())}
    refused = maker.patch(CLUSTER, {"spec": {"owner": stolen}}, MERGE, expect=422)
    assert "spec.owner" in refused.message
    site.shards["shard-1"].api(cluster, "shard-admin").delete(CLUSTER)


@pytest.mark.parametrize("wrong", ["shard", "owner", "path", "type", "cluster", "parent"])
def test_an_order_that_does_not_add_up_makes_nothing(site: Site, wrong: str) -> None:
    cluster, body = order(str(uuid.uuid4()))
    annotations, owner = body["metadata"]["annotations"], body["spec"]["owner"]
    if wrong == "shard":
        annotations["core.kcp.io/shard"] = "shard-2"
    elif wrong == "owner":
        # A Workspace other than the one that the cluster's name is derived from.
        owner["uid"] = str(uuid.uuid4())
    elif wrong == "path":
        annotations["kcp.io/path"] = "root:another"
    elif wrong == "type":
        annotations["internal.tenancy.kcp.io/type"] = "universal"
    elif wrong == "cluster":
        cluster = "somebodys"
    else:
        owner["cluster"] = "system:admin"
    maker = site.shards["shard-1"].api(cluster, "logical-cluster-admin")
    assert maker.post(CLUSTERS, body, expect=422).json["reason"] == "Invalid"
    maker.get(CLUSTER, expect=404)


def test_a_system_cluster_is_nobodys_to_order(site: Site) -> None:
    _, body = order(str(uuid.uuid4()))
    for cluster, code in (("root", 422), ("system:mine", 403)):
        site.shards["shard-1"].api(cluster, "logical-cluster-admin").post(CLUSTERS, body, expect=code)


@pytest.mark.parametrize("user", ["external-logical-cluster-admin", "kcp-admin", "alice"])
def test_nobody_else_makes_logical_clusters(site: Site, user: str) -> None:
    cluster, body = order(str(uuid.uuid4()))
    site.shards["shard-1"].api(cluster, user).post(CLUSTERS, body, expect=403)
    site.shards["shard-1"].api(cluster, "logical-cluster-admin").get(CLUSTER, expect=404)


@pytest.mark.long
def test_a_cluster_elsewhere_that_a_stranger_holds_is_emptied_and_goes_with_the_finalizer(
    site: Site, admin: Api
) -> None:
    made = ready(admin, workspace(admin, selector=on("shard-1")))
    name, inside = made["metadata"]["name"], api_of(site, made)
    # A child on the third shard, so that the emptying crosses shards too.
    child = ready(at(site, made), workspace(at(site, made), selector=on("shard-2")))
    inside.post(MAPS, configmap("content"))
    held = [*inside.get(CLUSTER).json["metadata"]["finalizers"], "example.com/hold"]
    inside.patch(CLUSTER, {"metadata": {"finalizers": held}})
    admin.delete(f"{WORKSPACES}/{name}")

    def emptied() -> bool:
        found = condition(inside.get(CLUSTER).json, "WorkspaceContentDeleted")
        return found.get("status") == "True" and "example.com/hold" in found["message"]

    eventually(emptied, "its content is gone", 60.0)
    assert inside.get(MAPS).json["items"] == [] and lies_nowhere(site, child["spec"]["cluster"])
    for shard in (site.root, site.shards["shard-1"]):
        shard.kill()
        shard.start()
    assert admin.get(f"{WORKSPACES}/{name}").json["metadata"]["deletionTimestamp"]
    # The Workspace's shard is away while the finalizer goes, and is reached when it is back.
    site.root.kill()
    assert inside.patch(CLUSTER, {"metadata": {"finalizers": None}}).code == 200
    eventually(lambda: lies_nowhere_on(site, "shard-1", made), "its cluster is gone")
    site.root.start()
    gone(admin, name)
    assert lies_nowhere(site, made["spec"]["cluster"])


def lies_nowhere_on(site: Site, shard: str, obj: dict[str, Any]) -> bool:
    return obj["spec"]["cluster"] not in clusters(site.shards[shard].api("*", "shard-admin"))
