"""LogicalClusters that no Workspace owns: the plan that their shard builds, from what their creator wrote.

A root is created by its LogicalCluster alone, with path, type and creator in it; a home on another shard as well. The
controller of roots builds it as a home is built and writes the result into the object. Invariant: what the creator
wrote stays; initializers and terminators are those of spec, or else of the type.
"""

from __future__ import annotations

from collections.abc import Sequence

from atoll.machinery.kcp.manifest import Manifest
from atoll.machinery.kcp.workspaces import workspace
from atoll.machinery.kcp.workspaces.remote_logicalcluster import RequestedCluster, resolution_of
from atoll.machinery.kcp.workspaces.workspacetypes import Resolution, WorkspaceType
from atoll.machinery.meta.names import is_system_cluster
from atoll.machinery.meta.objects import (
    Object,
    annotations_of,
    encode_json,
    finalizers_of,
    labels_of,
    spec_of,
    status_of,
)
from atoll.machinery.meta.wellknown import LOCKS, MOVED_GENERATION, MOVED_TO, OWNER, PATH, REQUIRED_GROUPS, TYPE

#: The phases before a cluster is built.
NEW = ("", "Scheduling")


def waits(obj: Object, cluster: str) -> bool:
    """Whether a LogicalCluster is one that was created without a Workspace and is not built yet."""
    if is_system_cluster(cluster) or obj["metadata"].get("deletionTimestamp"):
        return False
    is_owned = bool(spec_of(obj).get("owner")) or MOVED_TO in annotations_of(obj)
    return not is_owned and (status_of(obj).get("phase") or "") in NEW


def plan_of(obj: Object, cluster: str, request: RequestedCluster) -> workspace.WorkspacePlan:
    """Return the plan of a LogicalCluster without an owner."""
    annotations, spec = annotations_of(obj), spec_of(obj)
    qualified = annotations.get(TYPE, "")
    resolution = resolution_of(qualified, request.find_type) if qualified else _TYPELESS
    initializers, terminators = spec.get("initializers"), spec.get("terminators")
    return workspace.WorkspacePlan(
        workspace={"metadata": {"name": "", "annotations": _owner(annotations.get(OWNER, ""), spec)}},
        parent_cluster="",
        path=annotations.get(PATH) or cluster,
        cluster=cluster,
        resolution=resolution,
        shard=request.shard,
        # Bindings that somebody made already are not written over: the controllers make what is missing.
        find_export=request.find_export if not annotations.get(LOCKS) else lambda path, name: None,
        now=request.now,
        new_uid=request.new_uid,
        required_groups=annotations.get(REQUIRED_GROUPS, ""),
        generation=annotations.get(MOVED_GENERATION, ""),
        requested=workspace.WorkspaceRequest(
            tuple(resolution.initializers if initializers is None else initializers),
            tuple(resolution.terminators if terminators is None else terminators),
        ),
    )


def built(obj: Object, manifests: Sequence[Manifest]) -> Object:
    """Return the LogicalCluster with what was built of it; `manifests` begins with the new LogicalCluster."""
    made = manifests[0].object
    metadata, new = obj["metadata"], made["metadata"]
    finalizers = [*finalizers_of(obj), *(each for each in finalizers_of(made) if each not in finalizers_of(obj))]
    annotations = {**annotations_of(made), **annotations_of(obj)}
    if OWNER in annotations_of(made):
        # Without an initializer left, only the name of the creator stays.
        annotations[OWNER] = annotations_of(made)[OWNER]
    return {
        **obj,
        "metadata": {
            **metadata,
            "annotations": annotations,
            "labels": {**labels_of(obj), **labels_of(made)},
            "finalizers": finalizers,
            "uid": metadata.get("uid", new["uid"]),
        },
        "spec": {**made["spec"], **spec_of(obj)},
        "status": made["status"],
    }


_TYPELESS = Resolution((WorkspaceType(cluster="", path="", name=""),))


def _owner(text: str, spec: Object) -> dict[str, str]:
    """Return the owner annotation: the creator's, or one for spec.createdBy."""
    creator = spec.get("createdBy")
    if not text and creator and creator.get("username"):
        text = encode_json(creator).decode()
    return {OWNER: text} if text else {}
