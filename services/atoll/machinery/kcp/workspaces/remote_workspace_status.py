"""State of a Workspace with a remote logical cluster, at each step. Pure.

`controllers.workspaces.remote_workspaces` writes the results. Invariant: the state that a Workspace shows of its
cluster is never older than the last reported revision (`CLUSTER_REVISION`).
"""

from __future__ import annotations

from atoll.machinery.kcp.workspaces import workspace
from atoll.machinery.meta import hashes, wellknown
from atoll.machinery.meta.conditions import ERROR, FALSE, INFO, TRUE, Condition, with_conditions
from atoll.machinery.meta.objects import Object, annotations_of, finalizers_of, labels_of, status_of
from atoll.machinery.meta.wellknown import (
    CLUSTER_REVISION,
    OWNER_FINALIZER,
    PHASE,
    SCHEDULED_CLUSTER,
    SHARD,
    SHARD_HASH,
)

UNAVAILABLE = "Unavailable"
_CONTENT_DELETED, _INITIALIZED = wellknown.CONTENT_DELETED, "WorkspaceInitialized"
_CHOICE = (SCHEDULED_CLUSTER, SHARD, SHARD_HASH)
#: Fields that a Workspace mirrors from its LogicalCluster.
_FIELDS = ("phase", "initializers", "terminators")


def with_shard_choice(obj: Object, cluster: str, shard: str, now: str) -> Object:
    """Return the Workspace with kcp's annotations of phase one: cluster and shard, before the cluster is created."""
    metadata = obj["metadata"]
    choice = {SCHEDULED_CLUSTER: cluster, SHARD: shard, SHARD_HASH: hashes.shard_hash(shard)}
    finalizers = finalizers_of(obj)
    return {
        **obj,
        "metadata": {
            **metadata,
            "annotations": {**annotations_of(obj), **choice},
            "finalizers": finalizers if OWNER_FINALIZER in finalizers else [*finalizers, OWNER_FINALIZER],
        },
        "status": with_conditions({"phase": "Scheduling", **status_of(obj)}, now, Condition(workspace.SCHEDULED, TRUE)),
    }


def without_shard_choice(obj: Object) -> Object:
    """Return the Workspace without the choice and without our finalizer."""
    metadata = obj["metadata"]
    kept = {key: value for key, value in annotations_of(obj).items() if key not in _CHOICE}
    finalizers = [each for each in finalizers_of(obj) if each != OWNER_FINALIZER]
    return {**obj, "metadata": {**metadata, "annotations": kept, "finalizers": finalizers}}


def reported_revision(obj: Object) -> int:
    """Return the reported revision of a Workspace's LogicalCluster; 0 where it is absent or invalid."""
    text = annotations_of(obj).get(CLUSTER_REVISION, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0


def mirrored(obj: Object, cluster: Object, reported: int, now: str) -> Object:
    """Return the Workspace with its LogicalCluster's state; a nonzero `reported` revision is recorded."""
    desired = workspace.desired_workspace(obj, cluster, workspace.Shard(shard_of(obj), "", ""), now)
    # The URL was set at creation; the shard's object may be unknown now.
    changed = {**desired, "spec": obj["spec"]}
    if not reported:
        return changed
    metadata = changed["metadata"]
    annotations = {**metadata["annotations"], CLUSTER_REVISION: str(reported)}
    return {**changed, "metadata": {**metadata, "annotations": annotations}}


def shard_of(obj: Object) -> str:
    """Return the chosen shard of a Workspace; "" before the choice."""
    return str(annotations_of(obj).get(SHARD, ""))


def is_mirrored(obj: Object, cluster: Object) -> bool:
    """Return whether a Workspace shows the state of its LogicalCluster, so that no notification is needed."""
    theirs, ours = status_of(cluster), status_of(obj)
    if any((theirs.get(field) or None) != (ours.get(field) or None) for field in _FIELDS):
        return False
    if not cluster["metadata"].get("deletionTimestamp"):
        return True
    return _progress(theirs) == _progress(ours) and bool(obj["metadata"].get("deletionTimestamp"))


def disappeared(obj: Object, now: str) -> Object:
    """Return the Workspace of a cluster that its shard does not have."""
    text = "the shard of the logical cluster does not have it"
    return _in_phase(obj, UNAVAILABLE, Condition(_INITIALIZED, FALSE, "WorkspaceDisappeared", text, ERROR), now)


def lost(obj: Object, shard: str, now: str) -> Object:
    """Return the Workspace of a cluster whose shard was lost for good."""
    text = f'the shard "{shard}" of the logical cluster is lost: delete the workspace, and create it again elsewhere'
    return _in_phase(obj, UNAVAILABLE, Condition(_INITIALIZED, FALSE, "ShardLost", text, ERROR), now)


def undeletable(obj: Object, message: str, now: str) -> Object:
    """Return a terminating Workspace whose cluster's shard cannot be called."""
    phase = "Terminating" if status_of(obj).get("terminators") else "Deleting"
    return _in_phase(obj, phase, Condition(_CONTENT_DELETED, FALSE, "ShardUnavailable", message, INFO), now)


def _progress(status: Object) -> list[Object]:
    return [each for each in status.get("conditions") or [] if each["type"] == _CONTENT_DELETED]


def _in_phase(obj: Object, phase: str, condition: Condition, now: str) -> Object:
    return {
        **obj,
        "metadata": {**obj["metadata"], "labels": {**labels_of(obj), PHASE: phase}},
        "status": with_conditions({**status_of(obj), "phase": phase}, now, condition),
    }
