"""A new workspace in the furthest state its type allows."""

from __future__ import annotations

import json

import pytest

from atoll.machinery.kcp.apis.apibindings import BoundResource, Export
from atoll.machinery.kcp.manifest import Manifest
from atoll.machinery.kcp.workspaces.workspace import WorkspacePlan, build, desired_workspace
from atoll.machinery.kcp.workspaces.workspacetypes import TypeReference, WorkspaceType, read_type, resolve
from atoll.machinery.meta import hashes
from atoll.machinery.meta.objects import Object, encode
from harness.data.kcp_objects import ALPHA, NOW, find, parent, root_exports, root_types, uids, workspace

CLUSTER, PATH = "1x9p0q7w5e3r2t8y", "root:shop"
TENANCY = hashes.default_binding_name(CLUSTER, "root", "tenancy.kcp.io")
TOPOLOGY = hashes.default_binding_name(CLUSTER, "root", "topology.kcp.io")
EXPORT_HASH = "bmCdly9xXiUpEHe3ypvDwvXMTfoVZUE92mqAQf"


def plan(of: Object | None = None, type_: str = "universal", *more: WorkspaceType, **changes: object) -> WorkspacePlan:
    path = "root" if not more else more[0].path
    resolution = resolve(TypeReference(type_, path), parent(), root_types(*more))
    facts: dict[str, object] = {
        "workspace": of or workspace(),
        "parent_cluster": "root",
        "path": PATH,
        "cluster": CLUSTER,
        "resolution": resolution,
        "shard": ALPHA,
        "find_export": root_exports(),
        "now": NOW,
        "new_uid": uids(),
    }
    return WorkspacePlan(**{**facts, **changes})  # type: ignore[arg-type]


def custom(**spec: object) -> WorkspaceType:
    annotations = {"kcp.io/cluster": "c1", "kcp.io/path": "root:acme"}
    base = {"extend": {"with": [{"name": "universal", "path": "root"}]}}
    return read_type({"metadata": {"name": "lab", "annotations": annotations}, "spec": {**base, **spec}})


def cluster_of(manifests: tuple[Manifest, ...]) -> Object:
    return find(manifests, CLUSTER, "logicalclusters", "cluster")


def test_a_universal_workspace_is_ready_with_all_that_belongs_to_it() -> None:
    manifests = build(plan())
    assert [(m.type.resource, m.key.namespace, m.key.name) for m in manifests] == [
        ("logicalclusters", "", "cluster"),
        ("apibindings", "", TENANCY),
        ("apibindings", "", TOPOLOGY),
        ("clusterrolebindings", "", "workspace-admin"),
        ("namespaces", "", "default"),
        ("serviceaccounts", "default", "default"),
        ("configmaps", "default", "kube-root-ca.crt"),
        ("namespaces", "", "kube-system"),
        ("serviceaccounts", "kube-system", "default"),
        ("configmaps", "kube-system", "kube-root-ca.crt"),
    ]
    assert all(m.cluster == CLUSTER for m in manifests)
    assert len({m.object["metadata"]["uid"] for m in manifests}) == len(manifests)
    for manifest in manifests:
        encode(manifest.object)


def test_the_logical_cluster_has_kcps_shape() -> None:
    obj = cluster_of(build(plan()))
    annotations = obj["metadata"]["annotations"]
    locks = annotations.pop("internal.apis.kcp.io/resource-bindings")
    assert annotations == {
        "kcp.io/cluster": CLUSTER,
        "kcp.io/path": PATH,
        "core.kcp.io/shard": "alpha",
        "internal.tenancy.kcp.io/type": "root:universal",
        "experimental.tenancy.kcp.io/owner": '{"username":"kcp-admin"}',
    }
    assert locks == (
        f'{{"partitions.topology.kcp.io":{{"n":"{TOPOLOGY}"}},"partitionsets.topology.kcp.io":{{"n":"{TOPOLOGY}"}},'
        f'"workspaceauthenticationconfigurations.tenancy.kcp.io":{{"n":"{TENANCY}"}},'
        f'"workspaces.tenancy.kcp.io":{{"n":"{TENANCY}"}},"workspacetypes.tenancy.kcp.io":{{"n":"{TENANCY}"}}}}'
    )
    assert obj["metadata"]["finalizers"] == ["core.kcp.io/logicalcluster-deletion"]
    assert obj["metadata"]["labels"] == {"tenancy.kcp.io/phase": "Ready"}
    assert obj["spec"] == {
        "directlyDeletable": False,
        "createdBy": {"username": "kcp-admin", "groups": ["system:kcp:admin", "system:authenticated"]},
        "initializers": ["root:universal", "system:apibindings"],
        "owner": {
            "apiVersion": "tenancy.kcp.io/v1alpha1",
            "resource": "workspaces",
            "name": "shop",
            "cluster": "root",
            "uid": "ws-uid",
        },
    }
    assert obj["status"] == {
        "URL": f"https://front.example/clusters/{CLUSTER}",
        "phase": "Ready",
        "conditions": [
            {"type": "APIBindingsInitialized", "status": "True", "lastTransitionTime": NOW},
            {"type": "WorkspaceInitialized", "status": "True", "lastTransitionTime": NOW},
        ],
    }


