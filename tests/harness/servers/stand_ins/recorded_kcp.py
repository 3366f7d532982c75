"""A small tree of kcp as its API answers, by the shapes that its specification writes down; not taken from a server.

    async with serving(recorded_kcp()) as api: ...

`root` has the workspaces `wharf` (Ready), `asleep` (Unavailable) and `gone` (being deleted). `wharf` exports `crates`
and binds it itself, by the name of its logical cluster. Lists of Kubernetes' kinds have items without kind, a list
comes in two pages, and a kind that is not served is answered in plain text.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from atoll.machinery.meta.objects import Object
from atoll.machinery.wire.exchange import Exchange
from harness.clients.api import crd
from harness.clients.exports import schema_of
from harness.servers.stand_ins.canned_api import CannedApi

CLUSTER, KEY = "1x9p0q7w5e3r2t8y", "a-key-of-the-source"
IDENTITY = hashlib.sha256(KEY.encode()).hexdigest()
TENANCY_IDENTITY = "ab" * 32
APIS, TENANCY, RBAC = "apis.kcp.io", "tenancy.kcp.io", "rbac.authorization.k8s.io"
#: Group, version, plural, kind, namespaced; by the groups' order in discovery.
KINDS = (
    ("", "v1", "namespaces", "Namespace", False),
    ("", "v1", "configmaps", "ConfigMap", True),
    ("", "v1", "secrets", "Secret", True),
    ("", "v1", "events", "Event", True),
    (RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", False),
    (APIS, "v1alpha2", "apiexports", "APIExport", False),
    (APIS, "v1alpha2", "apibindings", "APIBinding", False),
    (APIS, "v1alpha1", "apiresourceschemas", "APIResourceSchema", False),
    (APIS, "v1alpha1", "apiexportendpointslices", "APIExportEndpointSlice", False),
    ("core.kcp.io", "v1alpha1", "logicalclusters", "LogicalCluster", False),
    (TENANCY, "v1alpha1", "workspaces", "Workspace", False),
    (TENANCY, "v1alpha1", "workspacetypes", "WorkspaceType", False),
    ("wharf.example.com", "v1", "crates", "Crate", True),
)


def recorded_kcp() -> CannedApi:
    """The server, without anything but GET."""
    api = CannedApi()
    for path, objects in (("root", _root()), ("root:wharf", _wharf())):
        for group, version, plural, kind, _ in KINDS:
            at = f"/clusters/{path}/{f'apis/{group}' if group else 'api'}/{version}"
            found = [each for each in objects if each["kind"] == kind]
            items = [{key: each[key] for key in each if key not in {"kind", "apiVersion"}} for each in found]
            api.on(
                f"GET {at}/{plural}",
                *_pages(f"{group}/{version}".lstrip("/"), kind, found if group.endswith("kcp.io") else items),
            )
            for each in found:
                namespace = each["metadata"].get("namespace", "")
                api.on(
                    f"GET {at}/{f'namespaces/{namespace}/' if namespace else ''}{plural}/{each['metadata']['name']}",
                    each,
                )
        for kinds in ("api", "apis"):
            api.on(
                f"GET /clusters/{path}/{kinds}", _discovery([row for row in KINDS if bool(row[0]) == (kinds == "apis")])
            )
        for plural in (
            "apis.kcp.io/v1alpha1/apiconversions",
            "tenancy.kcp.io/v1alpha1/workspaceauthenticationconfigurations",
        ):
            api.on(f"GET /clusters/{path}/apis/{plural}", _not_served)
    return api


def _pages(api_version: str, kind: str, items: list[Object]) -> list[Object]:
    """A list of ConfigMaps in two pages, each other one in one."""
    whole: Object = {"apiVersion": api_version, "kind": f"{kind}List", "metadata": {"resourceVersion": "812"}}
    if kind != "ConfigMap" or not items:
        return [{**whole, "items": items}]
    first = {"resourceVersion": "812", "continue": "eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ", "remainingItemCount": 1}
    return [{**whole, "metadata": first, "items": items[:1]}, {**whole, "items": items[1:]}]


async def _not_served(exchange: Exchange) -> None:
    exchange.reply(404, [("content-type", "text/plain; charset=utf-8")], b"404 page not found\n")


def _discovery(rows: list[tuple[str, str, str, str, bool]]) -> Object:
    groups: dict[str, dict[str, list[Object]]] = {}
    for group, version, plural, kind, namespaced in rows:
        resource = {
            "resource": plural,
            "responseKind": {"group": group, "version": version, "kind": kind},
            "scope": "Namespaced" if namespaced else "Cluster",
            "singularResource": kind.lower(),
            "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
            "subresources": [{"subresource": "status", "verbs": ["get", "patch", "update"]}] if kind == "Crate" else [],
        }
        groups.setdefault(group, {}).setdefault(version, []).append(resource)
    items = [
        {
            "metadata": {"name": group},
            "versions": [{"version": each, "resources": found} for each, found in versions.items()],
        }
        for group, versions in groups.items()
    ]
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": items}


def _made(api_version: str, kind: str, name: str, cluster: str = CLUSTER, **fields: Any) -> Object:
    """An object with what kcp sets in its metadata; `metadata` in the fields is added to it."""
    more = dict(fields.pop("metadata", {}))
    annotations = {"kcp.io/cluster": cluster, **more.pop("annotations", {})}
    metadata = {
        "name": name,
        "uid": f"5b0c1c3e-0000-4000-8000-{hashlib.sha256(f'{kind}{name}'.encode()).hexdigest()[:12]}",
        "resourceVersion": "400",
        "generation": 1,
        "creationTimestamp": "2026-08-01T10:00:00Z",
        "annotations": annotations,
        "managedFields": [{"manager": "kcp", "operation": "Update", "apiVersion": api_version}],
        **more,
    }
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def _workspace(name: str, phase: str, cluster: str, **metadata: Any) -> Object:
    annotations = {
        "core.kcp.io/shard": "alpha",
        "internal.tenancy.kcp.io/cluster": cluster,
        "internal.tenancy.kcp.io/shard": "3kd02mfa",
        "experimental.tenancy.kcp.io/owner": '{"username":"kcp-admin"}',
    }
    return _made(
        f"{TENANCY}/v1alpha1",
        "Workspace",
        name,
        "root",
        metadata={
            "annotations": annotations,
            "finalizers": ["core.kcp.io/logicalcluster"],
            "labels": {"tenancy.kcp.io/phase": phase, "region": "eu", "team": "blue"},
            **metadata,
        },
        spec={
            "type": {"name": "universal", "path": "root"},
            "cluster": cluster,
            "URL": f"https://front.example/clusters/root:{name}",
        },
        status={"phase": phase},
    )


def _root() -> list[Object]:
    tenancy = {"resources": [], "identity": {"secretRef": {"name": TENANCY, "namespace": "kcp-system"}}}
    universal = {"initializer": True, "defaultAPIBindings": [{"path": "root", "export": TENANCY}]}
    return [
        _made("core.kcp.io/v1alpha1", "LogicalCluster", "cluster", "root", spec={}, status={"phase": "Ready"}),
        _made(
            f"{APIS}/v1alpha2", "APIExport", TENANCY, "root", spec=tenancy, status={"identityHash": TENANCY_IDENTITY}
        ),
        _made(f"{TENANCY}/v1alpha1", "WorkspaceType", "universal", "root", spec=universal),
        _made("v1", "Namespace", "kcp-system", "root", spec={"finalizers": ["kubernetes"]}),
        _workspace("wharf", "Ready", CLUSTER),
        _workspace("asleep", "Unavailable", "2b9p0q7w5e3r2t8z"),
        _workspace("gone", "Deleting", "3c9p0q7w5e3r2t8a", deletionTimestamp="2026-08-02T10:00:00Z"),
    ]


def _wharf() -> list[Object]:
    claim = {"group": TENANCY, "resource": "workspaces", "verbs": ["get"], "identityHash": TENANCY_IDENTITY}
    crates = "today.crates.wharf.example.com"
    resource = {"group": "wharf.example.com", "name": "crates", "schema": crates, "storage": {"crd": {}}}
    export = {
        "resources": [resource],
        "permissionClaims": [claim],
        "identity": {"secretRef": {"name": "crates", "namespace": "kcp-system"}},
    }
    subject = {"apiGroup": RBAC, "kind": "User"}
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"}
    account = f"system:kcp:serviceaccount:{CLUSTER}:default:default"
    slice_owner = {"apiVersion": f"{APIS}/v1alpha1", "kind": "APIExport", "name": "crates", "uid": "5b0c1c3e"}
    token = {"annotations": {"kubernetes.io/service-account.name": "default"}, "namespace": "default"}
    return [
        _made("core.kcp.io/v1alpha1", "LogicalCluster", "cluster", spec={}, status={"phase": "Ready"}),
        *(
            _made("v1", "Namespace", name, spec={"finalizers": ["kubernetes"]}, status={"phase": "Active"})
            for name in ("default", "kcp-system", "kube-system")
        ),
        _made(
            "v1",
            "Secret",
            "crates",
            metadata={"namespace": "kcp-system"},
            data={"key": base64.b64encode(KEY.encode()).decode()},
            type="Opaque",
        ),
        _made("v1", "Secret", "default-token", metadata=token, data={}, type="kubernetes.io/service-account-token"),
        _made(
            "v1", "ConfigMap", "kube-root-ca.crt", metadata={"namespace": "default"}, data={"ca.crt": "of the source"}
        ),
        _made("v1", "ConfigMap", "prices", metadata={"namespace": "default"}, data={"crate": "3"}),
        _made("v1", "Event", "prices.17", metadata={"namespace": "default"}, reason="Changed"),
        schema_of(crd("crates", "wharf.example.com")) | {"metadata": _made(f"{APIS}/v1alpha1", "", crates)["metadata"]},
        _made(f"{APIS}/v1alpha2", "APIExport", "crates", spec=export, status={"identityHash": IDENTITY}),
        _made(
            f"{APIS}/v1alpha1",
            "APIExportEndpointSlice",
            "crates",
            metadata={"ownerReferences": [slice_owner]},
            spec={"export": {"path": "root:wharf", "name": "crates"}},
            status={"endpoints": []},
        ),
        _binding("tenancy.kcp.io-ab1cd", "root", TENANCY, []),
        _binding("crates", CLUSTER, "crates", [{**claim, "selector": {"matchAll": True}, "state": "Accepted"}]),
        _made(
            f"{RBAC}/v1",
            "ClusterRoleBinding",
            "workspace-admin",
            roleRef=role,
            subjects=[{**subject, "name": name} for name in ("alice", account)],
        ),
        _made(
            "wharf.example.com/v1",
            "Crate",
            "one",
            metadata={"namespace": "default"},
            spec={"size": 2},
            status={"replicas": 5},
        ),
    ]


def _binding(name: str, path: str, export: str, claims: list[Object]) -> Object:
    labels = {"internal.apis.kcp.io/export": "4Xkd2mfa", "claimed.internal.apis.kcp.io/4Xkd2mfa": "2bBdQnG3Mcd9iIa"}
    metadata = {
        "annotations": {"kcp.io/path": "root:wharf"},
        "finalizers": ["apis.kcp.io/apibinding-finalizer"],
        "labels": labels,
    }
    spec: Object = {"reference": {"export": {"path": path, "name": export}}}
    if claims:
        spec["permissionClaims"] = claims
    return _made(f"{APIS}/v1alpha2", "APIBinding", name, metadata=metadata, spec=spec, status={"phase": "Bound"})
