"""APIs exported and bound over the wire: the first steps of tests of exports, bindings, claims and views.

    make_export(provider, "shapes", schema("circles"))      # identity valid; returns the APIExport
    bind(consumer, provider.cluster, "shapes")               # Bound, and served; returns the APIBinding

`provider` and `consumer` are `harness.clients.api.Api`s in their workspaces, of users who are allowed to do it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.clients.api import Api, Object, crd, define, eventually

APIS, APIS_V1 = "/apis/apis.kcp.io/v1alpha2", "/apis/apis.kcp.io/v1alpha1"
EXPORTS, BINDINGS = f"{APIS}/apiexports", f"{APIS}/apibindings"
SCHEMAS, CONVERSIONS = f"{APIS_V1}/apiresourceschemas", f"{APIS_V1}/apiconversions"
SLICES = f"{APIS_V1}/apiexportendpointslices"
CACHED = "/apis/cache.kcp.io/v1alpha1/clustercachedresources"
SECRETS = "/api/v1/namespaces/kcp-system/secrets"
#: The limit of a wait, far above any duration that tests expect.
PATIENCE_S = 30.0
_KEPT = (
    "name",
    "served",
    "storage",
    "deprecated",
    "deprecationWarning",
    "subresources",
    "additionalPrinterColumns",
    "selectableFields",
)


def schema_of(definition: Object, prefix: str = "today") -> Object:
    """The APIResourceSchema that `kubectl kcp crd snapshot` makes of a CustomResourceDefinition."""
    spec = definition["spec"]
    group, names = spec["group"], spec["names"]
    versions = [
        {
            **{field: version[field] for field in _KEPT if field in version},
            "schema": version["schema"]["openAPIV3Schema"],
        }
        for version in spec["versions"]
    ]
    approved = (definition["metadata"].get("annotations") or {}).get("api-approved.kubernetes.io")
    annotations = {"annotations": {"api-approved.kubernetes.io": approved}} if approved else {}
    made: Object = {
        "apiVersion": "apis.kcp.io/v1alpha1",
        "kind": "APIResourceSchema",
        "metadata": {"name": f"{prefix}.{names['plural']}.{group or 'core'}", **annotations},
        "spec": {"group": group, "names": names, "scope": spec["scope"], "versions": versions},
    }
    if len(versions) > 1:
        made["spec"]["conversion"] = {"strategy": "None"}
    return made


def schema(plural: str, group: str = "shapes.example.com", prefix: str = "today", **spec: Any) -> Object:
    """A small APIResourceSchema: one version v1 with spec, status and scale (see `harness.clients.api.crd`)."""
    return schema_of(crd(plural, group, **spec), prefix)


def resource_of(made: Object, **storage: Any) -> Object:
    """The entry of an APIExport's spec.resources for a schema."""
    spec = made["spec"]
    entry: Object = {"name": spec["names"]["plural"], "group": spec["group"], "schema": made["metadata"]["name"]}
    return {**entry, "storage": storage} if storage else entry


def export(name: str, *schemas: Object, claims: Sequence[Object] = (), **spec: Any) -> Object:
    """An APIExport to send."""
    body: Object = {"resources": [resource_of(each) for each in schemas], **spec}
    if claims:
        body["permissionClaims"] = list(claims)
    return {"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": {"name": name}, "spec": body}


def make_export(api: Api, name: str, *schemas: Object, claims: Sequence[Object] = (), **spec: Any) -> Object:
    """Create the schemas and an APIExport of them, wait for its identity and return it."""
    for each in schemas:
        api.post(SCHEMAS, each)
    api.post(EXPORTS, export(name, *schemas, claims=claims, **spec))
    return wait_condition(api, f"{EXPORTS}/{name}", "IdentityValid")


def claim(resource: str, group: str = "", *verbs: str, identity: str = "", **more: Any) -> Object:
    """A permission claim, as exports make it; for all verbs unless some are named."""
    made: Object = {"group": group, "resource": resource, "verbs": list(verbs or ("*",)), **more}
    return {**made, "identityHash": identity} if identity else made


def accepted(made: Object, state: str = "Accepted", **selector: Any) -> Object:
    """A claim as a binding accepts it; everything is selected unless a selector is given."""
    rest = {name: value for name, value in made.items() if name != "defaultSelector"}
    return {**rest, "selector": selector or {"matchAll": True}, "state": state}


