"""Building of new logical clusters: inputs are collected into a plan, and its objects are added to a batch.

The workspace controller builds clusters of its own shard, `shard.handlers.logicalcluster_creates` those requested by
other shards, `shard.handlers.homes` home workspaces, and the controller of roots those that an administrator created by
their LogicalCluster. Invariant: all objects of a new cluster are written in one batch.
"""

from __future__ import annotations

from collections.abc import Sequence

from atoll.machinery.apiserver.writing.batch import Batch
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.kcp.apis.apibindings import Export
from atoll.machinery.kcp.manifest import Manifest
from atoll.machinery.kcp.workspaces import unowned_cluster, workspace
from atoll.machinery.kcp.workspaces.remote_logicalcluster import RequestedCluster
from atoll.machinery.kcp.workspaces.workspacetypes import Resolution, TypeReference, TypeRefused, WorkspaceType, resolve
from atoll.machinery.meta import hashes, times, wellknown
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import Object, annotations_of, decode
from atoll.machinery.meta.types import API_BINDINGS, API_EXPORTS, LOGICAL_CLUSTERS
from atoll.machinery.meta.uids import new_uid
from atoll.machinery.storage.contract import RevisionUnchanged
from atoll.tenancy.bound_definitions import BoundCrds, has_to_prepare
from atoll.tenancy.cluster_templates import ClusterTemplates
from atoll.tenancy.lookups import Lookups


class ClusterBuilder:
    """Builds logical clusters, for one shard."""

    def __init__(self, loopback: Loopback, facts: Lookups) -> None:
        self._loopback, self._facts, self._bound = loopback, facts, BoundCrds()
        self._templates = ClusterTemplates(loopback, self._export, self.add)

    def _export(self, batch: Batch, path: str, name: str, seen_from: str) -> Export | None:
        return export_for(batch, self._facts, path, name, seen_from)

    def parent(self, batch: Batch, cluster: str) -> Object:
        """Return the LogicalCluster that contains a Workspace. Raises TypeRefused if it does not exist."""
        home = batch.get(ObjectKey(LOGICAL_CLUSTERS, cluster, "", wellknown.SINGLETON))
        if home is None:
            raise TypeRefused("the parent workspace is gone")
        return decode(home.value)

    def resolve(self, batch: Batch, parent: Object, obj: Object) -> Resolution:
        """Return the resolved type of a Workspace. Raises TypeRefused."""
        reference = obj["spec"].get("type") or {}
        requested = TypeReference(reference["name"], reference.get("path") or "") if reference else None

        def lookup(path: str, name: str) -> WorkspaceType | None:
            return self._facts.workspace_type(batch, path, name)

        return resolve(requested, parent, lookup)

    def plan(self, batch: Batch, parent: Object, obj: Object, shard: workspace.Shard) -> workspace.WorkspacePlan:
        """Return the plan for the cluster of a Workspace on a shard. Raises TypeRefused."""
        metadata, above = obj["metadata"], parent["metadata"]["annotations"][wellknown.CLUSTER]
        below = path_below(parent, metadata["name"])
        return workspace.WorkspacePlan(
            workspace=obj,
            parent_cluster=above,
            path=below,
            cluster=hashes.cluster_name_of(above, metadata["uid"], shard.name),
            resolution=self.resolve(batch, parent, obj),
            shard=shard,
            find_export=lambda path, name: export_for(batch, self._facts, path, name, below),
            now=times.now(),
            new_uid=new_uid,
            required_groups=annotations_of(obj).get(wellknown.REQUIRED_GROUPS, ""),
        )

    def build_unowned(self, batch: Batch, cluster: str, shard: workspace.Shard) -> bool:
        """Add what makes a complete cluster of a LogicalCluster that was created without a Workspace. Objects that are
        there already stay. Returns False if it is complete, or gone."""
        record = batch.get(ObjectKey(LOGICAL_CLUSTERS, cluster, "", wellknown.SINGLETON))
        obj = decode(record.value) if record is not None else None
        if obj is None or not unowned_cluster.waits(obj, cluster):
            return False
        manifests = workspace.build(self.unowned_plan(batch, obj, cluster, shard))
        kind = self._loopback.core.catalogs.builtin(LOGICAL_CLUSTERS)
        target = Target(kind, cluster, "", wellknown.SINGLETON)
        batch.update(target, unowned_cluster.built(obj, manifests), whole=True)
        self.add(batch, [each for each in manifests[1:] if batch.get(_key_of(each)) is None])
        return True

    def unowned_plan(self, batch: Batch, obj: Object, cluster: str, shard: workspace.Shard) -> workspace.WorkspacePlan:
        """Return the plan for a LogicalCluster without an owner."""
        facts, path = self._facts, annotations_of(obj).get(wellknown.PATH) or cluster
        request = RequestedCluster(
            shard,
            lambda path, name: facts.workspace_type(batch, path, name),
            lambda export_path, name: export_for(batch, facts, export_path, name, path),
            times.now(),
            new_uid,
        )
        return unowned_cluster.plan_of(obj, cluster, request)

    def create(self, batch: Batch, plan: workspace.WorkspacePlan) -> Object:
        """Add all objects of a Workspace's new cluster to a batch; return its LogicalCluster."""
        cluster = self._templates.fill(batch, plan)
        if cluster is None:
            manifests = workspace.build(plan)
            self.add(batch, manifests)
            cluster = manifests[0].object
        return cluster

    def add(self, batch: Batch, manifests: Sequence[Manifest]) -> None:
        """Add a new cluster's objects to a batch, the LogicalCluster first."""
        kinds = self._loopback.core.catalogs.builtin
        for manifest in manifests:
            metadata = manifest.object["metadata"]
            target = Target(kinds(manifest.type), manifest.cluster, metadata.get("namespace", ""), metadata["name"])
            batch.create(target, manifest.object)
            if manifest.type == API_BINDINGS:
                self._bound.add(batch, manifest.object)


def _key_of(manifest: Manifest) -> ObjectKey:
    metadata = manifest.object["metadata"]
    return ObjectKey(manifest.type, manifest.cluster, metadata.get("namespace", ""), metadata["name"])


def path_below(parent: Object, name: str) -> str:
    """Return the canonical path of a Workspace in the cluster of LogicalCluster `parent`."""
    annotations = annotations_of(parent)
    return f"{annotations.get(wellknown.PATH) or annotations.get(wellknown.CLUSTER, '')}:{name}"


def export_for(batch: Batch, facts: Lookups, path: str, name: str, seen_from: str) -> Export | None:
    """Return an export that a new cluster of path `seen_from` binds; a guard of the batch holds the export's revision.

    Without the guard a change of the export before the submit would be missed: controllers do not visit a binding
    created in phase Bound, and a change of the export enqueues only existing bindings. A remote export has no revision
    on this shard. None also for an export whose many definitions the binding controller writes first.
    """
    found = facts.export(batch, path, name, seen_from)
    if found is not None and has_to_prepare(batch, found):
        return None
    if found is not None:
        key = ObjectKey(API_EXPORTS, found.cluster, "", name)
        batch.guard(RevisionUnchanged(key, batch.revision_of(key)))
    return found