def test_a_default_binding_has_kcps_shape() -> None:
    binding = find(build(plan()), CLUSTER, "apibindings", TENANCY)
    assert binding["apiVersion"] == "apis.kcp.io/v1alpha2"
    metadata = binding["metadata"]
    assert metadata["annotations"] == {"kcp.io/cluster": CLUSTER, "kcp.io/path": PATH}
    assert metadata["finalizers"] == ["apis.kcp.io/apibinding-finalizer"]
    assert metadata["labels"] == {
        "internal.apis.kcp.io/export": EXPORT_HASH,
        f"claimed.internal.apis.kcp.io/{EXPORT_HASH}": "LstvmbbzVDDOn90ZbhzSQO5U3DMCf88h1pZ",
    }
    assert binding["spec"] == {"reference": {"export": {"path": "root", "name": "tenancy.kcp.io"}}}
    status = binding["status"]
    assert (status["apiExportClusterName"], status["phase"]) == ("root", "Bound")
    assert [bound["resource"] for bound in status["boundResources"]] == [
        "workspaces",
        "workspacetypes",
        "workspaceauthenticationconfigurations",
    ]
    first = status["boundResources"][0]
    assert first["schema"]["name"] == "v260522-2bf05df66.workspaces.tenancy.kcp.io"
    assert first["storageVersions"] == ["v1alpha1"]
    assert [(c["type"], c["status"]) for c in status["conditions"]] == [
        ("Ready", "True"),
        ("APIExportValid", "True"),
        ("BindingUpToDate", "True"),
        ("InitialBindingCompleted", "True"),
        ("PermissionClaimsApplied", "True"),
        ("PermissionClaimsValid", "True"),
    ]


def test_the_creator_becomes_cluster_admin() -> None:
    binding = find(build(plan()), CLUSTER, "clusterrolebindings", "workspace-admin")
    assert binding["roleRef"]["name"] == "cluster-admin"
    assert binding["subjects"] == [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "kcp-admin"}]


def test_a_workspace_that_a_master_made_has_no_owner() -> None:
    manifests = build(plan(workspace(creator=None)))
    assert not [m for m in manifests if m.type.resource == "clusterrolebindings"]
    obj = cluster_of(manifests)
    assert "createdBy" not in obj["spec"]
    assert "experimental.tenancy.kcp.io/owner" not in obj["metadata"]["annotations"]


@pytest.mark.parametrize("text", ["", "nonsense", "[]", '{"username": 1}', '{"groups": []}', '{"username": "\\ud800"}'])
def test_an_owner_that_cannot_be_read_is_no_owner(text: str) -> None:
    spoiled = workspace()
    spoiled["metadata"]["annotations"]["experimental.tenancy.kcp.io/owner"] = text
    manifests = build(plan(spoiled))
    assert "createdBy" not in cluster_of(manifests)["spec"]
    settled = desired_workspace(spoiled, cluster_of(manifests), ALPHA, NOW)
    assert settled["metadata"]["annotations"]["experimental.tenancy.kcp.io/owner"] == text


def test_required_groups_are_inherited() -> None:
    obj = cluster_of(build(plan(required_groups="system:kcp:one")))
    assert obj["metadata"]["annotations"]["authorization.kcp.io/required-groups"] == "system:kcp:one"


