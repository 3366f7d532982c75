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

pytestmark = pytest.mark.long

HOME, INVENTORIES, WORKLOADS = "root:edge-home", ("edge-one", "edge-two"), ("edge-first", "edge-second")
WORKSPACES = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture(scope="module")
def kubeconfig(site: Site, admin: Api, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The edge service, with an inventory and a workspace for workloads on each of two shards."""
    output: Path = tmp_path_factory.mktemp("edge") / "edge.kubeconfig"
    edge_init(site, output, "--espw-path", HOME, "--ensure-imw", "", "--ensure-wmw", "")
    for kind, names in (("edge-inventory", INVENTORIES), ("edge-workload", WORKLOADS)):
        for name, shard in zip(names, ("shard-1", "shard-2"), strict=True):
            spec = {"type": {"name": kind, "path": HOME}, "location": {"selector": {"matchLabels": on(shard)}}}
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


def copy_of(box: Api, name: str) -> str:
    """The uid of a copy in a mailbox, empty if it has none."""
    found = box.send("GET", f"{CONFIGMAPS}/{name}")
    return str(found.json["metadata"]["uid"]) if found.code == 200 else ""


def shared(box: Api) -> object:
    """The data of the copy that comes from both workspaces."""
    found = box.send("GET", f"{CONFIGMAPS}/shared")
    return found.json.get("data") if found.code == 200 else None


def targets(workload: Api) -> set[str]:
    """The destinations of the placement of a workspace."""
    found = workload.send("GET", f"{GROUP}/singleplacementslices/both")
    return {each["syncTargetName"] for each in found.json.get("destinations", ())}


def place_everywhere(workload: Api, name: str) -> None:
    """Place a ConfigMap of this name, and one that others have too, at all Locations."""
    eventually(lambda: workload.send("GET", f"{GROUP}/edgeplacements").code == 200, "it is initialized")
    workload.post(CONFIGMAPS, configmap(name, {"k": "1"}))
    workload.post(CONFIGMAPS, configmap("shared", {name: "1", "last": name}))
    tests = [{"apiGroup": "", "resources": ["configmaps"]}]
    spec = {"locationSelectors": [{"matchLabels": {"env": "prod"}}], "downsync": tests}
    workload.post(f"{GROUP}/edgeplacements", an_object("EdgePlacement", "both", spec))


def test_inventories_of_two_shards_serve_placements_and_a_silent_shard_keeps_mailboxes_and_copies(
    site: Site, controllers: EdgeControllers
) -> None:
    inventories = [site.proxy.api(f"root:{name}") for name in INVENTORIES]
    first, second, home = (site.proxy.api(each) for each in (*(f"root:{name}" for name in WORKLOADS), HOME))
    for name, api in zip(INVENTORIES, inventories, strict=True):
        eventually(lambda: api.send("GET", f"{GROUP}/synctargets").code == 200, "it is initialized")  # noqa: B023
        api.post(f"{GROUP}/synctargets", an_object("SyncTarget", name, id=name))
        api.post(f"{GROUP}/locations", location(name, env="prod"))
    place_everywhere(first, "gone")
    place_everywhere(second, "kept")
    eventually(lambda: targets(first) == targets(second) == set(INVENTORIES), "destinations of both shards")
    eventually(lambda: set(mailboxes(home)) == set(INVENTORIES), "a mailbox for each")
    before = mailboxes(home)
    boxes = [site.proxy.api(f"{HOME}:{name}") for name in before.values()]
    eventually(lambda: all(copy_of(each, name) for each in boxes for name in ("gone", "kept")), "copies of both")
    merged = {"gone": "1", "kept": "1", "last": "kept"}
    eventually(lambda: all(shared(each) == merged for each in boxes), "what both shards give is merged")
    uids = [copy_of(each, "kept") for each in boxes]
    controllers.stop()
    site.shards["shard-2"].stop()
    try:
        # The workspace with a placement that is left is silent.
        first.delete(f"{GROUP}/edgeplacements/both")
        controllers.spawn()
        assert "[-]controllers failed: reason withheld" in controllers.get("/readyz?verbose")[1]
    finally:
        site.shards["shard-2"].start()
    eventually(lambda: controllers.get("/readyz")[0] == 200, "the controllers are ready")
    eventually(lambda: not any(copy_of(each, "gone") for each in boxes), "what was withdrawn meanwhile goes")
    eventually(lambda: all(shared(each) == {"kept": "1", "last": "kept"} for each in boxes), "of what is merged too")
    probe = inventories[0].post(f"{GROUP}/synctargets", an_object("SyncTarget", "probe")).json
    eventually(lambda: "probe" in mailboxes(home), "the controllers work")
    assert mailboxes(home) == before | {"probe": mailboxes(home)["probe"]}
    assert targets(second) == set(INVENTORIES)
    inventories[0].delete(f"{GROUP}/synctargets/{probe['metadata']['name']}")
    eventually(lambda: set(mailboxes(home)) == set(INVENTORIES), "the mailbox of the probe goes")
    assert [copy_of(each, "kept") for each in boxes] == uids
    for api in (*inventories, *boxes, first, second, home):
        api.close()


@pytest.mark.parametrize("path", [f"root:{name}" for name in INVENTORIES])
def test_a_mailbox_that_is_deleted_comes_back_under_its_name_and_another_target_has_another(
    site: Site, controllers: EdgeControllers, path: str
) -> None:
    home, inventory = site.proxy.api(HOME), site.proxy.api(path)
    eventually(lambda: inventory.send("GET", f"{GROUP}/synctargets").code == 200, "it is initialized")
    target = an_object("SyncTarget", "again", id="again")
    inventory.post(f"{GROUP}/synctargets", target)
    name = eventually(lambda: mailboxes(home).get("again"), "its mailbox")
    cluster = home.get(f"{WORKSPACES}/{name}").json["spec"]["cluster"]
    home.delete(f"{WORKSPACES}/{name}")

    def is_back() -> bool:
        found = home.send("GET", f"{WORKSPACES}/{name}")
        is_ready = found.code == 200 and name in mailboxes(home).values()
        return is_ready and found.json["spec"].get("cluster") not in (None, cluster)

    eventually(is_back, "it comes back under its name, in another logical cluster")
    inside = site.proxy.api(f"{HOME}:{name}")
    eventually(lambda: inside.send("GET", f"{CONFIGS}/the-one").code == 200, "and is filled")
    inventory.delete(f"{GROUP}/synctargets/again")
    inventory.post(f"{GROUP}/synctargets", target)
    eventually(lambda: home.send("GET", f"{WORKSPACES}/{name}").code == 404, "it goes with its SyncTarget")
    assert eventually(lambda: mailboxes(home).get("again"), "another mailbox") != name
    inventory.delete(f"{GROUP}/synctargets/again")
    eventually(lambda: "again" not in mailboxes(home), "it goes too")
    for each in (home, inventory, inside):
        each.close()


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
    mailbox.admin.post(f"{NAMESPACE}/configmaps", configmap("revoked"))
    mailbox.carry(namespaced("", "configmaps", "default", "revoked"))
    with syncer.watch(f"{ITEMS}?watch=1") as events:
        events.next()
        mailbox.admin.delete(ACCOUNT)
        events.rest()
    assert syncer.send("GET", ITEMS).code == 401
