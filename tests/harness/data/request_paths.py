"""Every path of a server, for tests of users without rights: resources, views, discovery and non-resource paths.

for path in everything(kcp_admin_in_root):
    stranger.send("GET", path)
"""

from __future__ import annotations

from collections.abc import Iterator

from harness.clients.api import Api

OPEN = ("/healthz", "/livez", "/readyz")
SERVICES = (
    "/services", "/services/apiexport", "/services/apiexport/root",
    "/services/apiexport/root/tenancy.kcp.io/clusters", "/services/apiexport/root/unheard-of/clusters/*/api",
    "/services/apiexport/root:x/tenancy.kcp.io/clusters/*/api",
    "/services/apiexport/root/tenancy.kcp.io/clusters/root:x/api",
    "/services/apiresourceschema", "/services/apiresourceschema/root/clusters/unheard-of/apis",
    "/services/apiresourceschema/unheard-of/clusters/*/apis", "/services/apiresourceschema/unheard-of/apis",
    "/services/replication", "/services/replication/root", "/services/replication/root/unheard-of/clusters/*/apis",
    "/services/replication/root/unheard-of/clusters/root/apis",
    "/services/initializingworkspaces", "/services/initializingworkspaces/root:universal/clusters",
    "/services/terminatingworkspaces/root:universal/x/root/api", "/services/workspaces", "/services/nothing",
    "/services/initializingworkspaces/root:universal/clusters/root:x/api",
    "/services/edge-view", "/services/edge-view/clusters/*/api", "/services/edge-view/clusters/root",
    "/services/edge-view/clusters/root:x/api",
    "/services/edge-view/clusters/root/metrics",
    "/services/mailbox", "/services/mailbox/clusters", "/services/mailbox/clusters/*/api", "/services/mailbox/root/api",
    "/services/mailbox/clusters/root", "/services/mailbox/clusters/root:x/api", "/services/mailbox/clusters/root/apis",
    "/services/mailbox/clusters/root/apis/edge.kubestellar.io/v2alpha1/downsyncitems",
    "/services/mailbox/clusters/root/api/v1/namespaces/default/secrets", "/services/mailbox/clusters/root/metrics",
    "/services/events", "/services/events/clusters", "/services/events/clusters/*/subscriptions",
    "/services/events/clusters/root:x", "/services/events/clusters/root:x/subscriptions", "/services/events/root/token",
    "/services/events/clusters/root:x/token", "/services/events/clusters/root:x/api/v1/secrets",
)  # fmt: skip
CACHE = tuple(
    f"/services/cache{rest}"
    for rest in ("", "/", "/shards", "/shards/*", "/shards/*/clusters/*", "/shards/*/clusters/*/api",
                 "/shards/*/clusters/*/apis", "/shards/*/clusters/*/apis/rbac.authorization.k8s.io/v1/clusterroles",
                 "/shards/root/clusters/root/apis/rbac.authorization.k8s.io/v1/clusterroles",
                 "/shards/root/clusters/root/apis/rbac.authorization.k8s.io/v1/clusterroles/x",
                 "/shards/*/clusters/*/apis/core.kcp.io/v1alpha1/logicalclusters",
                 "/shards/*/clusters/*/apis/core.kcp.io/v1alpha1/shards",
                 "/shards/*/clusters/*/apis/tenancy.kcp.io/v1alpha1/workspaces",
                 "/shards/*/clusters/*/apis/apis.kcp.io/v1alpha2/apiexports", "/shards/*/clusters/*/openapi/v3",
                 "/shards/*/clusters/*/version", "/shards/*/clusters/*/metrics", "/clusters/*/api", "/version")
)  # fmt: skip
_LIFECYCLE = "/services/{}workspaces/root:universal/clusters/{}"
VIEWS = (
    *(
        _LIFECYCLE.format(view, cluster) + path
        for view in ("initializing", "terminating") for cluster in ("*", "root", "unheard-of")
        for path in ("/api", "/apis", "/apis/core.kcp.io/v1alpha1/logicalclusters", "/openapi/v3", "/metrics",
                     "/api/v1/namespaces/default/configmaps", "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster")
    ),
    "/services/edge-view/clusters/root/apis/rbac.authorization.k8s.io/v1/roles",
    "/services/edge-view/clusters/root/api/v1/namespaces/default/secrets",
    "/services/events/clusters/system:admin/subscriptions",
    "/services/events/clusters/system:admin/subscriptions/audit",
)  # fmt: skip
_SCHEMAS = tuple(
    f"/services/apiresourceschema/root{clusters}{path}"
    for clusters in ("", "/clusters/*", "/clusters/root")
    for path in ("/apis", "/openapi/v3", "/apis/apis.kcp.io/v1alpha1/apiresourceschemas", "/healthz", "/metrics",
                 "/apis/apis.kcp.io/v1alpha1/apiresourceschemas/x", "/api/v1/secrets")
)  # fmt: skip
_EXPORT = "/services/apiexport/root/tenancy.kcp.io/clusters/{}/{}"
EXPORTS = tuple(
    _EXPORT.format(cluster, path)
    for cluster in ("*", "root", "unheard-of")
    for path in ("", "api", "apis", "version", "openapi/v2", "openapi/v3", "apis/tenancy.kcp.io/v1alpha1",
                 "apis/tenancy.kcp.io/v1alpha1/workspaces", "apis/tenancy.kcp.io/v1alpha1/workspaces/x/status",
                 "apis/apis.kcp.io/v1alpha2/apibindings", "api/v1/secrets", "healthz", "metrics")
)  # fmt: skip
OTHERS = (
    "/", "/api", "/api/v1", "/apis", "/openapi/v2", "/openapi/v3", "/metrics", "/version", "/openid/v1/jwks",
    "/.well-known/openid-configuration", "/logs", "/debug/pprof", "/flagz", "/statusz", "/configz", "/nothing",
    "/healthz/ping", "/readyz/ping", "/clusters", "/clusters/", "/api/v1/watch/secrets",
)  # fmt: skip
#: Paths that Kubernetes' own roles permit: the version to all, built-in schemas and keys to authenticated users.
PUBLIC = ("/version",)
TO_THE_NAMED = ("/version", "/openapi/v", "/openid/v1/jwks", "/.well-known/openid-configuration")


def everything(root: Api) -> Iterator[str]:
    """Every path of the route list, as an administrator gets it."""
    fixed = (*OTHERS, *SERVICES, *CACHE, *VIEWS, *_SCHEMAS, *EXPORTS)
    yield from (path for path in fixed if not path.startswith("/clusters"))
    yield from root.get("/").json["paths"]
    groups = [("/api/v1", root.get("/api/v1").json)]
    for group in root.get("/apis").json["groups"]:
        for version in group["versions"]:
            path = f"/apis/{version['groupVersion']}"
            groups.append((path, root.get(path).json))
    for path, found in groups:
        yield from (path, f"/openapi/v3{path}")
        for resource in found["resources"]:
            name, _, subresource = resource["name"].partition("/")
            space = "/namespaces/default" if resource["namespaced"] else ""
            yield f"{path}{space}/{name}" + (f"/x/{subresource}" if subresource else "")
            if space:
                yield f"{path}/{name}"


def watchable(path: str) -> bool:
    """Whether the path looks like a resource that can be watched."""
    return path.endswith("s")
