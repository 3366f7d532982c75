"""How a Workspace and its LogicalCluster go: marked in one submit, and gone in one submit.

Used by the controllers of both. A Workspace in a tree that is deleted from above is marked with its LogicalCluster
by the controller that empties the parent, so that its status never lags behind what happens to it.
"""

from __future__ import annotations

from msgspec.structs import replace

from atoll.machinery.apiserver.call.options import DeleteOptions
from atoll.machinery.apiserver.writing.batch import Batch
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import wellknown
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.types import LOGICAL_CLUSTERS

_RELEASED = DeleteOptions(served_finalizers=frozenset({wellknown.OWNER_FINALIZER}))


def begin(batch: Batch, target: Target, obj: Object, cluster_kind: Kind) -> None:
    """Mark a Workspace and the LogicalCluster that it owns for deletion; its status then tells the phase of both.

    Raises NotFound where the Workspace is gone.
    """
    cluster = (obj.get("spec") or {}).get("cluster") or ""
    key = ObjectKey(LOGICAL_CLUSTERS, cluster, "", wellknown.SINGLETON)
    if cluster and _own(batch, cluster, obj) is not None:
        batch.delete(Target(cluster_kind, cluster, "", wellknown.SINGLETON), DeleteOptions())
    record = batch.get(key) if cluster else None
    if record is None:
        # It lies on another shard, or is gone: the controller of Workspaces finds out.
        batch.delete(target, DeleteOptions())
        return
    marked = decode(record.value)
    if obj["metadata"].get("deletionTimestamp"):
        batch.update(target, mirrored(obj, marked), whole=True)
    else:
        kind = replace(target.kind, begin_deletion=lambda going: going.update(mirrored(going, marked)))
        batch.delete(replace(target, kind=kind), DeleteOptions())


def unheld(batch: Batch, obj: Object) -> str:
    """The logical cluster of a Workspace if nobody but us holds either of both; else empty."""
    cluster = (obj.get("spec") or {}).get("cluster") or ""
    found = _own(batch, cluster, obj) if cluster else None
    if found is None or (found.get("status") or {}).get("terminators"):
        return ""
    held = {*(found["metadata"].get("finalizers") or ()), *(obj["metadata"].get("finalizers") or ())}
    return cluster if held <= {wellknown.DELETION_FINALIZER, wellknown.OWNER_FINALIZER} else ""


def _own(batch: Batch, cluster: str, obj: Object) -> Object | None:
    """The LogicalCluster if it is there, this Workspace's, and not marked yet."""
    record = batch.get(ObjectKey(LOGICAL_CLUSTERS, cluster, "", wellknown.SINGLETON))
    if record is None:
        return None
    found = decode(record.value)
    owner = (found.get("spec") or {}).get("owner") or {}
    if owner.get("uid") != obj["metadata"]["uid"] or found["metadata"].get("deletionTimestamp"):
        return None
    return found


def release_owner(batch: Batch, cluster: Object, type: ResourceType) -> None:
    """Let go of the Workspace of a LogicalCluster that goes in this very batch.

    One that is not deleted itself is left to its own controller, and so is one whose workspace serves no Workspaces.
    `type` is that of Workspaces.
    """
    owner = (cluster.get("spec") or {}).get("owner")
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
    """Take our finalizer off a Workspace that is being deleted; it goes unless others hold it. Raises NotFound."""
    batch.delete(target, _RELEASED)


def mirrored(obj: Object, cluster: Object) -> Object:
    """The Workspace with phase and progress of the LogicalCluster that is being deleted."""
    theirs = cluster.get("status") or {}
    status = dict(obj.get("status") or {})
    status["phase"] = theirs.get("phase", status.get("phase", ""))
    progress = [c for c in theirs.get("conditions") or [] if c["type"] == wellknown.CONTENT_DELETED]
    kept = [c for c in status.get("conditions") or [] if c["type"] != wellknown.CONTENT_DELETED]
    status["conditions"] = sorted([*kept, *progress], key=lambda c: (c["type"] != "Ready", c["type"]))
    labels = {**(obj["metadata"].get("labels") or {}), wellknown.PHASE: status["phase"]}
    return {**obj, "metadata": {**obj["metadata"], "labels": labels}, "status": status}
