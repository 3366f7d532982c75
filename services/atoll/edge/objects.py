"""The objects of the edge service's workspace, in the steps in which they are written: data, no I/O.

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
from atoll.machinery.meta.user import SERVICE_ACCOUNT_PREFIX, global_name
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


class Grant(msgspec.Struct, frozen=True):
    """The rules of a ClusterRole, and the groups and the accounts of the service that it is given to."""

    rules: list[Object]
    groups: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()


class Service(msgspec.Struct, frozen=True):
    """The file `service.yaml`, which explains its parts."""

    export: str
    namespace: str
    kinds: tuple[str, ...]
    claims: list[Object]
    accounts: dict[str, list[Object]]
    users: list[Object]
    types: dict[str, Object]
    grants: dict[str, dict[str, Grant]]


class Manifest(NamedTuple):
    """An object to write, and the resource it is written as."""

    resource: Resource
    object: Object


@cache
def service() -> Service:
    """Return the service's data. Shared: not to be changed."""
    return msgspec.convert(_read("service.yaml"), Service)


def steps() -> Iterator[list[Manifest]]:
    """Yield all objects, those that name others after them; those of one step may be written side by side."""
    found = service()
    schemas = [_schema(kind) for kind in found.kinds]
    space = Manifest(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": found.namespace}})
    roles = [_role(USERS_ROLE, found.users), *(_role(f"edge:{name}", each) for name, each in found.accounts.items())]
    yield [space, *roles, *(Manifest(SCHEMAS, each) for each in schemas)]
    yield [Manifest(EXPORTS, _export(schemas)), *map(_account, found.accounts)]
    yield [each for name in found.accounts for each in (_token(name), _given(name))]
    yield [_type(name, spec) for name, spec in found.types.items()]


def grants(kind: str, home: str) -> list[Manifest]:
    """Return the RBAC of new workspaces of a WorkspaceType; `home` is the logical cluster of the service."""
    return [each for name, grant in service().grants[kind].items() for each in _granted(name, grant, home)]


def _granted(name: str, grant: Grant, home: str) -> Iterator[Manifest]:
    yield _role(name, grant.rules)
    subjects = [{"apiGroup": RBAC_GROUP, "kind": "Group", "name": each} for each in grant.groups]
    for account in grant.accounts:
        local = f"{SERVICE_ACCOUNT_PREFIX}{service().namespace}:{account}"
        subjects.append({"apiGroup": RBAC_GROUP, "kind": "User", "name": global_name(local, home)})
    yield _binding(name, subjects)


def _account(name: str) -> Manifest:
    metadata = {"name": name, "namespace": service().namespace}
    return Manifest(SERVICE_ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})


def _token(name: str) -> Manifest:
    """Return the Secret of an account's token. One without its account would be deleted."""
    noted = {"kubernetes.io/service-account.name": name}
    metadata = {"name": name, "namespace": service().namespace, "annotations": noted}
    kind = "kubernetes.io/service-account-token"
    return Manifest(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": kind})


def _given(name: str) -> Manifest:
    """Return the binding of an account's own role."""
    return _binding(f"edge:{name}", [{"kind": "ServiceAccount", "name": name, "namespace": service().namespace}])


def _type(name: str, spec: Object) -> Manifest:
    head = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType", "metadata": {"name": name}}
    return Manifest(WORKSPACE_TYPES, {**head, "spec": spec})


def _binding(role: str, subjects: list[Object]) -> Manifest:
    """Return the binding of a ClusterRole of the same name."""
    reference = {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": role}
    head = {"apiVersion": f"{RBAC_GROUP}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": role}}
    return Manifest(ROLE_BINDINGS, {**head, "roleRef": reference, "subjects": subjects})


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
    # As it is stored: another run has nothing to write.
    claims = [{"identityHash": "", **each} for each in service().claims]
    spec = {"resources": offered, "permissionClaims": claims}
    head = {"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": {"name": service().export}}
    return {**head, "spec": spec}


def _read(name: str) -> Object:
    with schema_path("edge", name).open("rb") as file:
        value: Object = yaml.load(file, yaml.CSafeLoader)
    return value
