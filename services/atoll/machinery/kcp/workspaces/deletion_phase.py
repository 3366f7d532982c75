"""The phase of a LogicalCluster whose deletion began: Terminating while it has terminators, then Deleting.

The kind applies it at the first DELETE, the controller of deletion afterwards. Pure.
"""

from __future__ import annotations

from atoll.machinery.meta.objects import Object, labels_of, status_of
from atoll.machinery.meta.wellknown import PHASE


def deletion_phase(obj: Object) -> str:
    """Return the phase of a LogicalCluster whose deletion began: terminators first."""
    return "Terminating" if status_of(obj).get("terminators") else "Deleting"


def begin_deletion(obj: Object) -> None:
    """Apply what the first DELETE of a LogicalCluster changes beside its deletionTimestamp."""
    obj.update(with_phase(obj, deletion_phase(obj)))


def with_phase(obj: Object, phase: str) -> Object:
    """Return the LogicalCluster with this phase, in status and label."""
    labels = {**labels_of(obj), PHASE: phase}
    return {**obj, "metadata": {**obj["metadata"], "labels": labels}, "status": {**status_of(obj), "phase": phase}}
