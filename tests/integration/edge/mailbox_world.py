"""A mailbox with the account of its syncer, and the view as the syncer sees it.

world = MailboxWorld(root)
world.admin.post("/api/v1/namespaces/default/configmaps", configmap("a"))
world.carry(namespaced("", "configmaps", "default", "a"))
world.syncer.get(ITEMS)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from harness.clients.api import Api, Object, eventually
from harness.data.request_paths import OPEN
from harness.servers.edge_service import GROUP, an_object

WORKSPACES = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ITEMS, CONFIGS = f"{GROUP}/downsyncitems", f"{GROUP}/syncerconfigs"
NAMESPACE = "/api/v1/namespaces/default"
ACCOUNT = f"{NAMESPACE}/serviceaccounts/syncer"
ROLE = "edge-syncer"


def view(api: Api, cluster: str, token: str = "", service: str = "mailbox") -> Api:
    """A client of a view of a workspace, by default of the mailbox view."""
    found = Api(api.shard, token=token or api.token)
    found.prefix = f"/services/{service}/clusters/{cluster}"
    return found


def namespaced(group: str, resource: str, namespace: str, *names: str, version: str = "v1") -> Object:
    """An entry of a SyncerConfig for objects of a namespace."""
    places = [{"namespace": namespace, "names": list(names)}]
    entry = {"group": group, "resource": resource, "apiVersion": version, "objectsByNamespace": places}
    return {"namespacedObjects": [entry]}


class MailboxWorld:
    """`admin` administers the mailbox `cluster`, `syncer` is its syncer in the view."""

    def __init__(self, root: Api, name: str = "", service: str = "root:espw", **spec: object) -> None:
        """Make a mailbox, or take the one with this name; `spec` is more of its Workspace."""
        home = root.at(service)
        kind = {"name": "edge-mailbox", "path": service}
        body = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"generateName": "box-"}}
        self.name = name or home.post(WORKSPACES, {**body, "spec": {"type": kind, **spec}}).json["metadata"]["name"]

        def cluster() -> str:
            found = home.get(f"{WORKSPACES}/{self.name}").json
            return str(found["spec"]["cluster"]) if found["status"].get("phase") == "Ready" else ""

        self.cluster = eventually(cluster, "the mailbox is ready")
        self.path = f"{service}:{self.name}"
        self.admin = root.at(self.cluster)
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
        assert self.admin.send("POST", "/api/v1/namespaces", space).code in (201, 409)
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "syncer"}}
        self.admin.post(f"{NAMESPACE}/serviceaccounts", account)
        self.grant()
        self.token = self.new_token()
        self.syncer = view(root, self.cluster, self.token)
        home.close()

    def new_token(self, **spec: object) -> str:
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        return str(self.admin.post(f"{ACCOUNT}/token", request).json["status"]["token"])

    def grant(self) -> None:
        """Give the account its one right, unless it has it."""
        head: Object = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": ROLE}}
        rules = [{"apiGroups": ["edge.kubestellar.io"], "resources": ["syncerconfigs"], "verbs": ["sync"]}]
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ROLE}
        subject = {"kind": "ServiceAccount", "name": "syncer", "namespace": "default"}
        for plural, body in (
            ("clusterroles", {"kind": "ClusterRole", "rules": rules}),
            ("clusterrolebindings", {"kind": "ClusterRoleBinding", "roleRef": reference, "subjects": [subject]}),
        ):
            if self.admin.send("GET", f"{RBAC}/{plural}/{ROLE}").code == 404:
                self.admin.post(f"{RBAC}/{plural}", {**head, **body})

    def carry(self, *parts: Object, name: str = "the-one") -> int:
        """Write a SyncerConfig with these parts of a spec; return its revision."""
        spec: dict[str, Any] = {}
        for part in parts:
            for field, value in part.items():
                spec.setdefault(field, []).extend(value)
        path = f"{CONFIGS}/{name}"
        found = self.admin.send("GET", path)
        if found.code == 404:
            answer = self.admin.post(CONFIGS, an_object("SyncerConfig", name, spec))
        else:
            answer = self.admin.put(path, {**found.json, "spec": spec})
        return int(answer.json["metadata"]["resourceVersion"])

    def items(self, query: str = "") -> dict[str, Object]:
        """The listed items by name."""
        return {each["metadata"]["name"]: each for each in self.syncer.get(f"{ITEMS}{query}").json["items"]}


def trespasses(outside: Api, world: MailboxWorld, paths: Iterable[str]) -> Iterator[str]:
    """Paths that answer a syncer who sends them as they are, to the service's workspace and to its own mailbox."""
    service = f"/clusters/{world.path.rpartition(':')[0]}"
    for path in paths:
        prefixes = ("",) if path.startswith(("/services", "/clusters")) else ("", service, f"/clusters/{world.cluster}")
        for prefix in prefixes:
            # A path without a workspace is one of the workspace that the token names, where it sees documents.
            is_document = len(path.split("/")) < 5 or path.startswith("/openapi")
            has_documents = prefix != service and is_document and prefixes != ("",)
            expected = {401, 403, 404, 429} | ({200, 301, 406} if has_documents or path in OPEN else set())
            if (code := outside.send("GET", prefix + path).code) not in expected:
                yield f"{prefix}{path}: {code}"
