"""The edge service on three shards: inventories on two of them, mailboxes wherever they are placed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clients.api import Api, configmap, eventually
from harness.clients.site_workspaces import on
from harness.data.request_paths import everything
from harness.seeds import seed_of_run
from harness.servers.edge_service import GROUP, EdgeControllers, an_object, edge_init, location
from harness.servers.site import Site
from integration.edge.mailbox_world import (
    ACCOUNT,
    CONFIGS,
    ITEMS,
    NAMESPACE,
    RBAC,
    MailboxWorld,
    namespaced,
    trespasses,
)

HOME, INVENTORIES, WORKLOAD = "root:edge-home", ("edge-one", "edge-two"), "root:edge-workload"
WORKSPACES = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture(scope="module")
def kubeconfig(site: Site, admin: Api, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The edge service, with an inventory on each of two shards."""
    output: Path = tmp_path_factory.mktemp("edge") / "edge.kubeconfig"
    edge_init(site, output, "--espw-path", HOME, "--ensure-imw", "", "--ensure-wmw", WORKLOAD)
    for name, shard in zip(INVENTORIES, ("shard-1", "shard-2"), strict=True):
        spec = {"type": {"name": "edge-inventory", "path": HOME}, "location": {"selector": {"matchLabels": on(shard)}}}
        head = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name}}
        admin.post(WORKSPACES, {**head, "spec": spec})
    return output


@pytest.fixture(scope="module")
def controllers(kubeconfig: Path) -> Iterator[EdgeControllers]:
    with EdgeControllers(kubeconfig.parent / "controllers", kubeconfig) as running:
        yield running


def mailboxes(home: Api) -> dict[str, str]:
    """Names of SyncTargets, and those of their mailboxes that are ready."""
    note = "edge.kubestellar.io/sync-target-name"
    found = home.get(WORKSPACES).json["items"]
    ready = [each for each in found if each.get("status", {}).get("phase") == "Ready"]
    return {each["metadata"]["annotations"][note]: each["metadata"]["name"] for each in ready}


def has_copy(box: Api) -> bool:
    return box.send("GET", f"{CONFIGMAPS}/carried").code == 200


def test_inventories_of_two_shards_serve_one_placement_and_a_silent_shard_keeps_its_mailbox(
    site: Site, controllers: EdgeControllers
) -> None:
    apis = [site.proxy.api(f"root:{name}") for name in INVENTORIES]
    workload, home = (site.proxy.api(each) for each in (WORKLOAD, HOME))
    for name, api in zip(INVENTORIES, apis, strict=True):
        eventually(lambda: api.send("GET", f"{GROUP}/synctargets").code == 200, "it is initialized")  # noqa: B023
        api.post(f"{GROUP}/synctargets", an_object("SyncTarget", name, id=name))
        api.post(f"{GROUP}/locations", location(name, env="prod"))
    tests = [{"apiGroup": "", "resources": ["configmaps"]}]
    spec = {"locationSelectors": [{"matchLabels": {"env": "prod"}}], "downsync": tests}
    workload.post(CONFIGMAPS, configmap("carried", {"k": "1"}))
    workload.post(f"{GROUP}/edgeplacements", an_object("EdgePlacement", "both", spec))

    def targets() -> set[str]:
        found = workload.send("GET", f"{GROUP}/singleplacementslices/both")
        return {each["syncTargetName"] for each in found.json.get("destinations", ())}

    eventually(lambda: targets() == set(INVENTORIES), "destinations of both shards")
    eventually(lambda: set(mailboxes(home)) == set(INVENTORIES), "a mailbox for each")
    before = mailboxes(home)
    boxes = [site.proxy.api(f"{HOME}:{name}") for name in before.values()]
    eventually(lambda: all(has_copy(each) for each in boxes), "a copy in each, whatever its shard")
    controllers.stop()
    site.shards["shard-2"].stop()
    try:
        controllers.spawn()
        assert "[-]controllers failed: reason withheld" in controllers.get("/readyz?verbose")[1]
    finally:
        site.shards["shard-2"].start()
    eventually(lambda: controllers.get("/readyz")[0] == 200, "the controllers are ready")
    probe = apis[0].post(f"{GROUP}/synctargets", an_object("SyncTarget", "probe")).json
    eventually(lambda: "probe" in mailboxes(home), "the controllers work")
    assert mailboxes(home) == before | {"probe": mailboxes(home)["probe"]}
    assert targets() == set(INVENTORIES)
    apis[0].delete(f"{GROUP}/synctargets/{probe['metadata']['name']}")
    eventually(lambda: set(mailboxes(home)) == set(INVENTORIES), "the mailbox of the probe goes")
    assert all(has_copy(each) for each in boxes)
    workload.delete(f"{GROUP}/edgeplacements/both")
    eventually(lambda: not any(has_copy(each) for each in boxes), "the copies go")
    for api in (*apis, *boxes, workload, home):
        api.close()