def binding(path: str, name: str, claims: Sequence[Object] = (), called: str = "") -> Object:
    """An APIBinding to send; its name is that of the export unless given."""
    spec: Object = {"reference": {"export": {"path": path, "name": name}}}
    if claims:
        spec["permissionClaims"] = list(claims)
    metadata = {"name": called or name}
    return {"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": metadata, "spec": spec}


def bind(api: Api, path: str, name: str, claims: Sequence[Object] = (), called: str = "") -> Object:
    """Bind an export, wait until it is Bound and return the APIBinding."""
    api.post(BINDINGS, binding(path, name, claims, called))
    return wait_bound(api, called or name)


def wait_bound(api: Api, name: str) -> Object:
    """The APIBinding once it is Bound and up to date."""
    return wait(api, f"{BINDINGS}/{name}", lambda obj: phase(obj) == "Bound" and is_true(obj, "BindingUpToDate"))


def unbind(api: Api, name: str) -> None:
    """Delete an APIBinding and wait until it is gone."""
    path = f"{BINDINGS}/{name}"
    api.delete(path)
    eventually(lambda: api.get(path, expect=0).code == 404, f"{path} gone", PATIENCE_S)


def phase(obj: Object) -> str:
    return str((obj.get("status") or {}).get("phase", ""))


def condition(obj: Object, type: str) -> Object:
    """A condition of an object; empty if the object has none of the type."""
    found = (obj.get("status") or {}).get("conditions") or []
    return next((each for each in found if each["type"] == type), {})


def is_true(obj: Object, type: str) -> bool:
    return bool(condition(obj, type).get("status") == "True")


def wait(api: Api, path: str, right: Any) -> Object:
    """Return the object at a path once `right(object)` holds."""
    last: list[Any] = [None]

    def look() -> bool:
        answer = api.get(path, expect=0)
        last[0] = answer.json
        return answer.code == 200 and bool(right(last[0]))

    try:
        eventually(look, path, PATIENCE_S)
    except AssertionError as error:
        raise AssertionError(f"{path} never came right: {last[0]}") from error
    return dict(last[0])


def wait_condition(api: Api, path: str, type: str, status: str = "True", reason: str = "") -> Object:
    """Return the object at a path once its condition has this status and reason."""

    def right(obj: Object) -> bool:
        found = condition(obj, type)
        return found.get("status") == status and (not reason or found.get("reason") == reason)

    return wait(api, path, right)


def cluster_of(api: Api) -> str:
    """The name of a workspace's logical cluster."""
    found = api.get("/apis/core.kcp.io/v1alpha1/logicalclusters/cluster").json
    return str(found["metadata"]["annotations"]["kcp.io/cluster"])


def identity_of(api: Api, name: str) -> str:
    """The identity hash of an export."""
    return str(api.get(f"{EXPORTS}/{name}").json["status"]["identityHash"])


def objects_path(made: Object, version: str = "v1", namespace: str = "default") -> str:
    """The path of objects of a schema, in `namespace` unless it is cluster-scoped or empty."""
    spec = made["spec"]
    root = f"/apis/{spec['group']}/{version}" if spec["group"] else f"/api/{version}"
    scope = f"/namespaces/{namespace}" if spec["scope"] == "Namespaced" and namespace else ""
    return f"{root}{scope}/{spec['names']['plural']}"


def an_object(made: Object, name: str, version: str = "v1", **content: Any) -> Object:
    """An object of a schema, to send."""
    spec = made["spec"]
    api_version = f"{spec['group']}/{version}" if spec["group"] else version
    return {"apiVersion": api_version, "kind": spec["names"]["kind"], "metadata": {"name": name}, **content}


def cache_beacons(api: Api, group: str, **spec: Any) -> str:
    """A ClusterCachedResource of a definition of its own, once it is Ready; its identity."""
    define(api, crd("beacons", group, scope="Cluster"))
    body = {"group": group, "version": "v1", "resource": "beacons", **spec}
    kind = {"apiVersion": "cache.kcp.io/v1alpha1", "kind": "ClusterCachedResource"}
    api.post(CACHED, {**kind, "metadata": {"name": "beacons"}, "spec": body})
    ready = wait(api, f"{CACHED}/beacons", lambda obj: (obj.get("status") or {}).get("phase") == "Ready")
    return str(ready["status"]["identityHash"])
