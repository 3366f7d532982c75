"""The matrix of access: cells generated from discovery, compared with an independent model of RBAC.

A cell is a route, a verb, a caller and the form of the URL. `allowed` is the model's result; `tried` is the server's:
an authorized request gets any status but 401 and 403, as its body is empty and no object has its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from atoll.machinery.meta.cached_property import cached_property
from harness.clients.api import Api, workspace_under

RBAC = "/apis/rbac.authorization.k8s.io/v1"
METHODS = {
    "get": "GET",
    "list": "GET",
    "watch": "GET",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
    "deletecollection": "DELETE",
}
#: Non-resource paths that Kubernetes permits to authenticated users, inside a workspace with access.
DISCOVERY = ("/api", "/apis", "/healthz", "/livez", "/readyz", "/openapi", "/version")
PUBLIC = ("/healthz", "/livez", "/readyz")
PATHS = (
    "/",
    "/api",
    "/api/v1",
    "/apis",
    "/apis/apps",
    "/version",
    "/openapi/v2",
    "/openapi/v3",
    "/healthz",
    "/readyz",
    "/livez",
    "/metrics",
    "/logs",
    "/debug/pprof",
    "/nothing",
    "/openid/v1/jwks",
)
#: Resources that only the system writes, whatever a workspace's own roles permit; each with the remaining verbs.
SYSTEMS: dict[tuple[str, str], tuple[str, ...]] = {
    ("apis.kcp.io", "apibindings/status"): (),
    ("apis.kcp.io", "apiexports/status"): (),
    ("tenancy.kcp.io", "workspaces/status"): ("get",),
    ("tenancy.kcp.io", "workspacetypes/status"): ("get",),
    ("core.kcp.io", "logicalclusters"): ("get", "list", "watch", "create", "update", "patch", "delete"),
}
#: Reviews that every authenticated user may create about himself.
ABOUT_ONESELF = {
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authentication.k8s.io", "selfsubjectreviews"),
}
MEMBERS_RULES = (
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]},
)
CALLERS = ("anonymous", "stranger", "member", "admin", "robot", "forged", "borrowed")


class Route(NamedTuple):
    """A resource with a verb, or a non-resource path (`resource` empty)."""

    group: str
    resource: str
    verb: str
    path: str

    def url(self) -> str:
        query = {"watch": "?watch=1&timeoutSeconds=1", "list": "?limit=1"}.get(self.verb, "")
        return self.path + (query if self.resource and self.verb in {"list", "watch"} else "?dryRun=All")


class Caller(NamedTuple):
    """A token, and headers to send."""

    token: str
    headers: dict[str, str]


class Town:
    """A workspace with a member and an administrator, and another one whose service account has all rights in it."""

    def __init__(self, root: Api) -> None:
        self.root, self.here = root, root.at(workspace_under(root))
        neighbour = root.at(workspace_under(root))
        subject = {"kind": "ServiceAccount", "name": "default", "namespace": "default"}
        _bind(neighbour, "cluster-admin", subject)
        # The same name as a user, and as an account of this workspace, has all rights here: neither is the neighbour's.
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        path = "/api/v1/namespaces/default/serviceaccounts/default/token"
        robot = str(neighbour.post(path, request).json["status"]["token"])
        self.here.post(f"{RBAC}/clusterroles", {"metadata": {"name": "member"}, "rules": list(MEMBERS_RULES)})
        _bind(self.here, "member", _user("alice"))
        _bind(self.here, "system:kcp:workspace:access", _user("alice"))
        _bind(self.here, "cluster-admin", _user("helper"))
        found = self.here.get("/apis/core.kcp.io/v1alpha1/logicalclusters/cluster").json
        self.cluster = str(found["metadata"]["annotations"]["kcp.io/cluster"])
        borrowed = {"Impersonate-User": "helper", "Impersonate-Group": "system:masters"}
        self.callers = {
            "anonymous": Caller("", {}),
            "stranger": Caller("nobody-token", {}),
            "member": Caller("alice-token", {}),
            "admin": Caller("helper-token", {}),
            "robot": Caller(robot, {}),
            "forged": Caller("nobody-token", {"X-Remote-User": "helper", "X-Remote-Group": "system:masters"}),
            "borrowed": Caller("helper-token", borrowed),
        }

    @cached_property
    def routes(self) -> list[Route]:
        """All routes of discovery, and those that discovery does not list."""
        return routes_of(self.here)

    def sender(self, caller: str, prefix: str) -> Api:
        token, headers = self.callers[caller]
        api = Api(self.root.shard, user="", token=token)
        api.prefix = prefix
        plain = api.headers
        api.headers = lambda accept="", more=None: {**plain(accept, more), **headers}  # type: ignore[method-assign]
        return api


def routes_of(api: Api) -> list[Route]:
    """All routes of a workspace's discovery, and those that discovery does not list."""
    return list(_routes(api))


