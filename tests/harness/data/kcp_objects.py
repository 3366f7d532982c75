"""Bootstrap's objects and new workspaces for tests: fixed options, time and uids."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable

from atoll.machinery.kcp.apis.apibindings import Export, read_export
from atoll.machinery.kcp.apis.root_exports import new_identity
from atoll.machinery.kcp.bootstrap.objects import Options, bootstrap
from atoll.machinery.kcp.manifest import Manifest
from atoll.machinery.kcp.workspaces.workspace import Shard
from atoll.machinery.kcp.workspaces.workspacetypes import Lookup, WorkspaceType, read_type
from atoll.machinery.meta.objects import Object

NOW = "2026-01-01T00:00:00Z"
URL = "https://front.example"
EXPORTS = ("shards.core.kcp.io", "tenancy.kcp.io", "topology.kcp.io", "cache.kcp.io", "kubernetes")
ALPHA = Shard("alpha", URL, "PEM", {"name": "alpha", "region": "eu"})
CREATOR = {"username": "kcp-admin", "groups": ["system:kcp:admin", "system:authenticated"]}


def options(now: str = NOW) -> Options:
    return Options(
        shard="root",
        base_url="https://127.0.0.1:6443",
        external_url=URL,
        virtual_workspace_url="https://127.0.0.1:6443",
        identities={name: new_identity(f"key of {name}") for name in EXPORTS},
        installation="5f3c7c9e-4f4e-4b0e-9d0c-2f1f2d1c0b0a",
        ca_bundle="PEM",
        now=now,
    )


def bootstrapped() -> list[Manifest]:
    return list(bootstrap(options()))


def find(manifests: Iterable[Manifest], cluster: str, resource: str, name: str, namespace: str = "") -> Object:
    """Return the one object of this key; fail if it is missing or written twice."""
    key = (cluster, resource, namespace, name)
    found = [m.object for m in manifests if (m.cluster, m.type.resource, m.key.namespace, m.key.name) == key]
    assert len(found) == 1, key
    return found[0]


def root_types(*more: WorkspaceType) -> Lookup:
    """A lookup of root's WorkspaceTypes and more, by path as by cluster name."""
    types = [read_type(m.object) for m in bootstrapped() if m.type.resource == "workspacetypes"]
    return type_lookup(*types, *more)


def type_lookup(*types: WorkspaceType) -> Lookup:
    table = {(place, each.name): each for each in types for place in (each.path, each.cluster)}
    return lambda path, name: table.get((path, name))


def root_exports() -> Callable[[str, str], Export | None]:
    """Root's exports, read back from bootstrap's objects as a controller reads them."""
    manifests = bootstrapped()
    schemas = {m.key.name: m.object for m in manifests if m.type.resource == "apiresourceschemas"}
    exports = {m.key.name: m.object for m in manifests if m.type.resource == "apiexports"}

    def lookup(path: str, name: str) -> Export | None:
        return read_export("root", exports[name], schemas.get) if path == "root" and name in exports else None

    return lookup


def uids() -> Callable[[], str]:
    counter = itertools.count(1)
    return lambda: f"00000000-0000-4000-8000-{next(counter):012d}"


def workspace(name: str = "shop", *, creator: Object | None = CREATOR) -> Object:
    """A Workspace as admission leaves it."""
    annotations = {"kcp.io/cluster": "root"}
    if creator is not None:
        annotations["experimental.tenancy.kcp.io/owner"] = json.dumps(creator)
    return {
        "apiVersion": "tenancy.kcp.io/v1alpha1",
        "kind": "Workspace",
        "metadata": {"name": name, "uid": "ws-uid", "annotations": annotations, "generation": 1},
        "spec": {"type": {"name": "universal", "path": "root"}},
        "status": {"phase": "Scheduling"},
    }


def parent(type_: str = "root:root", path: str = "root", cluster: str = "root") -> Object:
    """The LogicalCluster of a parent workspace."""
    annotations = {"kcp.io/cluster": cluster, "kcp.io/path": path, "internal.tenancy.kcp.io/type": type_}
    return {"metadata": {"name": "cluster", "annotations": annotations}}
