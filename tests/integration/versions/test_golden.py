"""Golden responses: a GET of kcp's own objects, field for field."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from harness.clients.api import Api, Object, eventually
from harness.clients.exports import (
    BINDINGS,
    EXPORTS,
    SLICES,
    bind,
    cluster_of,
    identity_of,
    make_export,
    schema,
    wait,
    wait_condition,
)

WORKSPACES = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
UID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
PATTERNS = {
    "uid": UID,
    "owner": UID,
    "schema uid": UID,
    "time": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ",
    "then": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ",
    "revision": r"\d{16}",
    "identity": "[0-9a-f]{64}",
    "hash": "[0-9a-zA-Z]{30,40}",
    "reflexive": "[0-9a-zA-Z]{30,40}",
    "suffix": "[0-9a-z]{5}",
    "shard hash": "[0-9a-z]{8}",
    "cluster": "[0-9a-z]{16}",
}
#: Values that may differ from one place to the next.
FREE = ("time", "then", "schema uid")
METADATA = """
  creationTimestamp: <time>
  resourceVersion: <revision>
  uid: <uid>
"""

SHARD = """
apiVersion: core.kcp.io/v1alpha1
kind: Shard
metadata:
  name: root
  annotations: {kcp.io/cluster: root}
  labels: {name: root}
  generation: 1
spec:
  baseURL: <url>
  externalURL: <url>
  virtualWorkspaceURL: <url>
"""

WORKSPACE = """
apiVersion: tenancy.kcp.io/v1alpha1
kind: Workspace
metadata:
  name: golden
  annotations:
    kcp.io/cluster: root
    core.kcp.io/shard: root
    internal.tenancy.kcp.io/cluster: <cluster>
    internal.tenancy.kcp.io/shard: <shard hash>
    experimental.tenancy.kcp.io/owner: '{"username":"kcp-admin"}'
  finalizers: [core.kcp.io/logicalcluster]
  labels: {tenancy.kcp.io/phase: Ready}
  generation: 2
spec:
  type: {name: universal, path: root}
  cluster: <cluster>
  URL: <url>/clusters/root:golden
status:
  phase: Ready
  conditions:
  - {type: WorkspaceInitialized, status: "True", lastTransitionTime: <then>}
  - {type: WorkspaceScheduled, status: "True", lastTransitionTime: <then>}
"""

LOGICAL_CLUSTER = """
apiVersion: core.kcp.io/v1alpha1
kind: LogicalCluster
metadata:
  name: cluster
  annotations:
    kcp.io/cluster: <cluster>
    kcp.io/path: root:golden
    core.kcp.io/shard: root
    internal.tenancy.kcp.io/type: root:universal
    internal.apis.kcp.io/resource-bindings: <locks>
    experimental.tenancy.kcp.io/owner: '{"username":"kcp-admin"}'
  finalizers: [core.kcp.io/logicalcluster-deletion]
  labels: {tenancy.kcp.io/phase: Ready}
  generation: 1
spec:
  directlyDeletable: false
  createdBy: {username: kcp-admin, uid: kcp-admin, groups: ["system:kcp:admin", "system:authenticated"]}
  initializers: ["root:universal", "system:apibindings"]
  owner: {apiVersion: tenancy.kcp.io/v1alpha1, resource: workspaces, name: golden, cluster: root, uid: <owner>}
status:
  URL: <url>/clusters/<cluster>
  phase: Ready
  conditions:
  - {type: APIBindingsInitialized, status: "True", lastTransitionTime: <then>}
  - {type: WorkspaceInitialized, status: "True", lastTransitionTime: <then>}
"""

CONDITIONS = """
  conditions:
  - {type: Ready, status: "True", lastTransitionTime: <then>}
  - {type: APIExportValid, status: "True", lastTransitionTime: <then>}
  - {type: BindingUpToDate, status: "True", lastTransitionTime: <then>}
  - {type: InitialBindingCompleted, status: "True", lastTransitionTime: <then>}
  - {type: PermissionClaimsApplied, status: "True", lastTransitionTime: <then>}
  - {type: PermissionClaimsValid, status: "True", lastTransitionTime: <then>}
"""

DEFAULT_BINDING = f"""
apiVersion: apis.kcp.io/v1alpha2
kind: APIBinding
metadata:
  name: topology.kcp.io-<suffix>
  annotations: {{kcp.io/cluster: <cluster>, kcp.io/path: root:golden}}
  finalizers: [apis.kcp.io/apibinding-finalizer]
  labels:
    internal.apis.kcp.io/export: <hash>
    claimed.internal.apis.kcp.io/<hash>: <reflexive>
  generation: 1