def test_a_foreign_initializer_keeps_the_workspace_initializing() -> None:
    manifests = build(plan(None, "lab", custom(initializer=True)))
    obj = cluster_of(manifests)
    key, value = hashes.initializer_label("c1:lab")
    assert obj["metadata"]["labels"] == {"tenancy.kcp.io/phase": "Initializing", key: value}
    assert obj["spec"]["initializers"] == ["root:universal", "c1:lab", "system:apibindings"]
    assert (obj["status"]["phase"], obj["status"]["initializers"]) == ("Initializing", ["c1:lab"])
    assert obj["metadata"]["annotations"]["internal.tenancy.kcp.io/type"] == "root:acme:lab"
    owner = json.loads(obj["metadata"]["annotations"]["experimental.tenancy.kcp.io/owner"])
    assert owner["groups"] == ["system:kcp:admin", "system:authenticated"]
    waiting = obj["status"]["conditions"][-1]
    assert (waiting["status"], waiting["reason"], waiting["severity"]) == ("False", "InitializerExists", "Info")
    assert find(manifests, CLUSTER, "namespaces", "kube-system")
    assert find(manifests, CLUSTER, "apibindings", TENANCY)["status"]["phase"] == "Bound"


def test_terminators_are_kept_with_label_and_finalizer() -> None:
    obj = cluster_of(build(plan(None, "lab", custom(terminator=True))))
    key, value = hashes.terminator_label("c1:lab")
    assert obj["metadata"]["labels"] == {"tenancy.kcp.io/phase": "Ready", key: value}
    assert obj["metadata"]["finalizers"] == ["core.kcp.io/logicalcluster-deletion", "kcp.io/has-terminators"]
    assert obj["spec"]["terminators"] == obj["status"]["terminators"] == ["c1:lab"]


def test_an_unknown_export_is_waited_for_without_a_binding() -> None:
    manifests = build(plan(None, "lab", custom(defaultAPIBindings=[{"export": "widgets"}])))
    assert {m.key.name for m in manifests if m.type.resource == "apibindings"} == {TENANCY, TOPOLOGY}
    obj = cluster_of(manifests)
    assert obj["status"]["initializers"] == ["system:apibindings"]
    waiting = obj["status"]["conditions"][0]
    assert (waiting["type"], waiting["reason"]) == ("APIBindingsInitialized", "APIBindingErrors")
    assert "c1|widgets not found" in waiting["message"]


WIDGET = BoundResource("example.io", "widgets", "v1.widgets.example.io", "schema-uid", "v1")


def offering(*exports: Export):  # type: ignore[no-untyped-def]
    known = {export.name: export for export in exports}
    return lambda path, name: known.get(name) or root_exports()(path, name)


def test_claims_are_accepted_and_applied_at_once() -> None:
    claim = {"group": "", "resource": "configmaps", "verbs": ["get"]}
    limited = {"group": "", "resource": "secrets", "verbs": ["*"], "defaultSelector": {"matchLabels": {"a": "b"}}}
    export = Export("c1", "widgets", "f" * 64, (WIDGET,), (claim, limited))
    lab = custom(defaultAPIBindings=[{"export": "widgets"}])
    manifests = build(plan(None, "lab", lab, find_export=offering(export)))
    binding = find(manifests, CLUSTER, "apibindings", hashes.default_binding_name(CLUSTER, "c1", "widgets"))
    chosen = [{**claim, "selector": {"matchAll": True}}, {**limited, "selector": {"matchLabels": {"a": "b"}}}]
    assert binding["spec"]["permissionClaims"] == [{**each, "state": "Accepted"} for each in chosen]
    assert binding["status"]["exportPermissionClaims"] == [claim, limited]
    assert binding["status"]["appliedPermissionClaims"] == chosen
    conditions = {each["type"]: each["status"] for each in binding["status"]["conditions"]}
    assert conditions["PermissionClaimsApplied"] == conditions["PermissionClaimsValid"] == "True"
    assert cluster_of(manifests)["status"]["phase"] == "Ready"


@pytest.mark.parametrize(("group", "resource"), [("apis.kcp.io", "apibindings"), ("core.kcp.io", "logicalclusters")])
def test_claims_on_what_stands_before_the_binding_are_left_to_the_controllers(group: str, resource: str) -> None:
    claim = {"group": group, "resource": resource, "verbs": ["get"]}
    export = Export("c1", "widgets", "f" * 64, (WIDGET,), (claim,))
    lab = custom(defaultAPIBindings=[{"export": "widgets"}])
    manifests = build(plan(None, "lab", lab, find_export=offering(export)))
    name = hashes.default_binding_name(CLUSTER, "c1", "widgets")
    assert "status" not in find(manifests, CLUSTER, "apibindings", name)
    (waiting, *_) = cluster_of(manifests)["status"]["conditions"]
    assert (waiting["type"], waiting["reason"]) == ("APIBindingsInitialized", "WaitingOnAPIBindings")
    assert name in waiting["message"] and cluster_of(manifests)["status"]["phase"] == "Initializing"