def _routes(api: Api) -> Iterator[Route]:
    groups = ["/api/v1"] + [
        f"/apis/{version['groupVersion']}" for group in api.get("/apis").json["groups"] for version in group["versions"]
    ]
    for prefix in groups:
        group = prefix.split("/")[2] if prefix.startswith("/apis/") else ""
        for resource in api.get(prefix).json["resources"]:
            yield from _routes_of(prefix, group, resource)
    yield from (Route("", "", "get", path) for path in PATHS)
    yield from (Route("", "", verb, "/api") for verb in ("create", "update", "delete"))


def _routes_of(prefix: str, group: str, resource: dict[str, Any]) -> Iterator[Route]:
    name, _, subresource = resource["name"].partition("/")
    space = "/namespaces/default" if resource["namespaced"] else ""
    for verb in resource["verbs"]:
        one = verb in {"get", "update", "patch", "delete"} or subresource
        path = f"{prefix}{space}/{name}" + ("/nobodys" if one else "") + (f"/{subresource}" if subresource else "")
        yield Route(group, resource["name"], verb, path)


def _user(name: str) -> dict[str, str]:
    return {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}


def _bind(api: Api, role: str, subject: dict[str, str]) -> None:
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    body = {"metadata": {"generateName": "given-"}, "subjects": [subject], "roleRef": reference}
    api.post(f"{RBAC}/clusterrolebindings", body)


def allowed(caller: str, route: Route) -> bool:
    """The model's result for a request inside the workspace."""
    if caller == "borrowed":
        return False
    if route.path in PUBLIC and route.verb == "get":
        return True
    if caller in {"anonymous", "stranger", "robot", "forged"}:
        return False
    if not route.resource:
        return caller == "admin" or (route.verb == "get" and any(_below(route.path, each) for each in DISCOVERY))
    left = SYSTEMS.get((route.group, route.resource))
    if left is not None and route.verb not in left:
        return False
    if caller == "admin" or ((route.group, route.resource) in ABOUT_ONESELF and route.verb == "create"):
        return True
    return any(_grants(rule, route) for rule in MEMBERS_RULES)


def _below(path: str, top: str) -> bool:
    return path == top or path.startswith(f"{top}/")


def _grants(rule: dict[str, list[str]], route: Route) -> bool:
    verbs, groups, resources = rule["verbs"], rule["apiGroups"], rule["resources"]
    return (route.verb in verbs or "*" in verbs) and route.group in groups and route.resource in resources


def tried(api: Api, route: Route) -> bool:
    """Whether the server authorizes a request."""
    if route.verb == "watch":
        code = api.status(route.url())
    else:
        body: dict[str, Any] | None = {} if route.verb in {"create", "update", "patch"} else None
        code = api.send(METHODS[route.verb], route.url(), body).code
    return code not in {401, 403}


def mistakes(
    town: Town,
    prefix: str,
    callers: tuple[str, ...] = CALLERS,
    only: tuple[str, ...] | None = None,
    routes: Sequence[Route] = (),
) -> Iterator[str]:
    """Cells in which the server and the model differ: of `routes`, else of all. Beyond `only` nothing is expected."""
    for caller in callers:
        api = town.sender(caller, prefix)
        for route in routes or town.routes:
            expected = allowed(caller, route) and (only is None or route.path in only)
            if tried(api, route) != expected:
                yield f"{caller}: {route.verb} {prefix}{route.url()} expected {expected}"
        api.close()
