"""Workspaces with users of different rights, for tests of access control.

scene = Scene(Api(shard, "root"))          # the shard has USERS in its token file
scene.here                                 # kcp-admin in a workspace that helper administers
scene.helper.get(...)                      # its administrator
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.clients.api import Api, Object, eventually, workspace_under
from harness.clients.exports import cluster_of

USERS = (
    "nobody-token,nobody,u-nobody\nalice-token,alice,u-alice\nhelper-token,helper,u-helper\n"
    'worker-token,worker,u-worker\nmaster-token,master,u-master,"system:masters"\n'
    'bold-token,bold,u-bold,"system:kcp:initializer:root:any,system:kcp:terminator:root:any"\n'
)
RBAC = "/apis/rbac.authorization.k8s.io/v1"
TENANCY = "/apis/tenancy.kcp.io/v1alpha1"
CLUSTER = "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}


def token_file(directory: Path) -> tuple[str, str]:
    """The flag that adds USERS."""
    (directory / "tokens.csv").write_text(USERS)
    return "--token-auth-file", str(directory / "tokens.csv")


def user(name: str) -> Object:
    return {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}


def bind(api: Api, role: str, subject: Object) -> None:
    """Bind a ClusterRole in a workspace."""
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    body = {"metadata": {"generateName": "given-"}, "subjects": [subject], "roleRef": reference}
    api.post(f"{RBAC}/clusterrolebindings", body)


def allow(api: Api, name: str, who: str, **rule: list[str]) -> None:
    """A ClusterRole of one rule, and a user who has it."""
    api.post(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": [rule]})
    bind(api, name, user(who))


def whoami(api: Api, headers: dict[str, str] | None = None, expect: int = 201) -> Any:
    """The user that the server identifies for a request; a Status if it is rejected."""
    return api.send("POST", REVIEWS, REVIEW, headers=headers, expect=expect).json


class Scene:
    """A workspace of its own. `helper` administers it, `alice` may enter it."""

    def __init__(self, root: Api) -> None:
        self.root, self.here = root, root.at(workspace_under(root))
        self.cluster = cluster_of(self.here)
        bind(self.here, "cluster-admin", user("helper"))
        bind(self.here, "system:kcp:workspace:access", user("alice"))
        self.helper, self.alice = self.by("helper"), self.by("alice")
        self.master = self.by("master")

    def by(self, name: str, cluster: str | None = None) -> Api:
        """A user's requests to the workspace, or to another."""
        return Api(self.root.shard, self.here.cluster if cluster is None else cluster, token=f"{name}-token")

    def type(self, name: str, *bases: Object, **spec: Any) -> str:
        """A WorkspaceType of the workspace; its name as initializer."""
        extends = {"with": list(bases) or [{"name": "universal", "path": "root"}]}
        body = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType", "metadata": {"name": name}}
        self.here.post(f"{TENANCY}/workspacetypes", {**body, "spec": {"extend": extends, **spec}})
        return f"{self.cluster}:{name}"

    def lets_initialize(self, who: str) -> None:
        """Let a user open the initializing view of any type of the workspace."""
        bind(self.here, "system:kcp:workspace:access", user(who))
        allow(self.here, "work", who, apiGroups=["tenancy.kcp.io"], resources=["workspacetypes"], verbs=["initialize"])

    def child(self, api: Api, name: str, type: str, phase: str = "Initializing", **spec: Any) -> str:
        """Create a Workspace as a user and wait for a phase; return its logical cluster."""
        spec = {"type": {"name": type, "path": self.here.cluster}, **spec}
        body = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name}}
        api.post(f"{TENANCY}/workspaces", {**body, "spec": spec})
        return self.reach(name, phase)

    def reach(self, name: str, phase: str) -> str:
        def reached() -> bool:
            return bool(self.here.get(f"{TENANCY}/workspaces/{name}").json.get("status", {}).get("phase") == phase)

        eventually(reached, f"{name} {phase}")
        return str(self.here.get(f"{TENANCY}/workspaces/{name}").json["spec"].get("cluster", ""))

    def view(self, initializer: str, cluster: str, verb: str = "initialize", by: str = "worker") -> Api:
        """A user inside of a cluster through the view of an initializer."""
        view = self.by(by, "")
        name = {"initialize": "initializingworkspaces", "terminate": "terminatingworkspaces"}[verb]
        view.prefix = f"/services/{name}/{initializer}/clusters/{cluster}"
        return view