def test_two_exports_of_one_kind_conflict() -> None:
    first = Export("c1", "one", "e" * 64, (WIDGET,))
    second = Export("c1", "two", "f" * 64, (WIDGET,))
    lab = custom(defaultAPIBindings=[{"export": "one"}, {"export": "two"}])
    manifests = build(plan(None, "lab", lab, find_export=offering(first, second)))
    one, two = (hashes.default_binding_name(CLUSTER, "c1", name) for name in ("one", "two"))
    assert find(manifests, CLUSTER, "apibindings", one)["status"]["phase"] == "Bound"
    status = find(manifests, CLUSTER, "apibindings", two)["status"]
    assert status["phase"] == "Binding"
    conditions = {each["type"]: each for each in status["conditions"]}
    assert status["conditions"][0]["type"] == "Ready"
    assert {conditions[type]["reason"] for type in ("Ready", "InitialBindingCompleted", "BindingUpToDate")} == {
        "NamingConflicts"
    }
    assert conditions["APIExportValid"]["status"] == "True"
    assert f'naming conflict with APIBinding "{one}" bound to' in conditions["Ready"]["message"]
    locks = json.loads(cluster_of(manifests)["metadata"]["annotations"]["internal.apis.kcp.io/resource-bindings"])
    assert locks["widgets.example.io"] == {"n": one}
    assert cluster_of(manifests)["status"]["initializers"] == ["system:apibindings"]


def test_a_type_without_bases_gets_no_namespaces() -> None:
    bare = WorkspaceType("c1", "root:acme", "bare")
    manifests = build(plan(None, "bare", bare))
    assert [m.type.resource for m in manifests] == ["logicalclusters", "clusterrolebindings"]
    assert cluster_of(manifests)["status"]["phase"] == "Ready"


def test_a_settled_workspace_has_kcps_shape() -> None:
    before = workspace()
    settled = desired_workspace(before, cluster_of(build(plan())), ALPHA, NOW)
    metadata = settled["metadata"]
    assert metadata["annotations"] == {
        "kcp.io/cluster": "root",
        "core.kcp.io/shard": "alpha",
        "internal.tenancy.kcp.io/cluster": CLUSTER,
        "internal.tenancy.kcp.io/shard": hashes.shard_hash("alpha"),
        "experimental.tenancy.kcp.io/owner": '{"username":"kcp-admin"}',
    }
    assert metadata["finalizers"] == ["core.kcp.io/logicalcluster"]
    assert metadata["labels"] == {"tenancy.kcp.io/phase": "Ready", "region": "eu"}
    assert settled["spec"] == {
        "type": {"name": "universal", "path": "root"},
        "cluster": CLUSTER,
        "URL": "https://front.example/clusters/root:shop",
    }
    assert settled["status"] == {
        "phase": "Ready",
        "conditions": [
            {"type": "WorkspaceInitialized", "status": "True", "lastTransitionTime": NOW},
            {"type": "WorkspaceScheduled", "status": "True", "lastTransitionTime": NOW},
        ],
    }
    assert before == workspace()


def test_an_initializing_workspace_mirrors_what_is_left() -> None:
    obj = cluster_of(build(plan(None, "lab", custom(initializer=True))))
    settled = desired_workspace(workspace(), obj, ALPHA, NOW)
    assert (settled["status"]["phase"], settled["status"]["initializers"]) == ("Initializing", ["c1:lab"])
    assert settled["metadata"]["labels"]["tenancy.kcp.io/phase"] == "Initializing"
    owner = json.loads(settled["metadata"]["annotations"]["experimental.tenancy.kcp.io/owner"])
    assert "groups" in owner


def test_settling_again_with_the_same_state_changes_nothing() -> None:
    obj = cluster_of(build(plan()))
    once = desired_workspace(workspace(), obj, ALPHA, NOW)
    assert desired_workspace(once, obj, ALPHA, "2027-01-01T00:00:00Z") == once
