"""LogicalClusters: the object that opens a logical cluster's gate and holds its phase.

Bootstrap makes those of the system's clusters, workspace building those behind Workspaces. Labels always
mirror status: phase, and a hash for each initializer and terminator that has not finished.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from atoll.machinery.kcp.manifest import Manifest, ObjectStamp
from atoll.machinery.meta import hashes
from atoll.machinery.meta.conditions import FALSE, INFO, TRUE, Condition, set_condition
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.meta.wellknown import (
    DELETION_FINALIZER,
    LOCKS,
    PATH,
    PHASE,
    SHARD,
    SINGLETON,
    TERMINATOR_FINALIZER,
    TYPE,
)

READY, INITIALIZING = "Ready", "Initializing"
INITIALIZED = "WorkspaceInitialized"
BINDINGS_INITIALIZED = "APIBindingsInitialized"


class ClusterLifecycle(msgspec.Struct, frozen=True):
    """The initializers and terminators of a new logical cluster, and the initializers left after its creation."""

    initializers: tuple[str, ...] = ()
    terminators: tuple[str, ...] = ()
    left: tuple[str, ...] = ()

    @property
    def phase(self) -> str:
        return INITIALIZING if self.left else READY


class ClusterFacts(msgspec.Struct, frozen=True):
    """The inputs of a LogicalCluster.

    `type` is `<path>:<name>` of its WorkspaceType, empty for system clusters. `spec` holds owner and
    createdBy where they exist; `annotations` what goes beyond path, shard, type and locks.
    """

    shard: str
    external_url: str
    type: str = ""
    locks: str = "{}"
    life: ClusterLifecycle = ClusterLifecycle()
    spec: Mapping[str, object] = {}
    annotations: Mapping[str, str] = {}
    conditions: tuple[Condition, ...] = ()


def logical_cluster(stamp: ObjectStamp, facts: ClusterFacts) -> Manifest:
    """Return the LogicalCluster `cluster` of stamp's cluster, in the phase that follows from facts.life."""
    life = facts.life
    annotations = {PATH: stamp.path, SHARD: facts.shard, LOCKS: facts.locks, **facts.annotations}
    if facts.type:
        annotations[TYPE] = facts.type
    metadata = stamp.metadata("logicalclusters", SINGLETON, annotations=annotations, labels=_labels(life))
    metadata["finalizers"] = [DELETION_FINALIZER, *([TERMINATOR_FINALIZER] if life.terminators else [])]
    obj = {
        "apiVersion": "core.kcp.io/v1alpha1",
        "kind": "LogicalCluster",
        "metadata": metadata,
        "spec": {"directlyDeletable": False, **facts.spec, **_listed(life.initializers, life.terminators)},
        "status": {
            "URL": f"{facts.external_url}/clusters/{stamp.cluster}",
            "phase": life.phase,
            "conditions": _conditions(stamp, facts),
            **_listed(life.left, life.terminators),
        },
    }
    return Manifest(stamp.cluster, obj, LOGICAL_CLUSTERS)


def initialized(left: tuple[str, ...]) -> Condition:
    """Return the condition WorkspaceInitialized of LogicalClusters and Workspaces."""
    if not left:
        return Condition(INITIALIZED, TRUE)
    message = f"Initializers still exist: [{' '.join(left)}]"
    return Condition(INITIALIZED, FALSE, "InitializerExists", message, INFO)


def _labels(life: ClusterLifecycle) -> dict[str, str]:
    labels = {PHASE: life.phase}
    labels.update(hashes.initializer_label(name) for name in life.left)
    labels.update(hashes.terminator_label(name) for name in life.terminators)
    return labels


def _listed(initializers: tuple[str, ...], terminators: tuple[str, ...]) -> Object:
    lists: Object = {}
    if initializers:
        lists["initializers"] = list(initializers)
    if terminators:
        lists["terminators"] = list(terminators)
    return lists


def _conditions(stamp: ObjectStamp, facts: ClusterFacts) -> list[Object]:
    conditions: list[Object] = []
    for condition in (*facts.conditions, initialized(facts.life.left)):
        conditions = set_condition(conditions, condition, stamp.now)
    return conditions
