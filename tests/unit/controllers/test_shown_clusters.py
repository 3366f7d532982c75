"""Which writes of a LogicalCluster have its Workspace looked at: those that a Workspace mirrors."""

from __future__ import annotations

import pytest

from atoll.controllers.workspaces.workspace_deletion import mirrored
from atoll.controllers.workspaces.workspaces import workspaces_showing
from atoll.machinery.kcp.workspaces.workspace import Shard, desired_workspace
from atoll.machinery.meta import wellknown
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import Object, encode
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.patch.merge_patch import merge_patch
from atoll.machinery.storage.contract import LogEntry, Operation

OWNER = {"apiVersion": "tenancy.kcp.io/v1alpha1", "resource": "workspaces", "cluster": "root", "name": "w", "uid": "u"}
CLUSTER: Object = {
    "apiVersion": "core.kcp.io/v1alpha1",
    "kind": "LogicalCluster",
    "metadata": {"name": "cluster", "annotations": {wellknown.CLUSTER: "c", wellknown.PATH: "root:w"}},
    "spec": {"owner": OWNER},
    "status": {"phase": "Ready", "conditions": [{"type": "Ready", "status": "True"}]},
}
WORKSPACE: Object = {
    "apiVersion": "tenancy.kcp.io/v1alpha1",
    "kind": "Workspace",
    "metadata": {"name": "w", "uid": "u"},
    "spec": {"type": {"name": "universal", "path": "root"}},
    "status": {"phase": "Ready"},
}
#: Changes of a LogicalCluster, as merge patches, and whether its Workspace mirrors them.
CHANGES: dict[str, tuple[Object, bool]] = {
    "the locks of bindings": ({"metadata": {"annotations": {"internal.apis.kcp.io/resource-bindings": "{}"}}}, False),
    "labels": ({"metadata": {"labels": {"a": "b"}}}, False),
    "finalizers": ({"metadata": {"finalizers": ["a/b"]}}, False),
    "initializers": ({"spec": {"initializers": ["a"]}}, False),
    "the phase": ({"status": {"phase": "Terminating"}}, True),
    "a condition": ({"status": {"conditions": [{"type": wellknown.CONTENT_DELETED, "status": "False"}]}}, True),
    "the path": ({"metadata": {"annotations": {wellknown.PATH: "root:other"}}}, True),
    "its name": ({"metadata": {"annotations": {wellknown.CLUSTER: "d"}}}, True),
    "its deletion": ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, True),
    "another object as its owner": ({"spec": {"owner": {"uid": "other"}}}, True),
}


def workspaces_of(how: Operation, after: Object, before: Object | None = None) -> list[tuple[str, str]]:
    key = ObjectKey(LOGICAL_CLUSTERS, "c", "", "cluster")
    stored = encode(before)[0] if before is not None else b""
    return list(workspaces_showing(LogEntry(2, how, key, encode(after)[0], False, 0, 1, 1, before=stored)))


@pytest.mark.parametrize("change", CHANGES)
def test_a_workspace_is_looked_at_once_what_it_shows_changed(change: str) -> None:
    patch, mirrors = CHANGES[change]
    after = merge_patch(CLUSTER, patch)
    assert workspaces_of(Operation.MODIFIED, after, CLUSTER) == ([("root", "w")] if mirrors else [])
    assert workspaces_of(Operation.MODIFIED, after, after) == []


@pytest.mark.parametrize("change", [name for name, (_, mirrors) in CHANGES.items() if not mirrors])
def test_other_changes_leave_a_workspace_as_it_is(change: str) -> None:
    after, here = merge_patch(CLUSTER, CHANGES[change][0]), Shard("root", "https://here", "")
    now = "2026-01-01T00:00:00Z"
    assert desired_workspace(WORKSPACE, after, here, now) == desired_workspace(WORKSPACE, CLUSTER, here, now)
    assert mirrored(WORKSPACE, after) == mirrored(WORKSPACE, CLUSTER)


def test_the_end_of_a_cluster_and_a_write_of_which_the_earlier_state_is_missing_are_looked_at() -> None:
    assert workspaces_of(Operation.DELETED, CLUSTER, CLUSTER) == [("root", "w")]
    assert workspaces_of(Operation.MODIFIED, CLUSTER) == [("root", "w")]


def test_a_cluster_without_an_owner_is_of_no_workspace() -> None:
    alone = {**CLUSTER, "spec": {}}
    assert workspaces_of(Operation.DELETED, alone) == workspaces_of(Operation.MODIFIED, alone, CLUSTER) == []