@pytest.fixture(scope="module")
def mailbox(site: Site, controllers: EdgeControllers) -> MailboxWorld:
    """A mailbox of the second shard, by the front proxy."""
    place = {"selector": {"matchLabels": on("shard-1")}}
    return MailboxWorld(site.proxy.api("root"), service=HOME, location=place)


@pytest.fixture
def syncer(site: Site, mailbox: MailboxWorld) -> Iterator[Api]:
    """Its syncer, by the front proxy."""
    found = site.proxy.with_token(mailbox.token)
    found.prefix = f"/services/mailbox/clusters/{mailbox.cluster}"
    yield found
    found.close()


def test_by_the_front_proxy_a_syncer_carries_what_its_mailbox_lists_and_reports(
    site: Site, mailbox: MailboxWorld, syncer: Api
) -> None:
    assert site.shards["shard-1"].api(mailbox.cluster).get(f"{NAMESPACE}/configmaps").code == 200
    before = mailbox.carry(namespaced("", "configmaps", "default", "a"))
    with syncer.watch(f"{ITEMS}?watch=1&resourceVersion={before}") as events:
        mailbox.admin.post(f"{NAMESPACE}/configmaps", configmap("a", {"k": "1"}))
        assert events.next().object["object"]["data"] == {"k": "1"}
    names = [each["metadata"]["name"] for each in syncer.get(ITEMS).json["items"]]
    assert names == ["configmaps.:default:a", "syncerconfigs.edge.kubestellar.io::the-one"]
    syncer.patch(f"{CONFIGS}/the-one/status", {"status": {"appliedRevision": str(before)}})
    assert mailbox.admin.get(f"{CONFIGS}/the-one").json["status"]["appliedRevision"] == str(before)
    named = site.proxy.with_token(mailbox.token)
    named.prefix = f"/services/mailbox/clusters/{mailbox.path}"
    assert named.get(f"{NAMESPACE}/configmaps/a").json["data"] == {"k": "1"}
    named.close()


def test_by_the_front_proxy_a_workspace_of_another_shard_is_a_container_of_data(
    site: Site, mailbox: MailboxWorld
) -> None:
    view = site.proxy.api()
    view.prefix = f"/services/edge-view/clusters/{mailbox.cluster}"
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "data"}}
    with view.watch(f"{RBAC}/clusterroles?watch=1") as events:
        view.post(f"{RBAC}/clusterroles", {**role, "rules": []})
        assert events.next().name == "data"
    assert mailbox.admin.send("GET", f"{RBAC}/clusterroles/data").code == 404
    stranger = site.proxy.with_token(mailbox.token)
    stranger.prefix = view.prefix
    assert stranger.send("GET", f"{RBAC}/clusterroles").code == 403
    for api in (view, stranger):
        api.close()


def test_on_every_process_of_a_site_a_syncer_reaches_its_own_mailbox_only(
    site: Site, admin: Api, mailbox: MailboxWorld
) -> None:
    place = {"selector": {"matchLabels": on("shard-2")}}
    other = MailboxWorld(site.proxy.api("root"), service=HOME, location=place)
    paths = random.Random(seed_of_run(12)).sample(list(everything(admin)), 25)
    for process in (site.proxy, *site.shards.values()):
        outside = process.with_token(mailbox.token)
        assert list(trespasses(outside, mailbox, paths)) == [], process.name
        for cluster in ("root", HOME, other.cluster, other.path, "unheard-of", "*"):
            for path in (ITEMS, "/api", f"{NAMESPACE}/configmaps"):
                code = outside.send("GET", f"/services/mailbox/clusters/{cluster}{path}").code
                assert code in {401, 403}, (process.name, cluster, path, code)
        outside.close()


def test_by_the_front_proxy_a_revoked_syncer_is_nobody_and_its_watch_ends(mailbox: MailboxWorld, syncer: Api) -> None:
    with syncer.watch(f"{ITEMS}?watch=1") as events:
        events.next()
        mailbox.admin.delete(ACCOUNT)
        events.rest()
    assert syncer.send("GET", ITEMS).code == 401
