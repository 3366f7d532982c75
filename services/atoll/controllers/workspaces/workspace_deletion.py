"""Deletion of a Workspace with its LogicalCluster: one transaction marks both, one removes both.

Used by the controllers of both types. In a tree that is deleted from its root, the controller that empties the parent
marks Workspace and LogicalCluster together. Invariant: the Workspace's status shows the phase of its LogicalCluster.
"""

from __future__ import annotations

from msgspec.structs import replace

from atoll.machinery.apiserver.call.options import DeleteOptions
from atoll.machinery.apiserver.writing.batch import Batch
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import wellknown
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, conditions_of, decode, finalizers_of, labels_of, spec_of, status_of
from atoll.machinery.meta.types import LOGICAL_CLUSTERS

_RELEASED = DeleteOptions(served_finalizers=frozenset({wellknown.OWNER_FINALIZER}))


def begin(batch: Batch, target: Target, obj: Object, cluster_kind: Kind) -> None:
    """Mark a Workspace and its LogicalCluster for deletion, and mirror the phase in the Workspace's status.

    Raises NotFound for a deleted Workspace.
    """
    cluster = spec_of(obj).get("cluster") or ""
    key = ObjectKey(LOGICAL_CLUSTERS, cluster, "", wellknown.SINGLETON)
    if cluster and _own(batch, cluster, obj) is not None:
        batch.delete(Target(cluster_kind, cluster, "", wellknown.SINGLETON), DeleteOptions())
    record = batch.get(key) if cluster else None
    if record is None:
        # The LogicalCluster is remote or deleted; the workspace controller handles both cases.
        batch.delete(target, DeleteOptions())
        return
    marked = decode(record.value)
    if obj["metadata"].get("deletionTimestamp"):
        batch.update(target, mirrored(obj, marked), whole=True)
    else:
        kind = replace(target.kind, begin_deletion=lambda going: going.update(mirrored(going, marked)))
        batch.delete(replace(target, kind=kind), DeleteOptions())


def unheld(batch: Batch, obj: Object) -> str:
    """Return the logical cluster of a Workspace if neither has finalizers but ours; else ""."""
    cluster = spec_of(obj).get("cluster") or ""
    found = _own(batch, cluster, obj) if cluster else None
    if found is None or status_of(found).get("terminators"):
        return ""
    held = {*finalizers_of(found), *finalizers_of(obj)}
    return cluster if held <= {wellknown.DELETION_FINALIZER, wellknown.OWNER_FINALIZER} else ""


def _own(batch: Batch, cluster: str, obj: Object) -> Object | None:
    """Return the LogicalCluster if it exists, is owned by this Workspace, and is not marked yet."""
    record = batch.get(ObjectKey(LOGICAL_CLUSTERS, cluster, "", wellknown.SINGLETON))
    if record is None:
        return None
    found = decode(record.value)
    owner = spec_of(found).get("owner") or {}
    if owner.get("uid") != obj["metadata"]["uid"] or found["metadata"].get("deletionTimestamp"):
        return None
    return found


def release_owner(batch: Batch, cluster: Object, type: ResourceType) -> None:
    """Release the Workspace of a LogicalCluster that this batch deletes.

    A Workspace that is not being deleted, or whose parent does not serve Workspaces, is left to its own controller.
    `type`: the type of Workspaces.
    """
    owner = spec_of(cluster).get("owner")
    if not owner:
        return
    record = batch.get(ObjectKey(type, owner["cluster"], "", owner["name"]))
    kind = batch.catalog(owner["cluster"]).of_type(type)
    if record is None or kind is None:
        return
    metadata = decode(record.value)["metadata"]
    if metadata["uid"] == owner["uid"] and metadata.get("deletionTimestamp"):
        release(batch, Target(kind, owner["cluster"], "", owner["name"]))


def release(batch: Batch, target: Target) -> None:
    """Remove our finalizer from a terminating Workspace; it is deleted unless others remain. Raises NotFound."""
    batch.delete(target, _RELEASED)


def mirrored(obj: Object, cluster: Object) -> Object:
    """Return the Workspace with phase and deletion progress of its terminating LogicalCluster."""
    theirs = status_of(cluster)
    status = dict(status_of(obj))
    status["phase"] = theirs.get("phase", status.get("phase", ""))
    progress = [c for c in conditions_of(cluster) if c["type"] == wellknown.CONTENT_DELETED]
    kept = [c for c in conditions_of(obj) if c["type"] != wellknown.CONTENT_DELETED]
    status["conditions"] = sorted([*kept, *progress], key=lambda c: (c["type"] != "Ready", c["type"]))
    labels = {**labels_of(obj), wellknown.PHASE: status["phase"]}
    return {**obj, "metadata": {**obj["metadata"], "labels": labels}, "status": status}
