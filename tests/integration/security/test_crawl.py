"""Responses to users without rights, on every path."""

from __future__ import annotations

import pytest

from harness.clients.api import Answer, Api
from harness.data.request_paths import OPEN, PUBLIC, SERVICES, TO_THE_NAMED, everything, watchable
from harness.tiers import only


@pytest.mark.parametrize("token", only({"nobody-token"}, ["", "nobody-token"]), ids=["anonymous", "nobody"])
def test_who_may_do_nothing_gets_nothing_on_any_path(root: Api, token: str) -> None:
    paths = sorted(set(everything(root)))
    assert len(paths) > 120, "the crawl found the API"
    somebody = Api(root.shard, user="", token=token)
    seen: dict[str, int] = {}
    for prefix in (
        "",
        "/clusters/system:admin",
        "/clusters/system:shard",
        "/clusters/nowhere",
        "/clusters/*",
        "/clusters/root:nowhere",
        *(["/clusters/root"] if not token else []),
    ):
        for path in paths:
            for url in (prefix + path, *([f"{prefix}{path}?watch=1"] if watchable(path) else [])):
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
        for path in (
            "/api/v1/namespaces/default/configmaps",
            "/api/v1/namespaces/default/configmaps/x",
            "/version",
            "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster",
            "/healthz",
            "/services/x",
            "/services/apiexport/root/tenancy.kcp.io/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces",
            "/services/apiexport/root/tenancy.kcp.io/clusters/*/apis/tenancy.kcp.io/v1alpha1/workspaces",
        ):
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
        ("GET", "/api/v1/configmaps", None),
        ("GET", "/api", None),
        ("GET", "/openapi/v3", None),
        ("POST", "/api/v1/namespaces/default/configmaps", configmap),
        ("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", {"metadata": {"name": "x"}, "rules": []}),
    ):
        assert master.send(method, url, body, expect=404).json["reason"] == "NotFound"


def shape(answer: Answer, secret: str) -> tuple[int, object, object]:
    """An answer without parts of the request."""
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
    for path in (
        "",
        "/",
        "/api",
        "/apis",
        "/api/v1/configmaps",
        "/api/v1/namespaces/default/secrets/x",
        "/version",
        "/openapi/v3",
        "/api/v1/pods",
        "/apis/nothing.example.com/v1/things",
        "/nothing",
        "/metrics",
        "/api/v1/configmaps?watch=1",
        "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster",
        *OPEN,
    ):
        shapes = {name: shape(somebody.send("GET", f"/clusters/{name}{path}"), name) for name in unknown | forbidden}
        assert len({str(found) for found in shapes.values()}) == 1, (path, shapes)
        assert next(iter(shapes.values()))[0] == (200 if path in OPEN else 403)
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}
    path = "/api/v1/namespaces/default/configmaps"
    shapes = {n: shape(somebody.send("POST", f"/clusters/{n}{path}", body), n) for n in unknown | forbidden}
    assert len({str(found) for found in shapes.values()}) == 1, shapes
