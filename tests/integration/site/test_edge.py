"""The edge service on three shards: inventories on two of them, mailboxes wherever they are placed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clients.api import Api, eventually
from harness.clients.site_workspaces import on
from harness.servers.edge_service import GROUP, EdgeControllers, an_object, edge_init, location
from harness.servers.site import Site

HOME, INVENTORIES, WORKLOAD = "root:edge-home", ("edge-one", "edge-two"), "root:edge-workload"
WORKSPACES = "/apis/tenancy.kcp.io/v1alpha1/workspaces"


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


def test_inventories_of_two_shards_serve_one_placement_and_a_silent_shard_keeps_its_mailbox(
    site: Site, controllers: EdgeControllers
) -> None:
    apis = [site.proxy.api(f"root:{name}") for name in INVENTORIES]
    workload, home = (site.proxy.api(each) for each in (WORKLOAD, HOME))
    for name, api in zip(INVENTORIES, apis, strict=True):
        eventually(lambda: api.send("GET", f"{GROUP}/synctargets").code == 200, "it is initialized")  # noqa: B023
        api.post(f"{GROUP}/synctargets", an_object("SyncTarget", name, id=name))
        api.post(f"{GROUP}/locations", location(name, env="prod"))
    spec = {"locationSelectors": [{"matchLabels": {"env": "prod"}}]}
    workload.post(f"{GROUP}/edgeplacements", an_object("EdgePlacement", "both", spec))

    def targets() -> set[str]:
        found = workload.send("GET", f"{GROUP}/singleplacementslices/both")
        return {each["syncTargetName"] for each in found.json.get("destinations", ())}

    eventually(lambda: targets() == set(INVENTORIES), "destinations of both shards")
    eventually(lambda: set(mailboxes(home)) == set(INVENTORIES), "a mailbox for each")
    before = mailboxes(home)
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
    for api in (*apis, workload, home):
        api.close()
