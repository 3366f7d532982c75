"""Plain Kubernetes clusters, registered at the center, and what kubectl sees of them.

edge.has("deployment/web", "-n", "shop")                     it is there, in time
edge.has("deployment/web", "-n", "shop", state="condition=Available")
edge.lost("deployment/web", "-n", "shop")
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness.clients.api import Object, eventually
from harness.clients.kubectl import Kubectl
from harness.servers.edge_cluster import EdgeCluster

WAIT_S = 180.0
INVENTORY = ("--imw", "root:imw1")
_NOT_SERVED = ("could not find the requested resource", "doesn't have a resource type")


class Clusters:
    """Plain clusters by name, started when they are first asked for."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._running: dict[str, EdgeCluster] = {}

    def named(self, *names: str) -> list[EdgeCluster]:
        """Clusters that run. Those that do not are started at the same time."""
        new = {name: EdgeCluster(self._directory / name) for name in names if name not in self._running}
        self._running |= new
        with ThreadPoolExecutor(max_workers=len(names)) as pool:
            list(pool.map(EdgeCluster.start, new.values()))
        return [self._running[name] for name in names]

    def stop(self) -> None:
        """End all of them."""
        for each in self._running.values():
            each.close()


class Side:
    """kubectl on one side: in a workspace of the center, or at an edge cluster."""

    def __init__(self, kubectl: Kubectl) -> None:
        self.kubectl = kubectl
        self.ok = kubectl.ok

    def has(self, what: str, *flags: str, state: str = "create") -> None:
        """Wait until an object is there, or has the state of `kubectl wait --for`."""
        if state != "create":
            self.has(what, *flags)
        self.ok("wait", f"--for={state}", what, *flags, f"--timeout={WAIT_S:.0f}s", timeout_s=WAIT_S + 20)

    def lost(self, what: str, *flags: str) -> None:
        """Wait until kubectl finds nothing."""
        eventually(lambda: self.names(what, *flags) == [], f"{what} is gone", WAIT_S)

    def names(self, what: str, *flags: str) -> list[str]:
        """Names of objects, as `kind/name`; none of a kind that is not served."""
        result = self.kubectl.run("get", what, *flags, "--ignore-not-found", "-o", "name")
        if any(each in result.stderr for each in _NOT_SERVED):
            return []
        assert result.code == 0, result.stderr
        return result.stdout.split()

    def get(self, what: str, *flags: str) -> Object:
        """An object, or a list of them."""
        found: Object = json.loads(self.ok("get", what, *flags, "-o", "json"))
        return found

    def apply(self, *objects: Object) -> None:
        """Apply objects."""
        self.ok("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))


class Edge(Side):
    """One cluster, registered under a name."""

    def __init__(self, name: str, kubectl: Kubectl, center: Side) -> None:
        super().__init__(kubectl)
        self.name, self._center = name, center
        #: The manifest of its syncer.
        self.manifest = kubectl.home / f"{name}-syncer.yaml"

    def register(self, *labels: str) -> None:
        """Register the cluster, and apply the manifest there."""
        self._center.ok(
            "kubestellar", "prep-for-cluster", *INVENTORY, self.name, *labels, "-s", "-o", str(self.manifest)
        )
        self.ok("apply", "-f", str(self.manifest))

    def label(self, *labels: str) -> None:
        """Set labels of its Location."""
        self._center.ok("kubestellar", "ensure", "location", *INVENTORY, self.name, *labels)

    def mailbox(self) -> str:
        """Path of the workspace with the copies for it."""
        words = ("get", "workspaces.tenancy.kcp.io", "-o", "json", "--server", self._server("root:espw"))
        for each in json.loads(self._center.ok(*words))["items"]:
            if each["metadata"].get("annotations", {}).get("edge.kubestellar.io/sync-target-name") == self.name:
                return f"root:espw:{each['metadata']['name']}"
        raise AssertionError(f"{self.name} has no mailbox")

    def copies(self, *words: str) -> Object:
        """What kubectl gets in the mailbox, which serves a kind as long as something of it is sent."""
        result = self._center.kubectl.run("get", *words, "-o", "json", "--server", self._server(self.mailbox()))
        if any(each in result.stderr for each in _NOT_SERVED):
            return {"items": []}
        assert result.code == 0, result.stderr
        found: Object = json.loads(result.stdout)
        return found

    def _server(self, path: str) -> str:
        view = "{.clusters[?(@.name=='base')].cluster.server}"
        base = self._center.ok("config", "view", "-o", f"jsonpath={view}")
        return f"{base.partition('/clusters/')[0]}/clusters/{path}"


def placement(name: str, labels: dict[str, str], *tests: Object, **spec: object) -> Object:
    """An EdgePlacement for Locations with labels."""
    head = {"apiVersion": "edge.kubestellar.io/v2alpha1", "kind": "EdgePlacement", "metadata": {"name": name}}
    return {**head, "spec": {"locationSelectors": [{"matchLabels": labels}], "downsync": list(tests), **spec}}


def namespace(name: str, **labels: str) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def configmap(name: str, namespace: str, data: dict[str, str], **annotations: str) -> Object:
    head = {"name": name, "namespace": namespace, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": head, "data": data}


def deployment(name: str, namespace: str, kind: str = "Deployment", replicas: int = 1) -> Object:
    """A Deployment or ReplicaSet of a web server."""
    labels = {"app": name}
    container = {"name": "httpd", "image": "library/httpd:2.4", "ports": [{"containerPort": 80, "hostPort": 8081}]}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec}
