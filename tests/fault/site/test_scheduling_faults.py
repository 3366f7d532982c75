"""Shards that go down, freeze or crash between two calls: a Workspace has one logical cluster all the same, or none."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from harness.clients.api import Api, eventually
from harness.clients.site_workspaces import (
    CLUSTER,
    WORKSPACES,
    clusters,
    condition,
    gone,
    on,
    ready,
    shard_of,
    workspace,
)
from harness.servers.site import ServingProcess, Site

#: A cluster that was created late is noticed after a minute.
LONG_S = 240.0


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("scheduling"), shards=3, proxy=False) as running:
        yield running


@pytest.fixture
def admin(site: Site) -> Iterator[Api]:
    """kcp-admin in `root`; another connection in each test, as the shard may have been another process."""
    api = site.root.api("root")
    yield api
    api.close()


@contextlib.contextmanager
def frozen(shard: ServingProcess) -> Iterator[None]:
    """The process is frozen inside; a test that kills it starts it again."""
    shard.freeze()
    try:
        yield
    finally:
        if shard.running:
            shard.thaw()


@contextlib.contextmanager
def killed(shard: ServingProcess) -> Iterator[None]:
    shard.kill()
    try:
        yield
    finally:
        shard.start()


def clusters_of(shard: ServingProcess, uid: str) -> list[str]:
    """Logical clusters of a Workspace on one shard."""
    return [
        cluster
        for cluster, obj in clusters(shard.api("*", "shard-admin")).items()
        if ((obj.get("spec") or {}).get("owner") or {}).get("uid") == uid
    ]


def owned_by(site: Site, uid: str) -> list[str]:
    """Logical clusters of a Workspace, on whatever shard."""
    return [cluster for shard in site.shards.values() for cluster in clusters_of(shard, uid)]


def chosen(admin: Api, name: str) -> dict[str, Any]:
    """Return a Workspace once phase one of its scheduling is written."""

    def look() -> dict[str, Any] | None:
        found: dict[str, Any] = admin.get(f"{WORKSPACES}/{name}").json
        return found if "core.kcp.io/shard" in found["metadata"].get("annotations", {}) else None

    found: dict[str, Any] = eventually(look, "a shard is chosen")
    return found


@pytest.mark.long
def test_a_shard_that_is_down_is_waited_for_or_passed_over_as_the_selector_says(site: Site, admin: Api) -> None:
    with killed(site.shards["shard-1"]):
        name = workspace(admin, selector=on("shard-1"))

        def reported() -> bool:
            found = admin.get(f"{WORKSPACES}/{name}").json
            said = condition(found, "WorkspaceScheduled")
            if said.get("status") != "False" or '"shard-1" does not answer' not in said["message"]:
                return False
            # No cluster was created, so the choice is removed.
            return "core.kcp.io/shard" not in found["metadata"]["annotations"]

        eventually(reported, "it says that the shard does not answer")
        either: dict[str, Any] = workspace(admin, send=False)
        expression = {"key": "name", "operator": "In", "values": ["shard-1", "shard-2"]}
        either["spec"]["location"] = {"selector": {"matchExpressions": [expression]}}
        for index in range(4):
            other = f"{name}-{index}"
            admin.post(WORKSPACES, {**either, "metadata": {"name": other}})
            assert shard_of(ready(admin, other)) == "shard-2"
    made = ready(admin, name)
    assert shard_of(made) == "shard-1"
    assert owned_by(site, made["metadata"]["uid"]) == [made["spec"]["cluster"]]


def test_the_parents_crash_between_the_calls_leaves_one_cluster(site: Site, admin: Api) -> None:
    target = site.shards["shard-1"]
    with frozen(target):
        name = workspace(admin, selector=on("shard-1"))
        uid = chosen(admin, name)["metadata"]["uid"]
        site.root.kill()
    site.root.start()
    made = ready(site.root.api("root"), name)
    assert shard_of(made) == "shard-1"
    assert owned_by(site, uid) == [made["spec"]["cluster"]]


def test_the_targets_crash_between_the_calls_leaves_one_cluster(site: Site, admin: Api) -> None:
    target = site.shards["shard-1"]
    with frozen(target):
        name = workspace(admin, selector=on("shard-1"))
        uid = chosen(admin, name)["metadata"]["uid"]
        target.kill()
    target.start()
    made = ready(admin, name)
    assert owned_by(site, uid) == [made["spec"]["cluster"]]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_kill_at_any_point_of_two_attempts_leaves_one_cluster(site: Site, admin: Api) -> None:
    """Points: the first choice is written; it was given up for the second; the second shard has created the cluster."""
    targets = {name: site.shards[name] for name in ("shard-1", "shard-2")}
    uids: dict[str, str] = {}
    for point in ("first choice", "second choice", "created"):
        body: dict[str, Any] = workspace(admin, send=False)
        name = body["metadata"]["name"]
        expression = {"key": "name", "operator": "In", "values": list(targets)}
        body["spec"]["location"] = {"selector": {"matchExpressions": [expression]}}
        with frozen(targets["shard-1"]), frozen(targets["shard-2"]):
            api = site.root.api("root")
            uids[name] = api.post(WORKSPACES, body).json["metadata"]["uid"]
            first = shard_of(chosen(api, name))
            if point != "first choice":
                eventually(lambda: shard_of(chosen(api, name)) != first, "another shard is chosen", 60.0)  # noqa: B023
            if point == "created":
                (second,) = targets.keys() - {first}
                targets[second].thaw()
                eventually(lambda: clusters_of(targets[second], uids[name]), "the second shard creates it", 60.0)  # noqa: B023
            site.root.kill()
        site.root.start()
        # One that still waits would take the attempts at calling the shards of the next one.
        ready(site.root.api("root"), name)
    api = site.root.api("root")
    for name, uid in uids.items():
        made = ready(api, name)
        eventually(lambda: owned_by(site, uid) == [made["spec"]["cluster"]], "one cluster is left", 240.0)  # noqa: B023
        assert api.get(f"{WORKSPACES}/{name}").json["metadata"]["uid"] == uid


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_workspace_deleted_before_its_cluster_was_answered_leaves_none(site: Site, admin: Api) -> None:
    with frozen(site.shards["shard-1"]):
        name = workspace(admin, selector=on("shard-1"))
        uid = chosen(admin, name)["metadata"]["uid"]
        admin.delete(f"{WORKSPACES}/{name}")
        # Whether the cluster exists is unknown, so the choice is kept.
        assert admin.get(f"{WORKSPACES}/{name}").json["metadata"]["deletionTimestamp"]
    gone(admin, name)
    eventually(lambda: not owned_by(site, uid), "no cluster is left", LONG_S)


@pytest.mark.long
def test_many_that_wait_for_a_frozen_shard_do_not_hold_up_others(site: Site, admin: Api) -> None:
    with frozen(site.shards["shard-1"]):
        waiting = [workspace(admin, selector=on("shard-1")) for _ in range(40)]
        assert shard_of(ready(admin, workspace(admin, selector=on("shard-2")))) == "shard-2"
        assert shard_of(ready(admin, workspace(admin, selector=on("root")))) == "root"
    uids = [ready(admin, name)["metadata"]["uid"] for name in waiting]
    found = [owner(obj) for obj in clusters(site.shards["shard-1"].api("*", "shard-admin")).values()]
    assert sorted(uid for uid in found if uid in uids) == sorted(uids)


def owner(obj: dict[str, Any]) -> str:
    return str(((obj.get("spec") or {}).get("owner") or {}).get("uid", ""))


@pytest.mark.long
def test_a_cluster_whose_workspaces_shard_is_down_goes_when_it_is_back(site: Site, admin: Api) -> None:
    made = ready(admin, workspace(admin, selector=on("shard-1")))
    inside = site.shards["shard-1"].api(made["spec"]["cluster"], "shard-admin")
    with killed(site.root):
        inside.delete(CLUSTER)

        def reported() -> bool:
            found = inside.get(CLUSTER).json
            return condition(found, "WorkspaceContentDeleted").get("reason") == "OwnerUnavailable"

        eventually(reported, "it says whom it waits for")
    gone(site.root.api("root"), made["metadata"]["name"])
    eventually(lambda: owned_by(site, made["metadata"]["uid"]) == [], "its cluster is gone")


@pytest.mark.long
def test_a_tree_waits_for_the_part_that_is_down_and_goes_when_it_is_back(site: Site, admin: Api) -> None:
    single = ready(admin, workspace(admin, selector=on("shard-1")))
    top = ready(admin, workspace(admin, selector=on("shard-2")))
    middle_of = site.shards["shard-2"].api(top["spec"]["cluster"])
    middle = ready(middle_of, workspace(middle_of, selector=on("shard-1")))
    leaf_of = site.shards["shard-1"].api(middle["spec"]["cluster"])
    leaf = ready(leaf_of, workspace(leaf_of, selector=on("shard-2")))
    with killed(site.shards["shard-1"]):
        for each in (single, top):
            admin.delete(f"{WORKSPACES}/{each['metadata']['name']}")
        eventually(lambda: waits(admin, single), "it says what it waits for")
        eventually(lambda: waits(middle_of, middle), "the middle waits")
        assert owned_by_running(site, leaf["metadata"]["uid"])
    for each in (single, top):
        gone(admin, each["metadata"]["name"])
    for each in (single, top, middle, leaf):
        assert owned_by(site, each["metadata"]["uid"]) == []


def waits(api: Api, obj: dict[str, Any]) -> bool:
    """Whether a Workspace under deletion reports that the shard of its cluster does not answer."""
    found = api.get(f"{WORKSPACES}/{obj['metadata']['name']}").json
    said = condition(found, "WorkspaceContentDeleted").get("message", "")
    return found["status"]["phase"] == "Deleting" and '"shard-1" does not answer' in said


def owned_by_running(site: Site, uid: str) -> bool:
    found = clusters(site.shards["shard-2"].api("*", "shard-admin"))
    return any(owner(obj) == uid for obj in found.values())


def test_a_cluster_becomes_ready_though_the_stream_is_away(site: Site, admin: Api) -> None:
    types = "/apis/tenancy.kcp.io/v1alpha1/workspacetypes"
    spec = {"initializer": True, "extend": {"with": [{"name": "universal", "path": "root"}]}}
    kind = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType", "metadata": {"name": "waited"}}
    admin.post(types, {**kind, "spec": spec})
    name = workspace(admin, type="waited", selector=on("shard-1"))
    made = ready(admin, name, "Initializing")
    site.nats.kill()
    try:
        inside = site.shards["shard-1"].api(made["spec"]["cluster"], "shard-admin")
        inside.patch(f"{CLUSTER}/status", {"status": {"initializers": []}})
        ready(admin, name)
        admin.delete(f"{WORKSPACES}/{name}")
        gone(admin, name)
    finally:
        site.nats.start()
    assert owned_by(site, made["metadata"]["uid"]) == []
