"""The objects of the edge service's workspace, in the order in which they are written: data, no I/O.

`install` writes them. The data is in `schemas/edge`. Invariant: the name of an APIResourceSchema has a digest of its
content, as a schema never changes: another content is another schema, and the export names it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import msgspec
import yaml

from atoll.machinery.client.resource import Resource
from atoll.machinery.kcp.apis.resource_schema import resource_schema
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.wellknown import RBAC_GROUP
from atoll.machinery.process.resources import schema_path

USERS_ROLE = "edge-user"

NAMESPACES = Resource("", "v1", "namespaces", namespaced=False)
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts")
SECRETS = Resource("", "v1", "secrets")
ROLES = Resource(RBAC_GROUP, "v1", "clusterroles", namespaced=False)
ROLE_BINDINGS = Resource(RBAC_GROUP, "v1", "clusterrolebindings", namespaced=False)
SCHEMAS = Resource("apis.kcp.io", "v1alpha1", "apiresourceschemas", namespaced=False)
EXPORTS = Resource("apis.kcp.io", "v1alpha2", "apiexports", namespaced=False)
WORKSPACE_TYPES = Resource("tenancy.kcp.io", "v1alpha1", "workspacetypes", namespaced=False)


class Service(msgspec.Struct, frozen=True):
    """The file `service.yaml`, which explains its parts."""

    export: str
    namespace: str
    kinds: tuple[str, ...]
    accounts: dict[str, list[Object]]
    users: list[Object]
    types: dict[str, Object]


class Manifest(NamedTuple):
    """An object to write, and the resource it is written as."""

    resource: Resource
    object: Object


@cache
def service() -> Service:
    """Return the service's data. Shared: not to be changed."""
    return msgspec.convert(_read("service.yaml"), Service)


def manifests() -> Iterator[Manifest]:
    """Yield all objects, each after those that it names."""
    found = service()
    yield Manifest(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": found.namespace}})
    for name, rules in found.accounts.items():
        yield from _account(name, rules)
    yield _role(USERS_ROLE, found.users)
    schemas = [_schema(kind) for kind in found.kinds]
    for schema in schemas:
        yield Manifest(SCHEMAS, schema)
    yield Manifest(EXPORTS, _export(schemas))
    for name, spec in found.types.items():
        metadata = {"name": name}
        kind = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType", "metadata": metadata, "spec": spec}
        yield Manifest(WORKSPACE_TYPES, kind)


def _account(name: str, rules: list[Object]) -> Iterator[Manifest]:
    """Yield a service account, the Secret of its token, and its rights."""
    metadata = {"name": name, "namespace": service().namespace}
    yield Manifest(SERVICE_ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    noted = {**metadata, "annotations": {"kubernetes.io/service-account.name": name}}
    kind = "kubernetes.io/service-account-token"
    yield Manifest(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": noted, "type": kind})
    yield _role(f"edge:{name}", rules)
    binding = {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"edge:{name}"},
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": f"edge:{name}"},
        "subjects": [{"kind": "ServiceAccount", **metadata}],
    }
    yield Manifest(ROLE_BINDINGS, binding)


def _role(name: str, rules: list[Object]) -> Manifest:
    role = {"apiVersion": f"{RBAC_GROUP}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}
    return Manifest(ROLES, role)


def _schema(plural: str) -> Object:
    definition = _read(f"{service().export}_{plural}.yaml")
    digest = hashlib.sha256(msgspec.json.encode(definition["spec"], order="sorted")).hexdigest()
    return resource_schema(definition, f"v2alpha1-{digest[:10]}")


def _export(schemas: list[Object]) -> Object:
    offered = [
        {
            "group": each["spec"]["group"],
            "name": each["spec"]["names"]["plural"],
            "schema": each["metadata"]["name"],
            "storage": {"crd": {}},
        }
        for each in schemas
    ]
    metadata = {"name": service().export}
    return {
        "apiVersion": "apis.kcp.io/v1alpha2",
        "kind": "APIExport",
        "metadata": metadata,
        "spec": {"resources": offered},
    }


def _read(name: str) -> Object:
    with schema_path("edge", name).open("rb") as file:
        value: Object = yaml.load(file, yaml.CSafeLoader)
    return value
