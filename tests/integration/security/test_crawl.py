"""What those who may do nothing get, on every path there is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.api import Answer, Api

OPEN = ("/healthz", "/livez", "/readyz")
SERVICES = (
    "/services", "/services/cache/shards/*/clusters/*/apis", "/services/apiexport", "/services/apiexport/root",
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
)  # fmt: skip
_LIFECYCLE = "/services/{}workspaces/root:universal/clusters/{}"
VIEWS = tuple(
    _LIFECYCLE.format(view, cluster) + path
    for view in ("initializing", "terminating") for cluster in ("*", "root", "unheard-of")
    for path in ("/api", "/apis", "/apis/core.kcp.io/v1alpha1/logicalclusters", "/api/v1/namespaces/default/configmaps",
                 "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster", "/openapi/v3", "/metrics")
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
#: What Kubernetes' own roles show of the shard itself: the version to all, built-in schemas and keys to who has a name.
PUBLIC = ("/version",)
TO_THE_NAMED = ("/version", "/openapi/v", "/openid/v1/jwks", "/.well-known/openid-configuration")


def everything(root: Api) -> Iterator[str]:
    """Every path of the route list, as an administrator finds it."""
    yield from (path for path in (*OTHERS, *SERVICES, *VIEWS, *_SCHEMAS, *EXPORTS) if not path.startswith("/clusters"))
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


@pytest.mark.parametrize("token", ["", "nobody-token"], ids=["anonymous", "nobody"])
def test_who_may_do_nothing_gets_nothing_on_any_path(root: Api, token: str) -> None:
    paths = sorted(set(everything(root)))
    assert len(paths) > 120, "the crawl found the API"
    somebody = Api(root.shard, user="", token=token)
    seen: dict[str, int] = {}
    for prefix in ("", "/clusters/system:admin", "/clusters/system:shard", "/clusters/nowhere", "/clusters/*",
                   "/clusters/root:nowhere", *(["/clusters/root"] if not token else [])):  # fmt: skip
        for path in paths:
            for url in (prefix + path, *([f"{prefix}{path}?watch=1"] if path.endswith("s") else [])):
                answer = somebody.send("GET", url)
                if path not in OPEN:
                    seen[url] = answer.code
    answered = {url: code for url, code in seen.items() if code not in {401, 403}}
    assert [url for url in answered if not url.startswith(TO_THE_NAMED if token else PUBLIC)] == [], answered
    for path in OPEN:
        assert somebody.get(path).body == b"ok"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_who_may_do_nothing_changes_nothing(root: Api, method: str) -> None:
    somebody = Api(root.shard, user="", token="nobody-token")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}
    for prefix in ("", "/clusters/root", "/clusters/system:admin", "/clusters/*", "/clusters/nowhere"):
        for path in ("/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/configmaps/x", "/version",
                     "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster", "/healthz", "/services/x",
                     "/services/apiexport/root/tenancy.kcp.io/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces",
                     "/services/apiexport/root/tenancy.kcp.io/clusters/*/apis/tenancy.kcp.io/v1alpha1/workspaces"):
            answer = somebody.send(method, prefix + path, body)
            assert answer.code in {403, 405}, (method, prefix + path, answer.body)
            assert answer.code == 403 or path == "/healthz", (method, prefix + path, answer.body)


def test_services_that_do_not_exist_do_not_exist_for_masters_either(shard: object, root: Api) -> None:
    master = Api(root.shard, user="shard-admin")
    for path in SERVICES:
        assert master.get(path, expect=404).json["reason"] == "NotFound"


@pytest.mark.parametrize("path", ["root:unheard-of", "root:unheard-of:below"])
def test_where_a_path_leads_nowhere_masters_do_nothing_either(root: Api, path: str) -> None:
    master = Api(root.shard, path, user="shard-admin")
    configmap = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}
    for method, url, body in (
        ("GET", "/api/v1/configmaps", None), ("GET", "/api", None), ("GET", "/openapi/v3", None),
        ("POST", "/api/v1/namespaces/default/configmaps", configmap),
        ("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", {"metadata": {"name": "x"}, "rules": []}),
    ):  # fmt: skip
        assert master.send(method, url, body, expect=403).json["reason"] == "Forbidden"


def shape(answer: Answer, secret: str) -> tuple[int, object, object]:
    """An answer without what the asker said himself."""
    body = answer.body.decode().replace(secret, "<it>")
    headers = {name.lower(): value for name, value in answer.headers.items()}
    for changing in ("audit-id", "date", "content-length"):
        headers.pop(changing, None)
    return answer.code, body, headers


@pytest.mark.parametrize("token", ["", "nobody-token"], ids=["anonymous", "nobody"])
def test_an_unknown_workspace_and_a_forbidden_one_cannot_be_told_apart(api: Api, root: Api, token: str) -> None:
    found = api.get("/apis/core.kcp.io/v1alpha1/logicalclusters/cluster").json
    cluster = found["metadata"]["annotations"]["kcp.io/cluster"]
    somebody = Api(root.shard, user="", token=token)
    unknown = {"root:unheard-of", "root:unheard-of:below", f"{api.cluster}:below", "0unheardof0", "unheard-of"}
    forbidden = {api.cluster, cluster}
    for path in ("", "/", "/api", "/apis", "/api/v1/configmaps", "/api/v1/namespaces/default/secrets/x", "/version",
                 "/openapi/v3", "/api/v1/pods", "/apis/nothing.example.com/v1/things", "/nothing", "/metrics",
                 "/api/v1/configmaps?watch=1", "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"):  # fmt: skip
        shapes = {name: shape(somebody.send("GET", f"/clusters/{name}{path}"), name) for name in unknown | forbidden}
        assert len({str(found) for found in shapes.values()}) == 1, (path, shapes)
        assert next(iter(shapes.values()))[0] == 403
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}
    path = "/api/v1/namespaces/default/configmaps"
    shapes = {n: shape(somebody.send("POST", f"/clusters/{n}{path}", body), n) for n in unknown | forbidden}
    assert len({str(found) for found in shapes.values()}) == 1, shapes