spec:
  reference: {{export: {{path: root, name: topology.kcp.io}}}}
status:
  apiExportClusterName: root
  phase: Bound
  boundResources:
  - group: topology.kcp.io
    resource: partitions
    schema: {{name: v240903-d6797056a.partitions.topology.kcp.io, UID: <schema uid>, identityHash: <identity>}}
    storageVersions: [v1alpha1]
  - group: topology.kcp.io
    resource: partitionsets
    schema: {{name: v240903-d6797056a.partitionsets.topology.kcp.io, UID: <schema uid>, identityHash: <identity>}}
    storageVersions: [v1alpha1]
{CONDITIONS}
"""

EXPORT = """
apiVersion: apis.kcp.io/v1alpha2
kind: APIExport
metadata:
  name: shapes
  annotations: {kcp.io/cluster: <cluster>, kcp.io/path: <path>}
  generation: 2
spec:
  identity: {secretRef: {name: shapes, namespace: kcp-system}}
  resources:
  - {name: circles, group: shapes.example.com, schema: today.circles.shapes.example.com, storage: {crd: {}}}
status:
  identityHash: <identity>
  conditions:
  - {type: IdentityValid, status: "True", lastTransitionTime: <then>}
"""

BINDING = f"""
apiVersion: apis.kcp.io/v1alpha2
kind: APIBinding
metadata:
  name: shapes
  annotations: {{kcp.io/cluster: <cluster>, kcp.io/path: <path>}}
  finalizers: [apis.kcp.io/apibinding-finalizer]
  labels:
    internal.apis.kcp.io/export: <hash>
    claimed.internal.apis.kcp.io/<hash>: <reflexive>
  generation: 1
spec:
  reference: {{export: {{path: <provider>, name: shapes}}}}
status:
  apiExportClusterName: <provider>
  phase: Bound
  boundResources:
  - group: shapes.example.com
    resource: circles
    schema: {{name: today.circles.shapes.example.com, UID: <schema uid>, identityHash: <identity>}}
    storageVersions: [v1]
{CONDITIONS}
"""

SLICE = """
apiVersion: apis.kcp.io/v1alpha1
kind: APIExportEndpointSlice
metadata:
  name: shapes
  annotations: {kcp.io/cluster: <cluster>}
  ownerReferences: [{apiVersion: apis.kcp.io/v1alpha1, kind: APIExport, name: shapes, uid: <owner>}]
  generation: 1
spec: {export: {path: <path>, name: shapes}}
status:
  shardSelector: ""
  endpoints: [{url: <url>/services/apiexport/<cluster>/shapes}]
  conditions:
  - {type: APIExportValid, status: "True", lastTransitionTime: <then>}
  - {type: PartitionValid, status: "True", lastTransitionTime: <then>}
