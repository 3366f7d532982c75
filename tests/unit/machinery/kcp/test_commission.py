"""Logical clusters that another shard requests: the manifest sent, and the objects built from it."""

from __future__ import annotations

import pytest

from atoll.machinery.kcp.manifest import Manifest
from atoll.machinery.kcp.workspaces import remote_logicalcluster, workspace
from atoll.machinery.kcp.workspaces.workspacetypes import Resolution, WorkspaceType, read_type
from atoll.machinery.meta import hashes
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.types import API_BINDINGS, CLUSTER_ROLE_BINDINGS, LOGICAL_CLUSTERS, NAMESPACES
from atoll.machinery.meta.uids import new_uid
from atoll.machinery.meta.wellknown import OWNER, REQUIRED_GROUPS

HERE = workspace.Shard("here", "https://front", "PEM")
UID = "6a2c"
CLUSTER = hashes.cluster_name_of("parent", UID, "here")


def kind(name: str, **spec: object) -> WorkspaceType:
    metadata = {"name": name, "annotations": {"kcp.io/cluster": "root", "kcp.io/path": "root"}}
    return read_type({"metadata": metadata, "spec": spec})


UNIVERSAL = kind("universal", initializer=True, defaultAPIBindings=[{"export": "things"}])
MINE = kind("mine", initializer=True, terminator=True, extend={"with": [{"name": "universal", "path": "root"}]})


def plan() -> workspace.WorkspacePlan:
    """The plan of the parent's shard for its Workspace."""
    annotations = {OWNER: '{"username":"alice","groups":["dev"]}'}
    return workspace.WorkspacePlan(
        workspace={"metadata": {"name": "w", "uid": UID, "annotations": annotations}},
        parent_cluster="parent",
        path="root:org:w",
        cluster=CLUSTER,
        resolution=Resolution((UNIVERSAL, MINE)),
        shard=HERE,
        find_export=lambda path, name: None,
        now="2026-01-01T00:00:00Z",
        new_uid=new_uid,
        required_groups="dev",
    )


def built(obj: Object, *present: WorkspaceType) -> dict[object, list[Manifest]]:
    """The objects that the target builds from a manifest, by type."""
    types = {(each.path, each.name): each for each in present}
    ground = remote_logicalcluster.RequestedCluster(
        HERE, lambda path, name: types.get((path, name)), lambda path, name: None, "2026-01-02T00:00:00Z", new_uid
    )
    assert remote_logicalcluster.problems(obj, CLUSTER, "here") == []
    found: dict[object, list[Manifest]] = {}
    for manifest in workspace.build(remote_logicalcluster.plan_of(obj, CLUSTER, ground)):
        assert manifest.cluster == CLUSTER
        found.setdefault(manifest.type, []).append(manifest)
    return found


@pytest.mark.parametrize("present", [(), (MINE,), (UNIVERSAL, MINE)], ids=["nothing", "no base", "all"])
def test_a_cluster_is_built_as_ordered_whatever_the_target_knows_of_its_type(
    present: tuple[WorkspaceType, ...],
) -> None:
    found = built(remote_logicalcluster.manifest(plan()), *present)
    cluster = found[LOGICAL_CLUSTERS][0].object
    assert cluster["spec"]["owner"] == {
        "apiVersion": "tenancy.kcp.io/v1alpha1",
        "resource": "workspaces",
        "name": "w",
        "cluster": "parent",
        "uid": UID,
    }
    assert cluster["spec"]["createdBy"]["username"] == "alice"
    annotations = cluster["metadata"]["annotations"]
    assert (annotations["kcp.io/path"], annotations["core.kcp.io/shard"]) == ("root:org:w", "here")
    assert (annotations["internal.tenancy.kcp.io/type"], annotations[REQUIRED_GROUPS]) == ("root:mine", "dev")
    # The system's own initialization is complete, except for bindings whose exports are not on this shard yet.
    assert cluster["spec"]["initializers"] == ["root:universal", "root:mine", "system:apibindings"]
    assert cluster["status"]["initializers"] == ["root:mine", "system:apibindings"]
    assert cluster["status"]["terminators"] == ["root:mine"]
    assert cluster["status"]["phase"] == "Initializing"
    assert {each.object["metadata"]["name"] for each in found[NAMESPACES]} >= {"default", "kube-system"}
    assert found[CLUSTER_ROLE_BINDINGS][0].object["subjects"][0]["name"] == "alice"
    assert API_BINDINGS not in found


def test_what_the_parents_shard_says_of_initializers_counts() -> None:
    obj = remote_logicalcluster.manifest(plan())
    obj["spec"]["initializers"] = ["root:universal"]
    cluster = built(obj, UNIVERSAL, MINE)[LOGICAL_CLUSTERS][0].object
    assert cluster["status"]["phase"] == "Ready"


def test_an_order_of_somebody_elses_name_or_shard_has_problems() -> None:
    obj = remote_logicalcluster.manifest(plan())
    assert [each.field for each in remote_logicalcluster.problems(obj, CLUSTER, "there")] != []
    assert [each.field for each in remote_logicalcluster.problems(obj, "0therc1uster", "here")] == ["spec.owner.uid"]
    del obj["spec"]["owner"]["uid"]
    assert [each.field for each in remote_logicalcluster.problems(obj, CLUSTER, "here")] == ["spec.owner"]
