"""Bindings of mailboxes: those that every mailbox is to have, and those that what is placed needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clients.api import Api, Object, eventually
from harness.servers.configured_nats import ConfiguredNats
from harness.servers.edge_service import EdgeControllers, an_object, edge_init, location
from harness.servers.shard_process import ShardProcess
from integration.edge.placed import (
    LOCATIONS,
    PLACEMENTS,
    TARGETS,
    WORKSPACES,
    inventory,
    mailboxes,
    phase,
    place,
    workload,
)

__all__ = ["inventory", "mailboxes", "workload"]

BINDINGS = "/apis/apis.kcp.io/v1alpha2/apibindings"
DEPLOYMENT = "/apis/apps/v1/namespaces/default/deployments"
PROJECTED, CONFIGURED = "edge.kubestellar.io/projected", "edge.kubestellar.io/configured"
KUBERNETES = {"reference": {"export": {"path": "root", "name": "kubernetes"}}}
CONTAINERS = {"containers": [{"name": "a", "image": "b"}]}
WEB = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web"},
    "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": CONTAINERS},
    },
}


def bound(api: Api, label: str) -> set[str]:
    """Names of the bindings with a label."""
    items: list[Object] = api.get(BINDINGS).json["items"]
    return {each["metadata"]["name"] for each in items if label in each["metadata"].get("labels", {})}


def deploy(api: Api) -> None:
    """Put a Deployment into a workspace that binds Kubernetes' kinds for it."""
    head = {"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": "bind-kubernetes"}}
    api.post(BINDINGS, {**head, "spec": KUBERNETES})
    eventually(lambda: api.send("GET", DEPLOYMENT).code == 200, "Deployments are served")
    api.post(DEPLOYMENT, WEB)


def has_deployment(api: Api) -> bool:
    return api.send("GET", f"{DEPLOYMENT}/web").code == 200


def test_a_binding_that_a_placed_kind_needs_comes_back_and_goes_with_it(
    workload: Api, mailboxes: dict[str, Api]
) -> None:
    box = mailboxes["one"]
    deploy(workload)
    place(workload, "p", {"env": "one"}, {"apiGroup": "apps"})
    eventually(lambda: has_deployment(box), "the copy")
    assert bound(box, PROJECTED) == {"bind-kubernetes"}
    first = box.get(f"{BINDINGS}/bind-kubernetes").json["metadata"]["uid"]
    box.delete(f"{BINDINGS}/bind-kubernetes")

    def is_new() -> bool:
        found = box.send("GET", f"{BINDINGS}/bind-kubernetes")
        return found.code == 200 and found.json["metadata"]["uid"] != first

    eventually(is_new, "the binding is back")
    eventually(lambda: has_deployment(box), "and the copy")
    workload.delete(f"{PLACEMENTS}/p")
    eventually(lambda: bound(box, PROJECTED) == set(), "nothing needs it")


class Service:
    """An edge service of its own, whose mailboxes have Kubernetes' kinds."""

    def __init__(self, root: Api, kubeconfig: Path, flags: tuple[str, ...]) -> None:
        self.root, self._kubeconfig, self._flags = root, kubeconfig, flags
        self.inventory, self.workload = root.at("root:bound-imw"), root.at("root:bound-wmw")

    def controllers(self, *flags: str) -> EdgeControllers:
        directory = self._kubeconfig.parent / "controllers"
        return EdgeControllers(directory, self._kubeconfig, *self._flags, *flags)

    def mailbox(self) -> Api:
        home = self.root.at("root:bound")
        target = self.inventory.post(TARGETS, an_object("SyncTarget", "one", id="one")).json["metadata"]
        self.inventory.post(LOCATIONS, location("one", env="one"))
        name = f"{target['annotations']['kcp.io/cluster']}-mb-{target['uid']}"
        eventually(lambda: phase(home, name) == "Ready", "the mailbox is ready")
        home.close()
        return self.root.at(f"root:bound:{name}")


@pytest.fixture
def service(
    nats: ConfiguredNats, edge: ShardProcess, root: Api, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    kubeconfig: Path = tmp_path_factory.mktemp("bound") / "edge.kubeconfig"
    paths = ("--espw-path", "root:bound", "--ensure-imw", "root:bound-imw", "--ensure-wmw", "root:bound-wmw")
    edge_init(edge, kubeconfig, *paths)
    found = Service(root, kubeconfig, nats.flags("edge-1"))
    yield found
    for api in (found.inventory, found.workload):
        api.close()
    for name in ("bound-imw", "bound-wmw", "bound"):
        root.delete(f"{WORKSPACES}/{name}")


@pytest.mark.long
def test_every_mailbox_has_the_configured_bindings_until_they_are_configured_no_more(service: Service) -> None:
    with service.controllers("--mailbox-resources", "deployments.apps") as controllers:
        eventually(lambda: service.workload.send("GET", PLACEMENTS).code == 200, "the workspaces are initialized")
        eventually(lambda: service.inventory.send("GET", TARGETS).code == 200, "the workspaces are initialized")
        box = service.mailbox()
        (name,) = eventually(lambda: bound(box, CONFIGURED), "the binding")
        eventually(lambda: box.send("GET", DEPLOYMENT).code == 200, "Deployments are served")
        first = box.get(f"{BINDINGS}/{name}").json["metadata"]["uid"]
        box.delete(f"{BINDINGS}/{name}")

        def is_new() -> bool:
            found = box.send("GET", f"{BINDINGS}/{name}")
            return found.code == 200 and found.json["metadata"]["uid"] != first

        eventually(is_new, "the binding is back")
        deploy(service.workload)
        place(service.workload, "p", {"env": "one"}, {"apiGroup": "apps"})
        eventually(lambda: has_deployment(box), "the copy")
        assert bound(box, PROJECTED) == set(), "its binding is there already"
        controllers.stop()
    with service.controllers():
        eventually(lambda: bound(box, PROJECTED) == {"bind-kubernetes"}, "the controllers work")
        assert bound(box, CONFIGURED) == {name}, "it stays while something is in it"
        service.workload.delete(f"{PLACEMENTS}/p")
        eventually(lambda: bound(box, CONFIGURED) == set(), "nothing needs it")
    box.close()