"""


class Shape:
    """A whole object with placeholders for what varies; `values` has the value of each."""

    def __init__(self, text: str, **values: str) -> None:
        self.wanted = yaml.safe_load(text)
        self.wanted["metadata"].update(yaml.safe_load(METADATA))
        self.values = dict(values)

    def compare(self, found: Any) -> None:
        """Fail with the path of the first difference."""
        found = json.loads(json.dumps(found))
        found["metadata"].pop("managedFields", None)
        self._compare(self.wanted, found, "")

    def _compare(self, wanted: Any, found: Any, path: str) -> None:
        if isinstance(wanted, dict):
            assert isinstance(found, dict), path
            named = {self._filled(key): value for key, value in wanted.items()}
            assert named.keys() == found.keys(), f"{path}: {sorted(named.keys() ^ found.keys())}"
            for key, value in named.items():
                self._compare(value, found[key], f"{path}.{key}")
        elif isinstance(wanted, list):
            assert isinstance(found, list) and len(found) == len(wanted), f"{path}: {found}"
            for index, value in enumerate(wanted):
                self._compare(value, found[index], f"{path}[{index}]")
        elif isinstance(wanted, str) and "<" in wanted:
            self._match(wanted, found, path)
        else:
            assert (type(found), found) == (type(wanted), wanted), path

    def _filled(self, text: str) -> str:
        return re.sub("<([a-z ]+)>", lambda match: self.values.get(match[1], match[0]), text)

    def _match(self, wanted: str, found: Any, path: str) -> None:
        words = re.findall("<([a-z ]+)>", wanted)
        parts = re.split("<[a-z ]+>", wanted)
        pattern = re.escape(parts[0])
        for word, rest in zip(words, parts[1:], strict=True):
            value = self.values.get(word)
            pattern += f"({re.escape(value) if value is not None else PATTERNS[word]}){re.escape(rest)}"
        match = re.fullmatch(pattern, found) if isinstance(found, str) else None
        assert match is not None, f"{path}: {found!r} is no {wanted!r}"
        for word, value in zip(words, match.groups(), strict=True):
            if word not in FREE:
                self.values.setdefault(word, value)


@pytest.fixture(scope="module")
def golden(admin: Api) -> Object:
    """The Workspace `golden` of type universal, Ready."""
    body = {
        "apiVersion": "tenancy.kcp.io/v1alpha1",
        "kind": "Workspace",
        "metadata": {"name": "golden"},
        "spec": {"type": {"name": "universal", "path": "root"}},
    }
    admin.post(WORKSPACES, body)

    def ready() -> Object | None:
        found: Object = admin.get(f"{WORKSPACES}/golden").json
        reduced = "groups" not in found["metadata"]["annotations"]["experimental.tenancy.kcp.io/owner"]
        return found if reduced and (found.get("status") or {}).get("phase") == "Ready" else None

    found: Object = eventually(ready, "golden Ready", 60.0)
    return found


def test_a_shard(admin: Api) -> None:
    Shape(SHARD, url=admin.shard.url).compare(admin.get("/apis/core.kcp.io/v1alpha1/shards/root").json)


def test_a_workspace(admin: Api, golden: Object) -> None:
    Shape(WORKSPACE, url=admin.shard.url).compare(golden)


def test_a_logical_cluster(admin: Api, golden: Object) -> None:
    here = admin.at("root:golden")
    found = here.get("/apis/core.kcp.io/v1alpha1/logicalclusters/cluster").json
    locks = found["metadata"]["annotations"]["internal.apis.kcp.io/resource-bindings"]
    held = {each["name"]: each["name"] for each in _metadata(here)}
    here.close()
    assert set(json.loads(locks)) == {
        "workspaces.tenancy.kcp.io",
        "workspacetypes.tenancy.kcp.io",
        "workspaceauthenticationconfigurations.tenancy.kcp.io",
        "partitions.topology.kcp.io",
        "partitionsets.topology.kcp.io",
    }
    assert all(set(lock) == {"n"} and lock["n"] in held for lock in json.loads(locks).values())
    values = {"cluster": golden["spec"]["cluster"], "owner": golden["metadata"]["uid"], "locks": locks}
    Shape(LOGICAL_CLUSTER, url=admin.shard.url, **values).compare(found)


def _metadata(api: Api) -> list[Object]:
    return [each["metadata"] for each in api.get(BINDINGS).json["items"]]


def test_a_default_binding(admin: Api, golden: Object) -> None:
    here = admin.at("root:golden")
    found = next(each for each in here.get(BINDINGS).json["items"] if each["metadata"]["name"].startswith("topology"))
    here.close()
    label = found["metadata"]["labels"]["internal.apis.kcp.io/export"]
    values = {"cluster": golden["spec"]["cluster"], "hash": label, "identity": identity_of(admin, "topology.kcp.io")}
    Shape(DEFAULT_BINDING, **values).compare(found)


def test_an_export_its_slice_and_a_binding(provider: Api, consumer: Api) -> None:
    made = make_export(provider, "shapes", schema("circles"))
    bind(consumer, cluster_of(provider), "shapes")
    there = {"cluster": cluster_of(provider), "path": made["metadata"]["annotations"]["kcp.io/path"]}
    assert there["path"].startswith("root:")
    Shape(EXPORT, **there).compare(provider.get(f"{EXPORTS}/shapes").json)

    found = wait(provider, f"{SLICES}/shapes", lambda obj: (obj.get("status") or {}).get("endpoints"))
    owner = made["metadata"]["uid"]
    Shape(SLICE, url=provider.shard.url, owner=owner, **there).compare(found)

    binding = wait_condition(consumer, f"{BINDINGS}/shapes", "PermissionClaimsApplied")
    cluster = consumer.get("/apis/core.kcp.io/v1alpha1/logicalclusters/cluster").json["metadata"]["annotations"]
    here = {"cluster": cluster_of(consumer), "path": cluster["kcp.io/path"], "provider": cluster_of(provider)}
    label = binding["metadata"]["labels"]["internal.apis.kcp.io/export"]
    Shape(BINDING, hash=label, identity=identity_of(provider, "shapes"), **here).compare(binding)
