"""Workspaces: a logical cluster for each, its state mirrored, and both gone together.

Watches: Workspaces, LogicalClusters. Writes: on scheduling one batch with the whole new cluster and the Workspace's
own state, so that a reader sees either nothing or a workspace in the furthest state its type allows; later the
mirror of phase and conditions; on deletion the LogicalCluster first, the finalizer last.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import msgspec
import structlog

from atoll.controllers.announce import Warned, warn
from atoll.controllers.bindings.definitions import BoundCrds
from atoll.controllers.facts import Facts
from atoll.controllers.tenancy import workspacedeletion
from atoll.machinery.apiserver.loopback import Batch, Loopback, Target
from atoll.machinery.apiserver.options import DeleteOptions
from atoll.machinery.kcp import shapes, workspace
from atoll.machinery.kcp.bindings import Export
from atoll.machinery.kcp.types import Resolution, TypeReference, TypeRefused, WorkspaceType, resolve
from atoll.machinery.meta import hashes, times
from atoll.machinery.meta.conditions import Condition, set_condition
from atoll.machinery.meta.names import ROOT, ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.selectors import compile_label_selector
from atoll.machinery.meta.status import Conflict, NotFound
from atoll.machinery.meta.types import API_BINDINGS, API_EXPORTS, LOGICAL_CLUSTERS
from atoll.machinery.meta.uids import new_uid
from atoll.machinery.storage import contract
from atoll.machinery.storage.contract import LogEntry, Operation, Scope, Stands

log = structlog.get_logger()

UNSCHEDULABLE = "experimental.core.kcp.io/unschedulable"
COMPONENT = "kcp-workspace"
NO_SHARDS = "No available shards to schedule the workspace"
ATTEMPTS = 4


class WorkspaceController:
    """Key: (parent cluster, workspace name)."""

    name = "workspace"
    workers = 16
    #: People wait for workspaces: what failed is tried again within seconds, however often it failed.
    max_delay_s = 10.0

    def __init__(self, loopback: Loopback, facts: Facts, shard: workspace.Shard) -> None:
        self._loopback, self._facts, self._shard = loopback, facts, shard
        self._type, self._bound = facts.identities.workspaces, BoundCrds()

    # --- what to look at ---

    def watches(self, type: ResourceType) -> bool:
        return type in {self._type, LOGICAL_CLUSTERS, self._facts.identities.shard_objects}

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        if entry.key.type == self._type:
            yield entry.key.cluster, entry.key.name
        elif entry.key.type == LOGICAL_CLUSTERS:
            owner = (decode(entry.value).get("spec") or {}).get("owner")
            # The batch that made a cluster wrote its Workspace too; later changes are mirrored.
            if owner and entry.operation is not Operation.ADDED:
                yield owner["cluster"], owner["name"]
        else:
            yield from self._unscheduled()

    def _unscheduled(self) -> Iterable[Hashable]:
        for obj in self._loopback.each(Scope(self._type)):
            if not (obj.get("spec") or {}).get("cluster"):
                yield obj["metadata"]["annotations"][shapes.CLUSTER], obj["metadata"]["name"]

    def all_keys(self) -> Iterable[Hashable]:
        for key in self._loopback.keys(Scope(self._type)):
            yield key.cluster, key.name

    # --- what to do ---

    async def reconcile(self, key: tuple[str, str]) -> float | None:
        parent, name = key
        obj = self._loopback.get(self._type, parent, "", name)
        if obj is None or (obj.get("spec") or {}).get("mount"):
            return None
        cluster = (obj.get("spec") or {}).get("cluster") or ""
        if obj["metadata"].get("deletionTimestamp"):
            await self._delete(parent, obj, cluster)
        elif not cluster:
            await self._schedule(parent, obj)
        else:
            await self._mirror(parent, obj, cluster)
        return None

    # --- scheduling ---

    async def _schedule(self, parent: str, obj: Object) -> None:
        host = self._shard_metadata()
        if not _fits(host, obj):
            await self._refuse(parent, obj, "Unschedulable", NO_SHARDS)
            return
        for _ in range(ATTEMPTS):
            batch = self._loopback.batch()
            try:
                plan = self._plan(batch, parent, obj, host)
            except TypeRefused as error:
                await self._refuse(parent, obj, "Unknown", str(error))
                return
            self._fill(batch, parent, obj, plan)
            try:
                await batch.submit()
            except (contract.Exists, contract.Conflict, contract.Missing, contract.Refused):
                if self._is_stale(parent, obj):
                    # Its own entry brings it here again.
                    return
                # The random name is taken, or something that comes with its bindings was written meanwhile.
                continue
            return
        raise RuntimeError("others kept coming first")

    def _is_stale(self, parent: str, obj: Object) -> bool:
        """Whether a Workspace is not what it was when it was read."""
        with self._loopback.store.snapshot() as snapshot:
            revision = snapshot.revision_of(ObjectKey(self._type, parent, "", obj["metadata"]["name"]))
        return revision != int(obj["metadata"]["resourceVersion"])

    def _plan(self, batch: Batch, parent: str, obj: Object, host: Object) -> workspace.Plan:
        home = batch.get(ObjectKey(LOGICAL_CLUSTERS, parent, "", shapes.SINGLETON))
        if home is None:
            raise TypeRefused("the parent workspace is gone")
        parent_object = decode(home.value)
        annotations = parent_object["metadata"].get("annotations") or {}
        reference = obj["spec"].get("type") or {}
        requested = TypeReference(reference["name"], reference.get("path") or "") if reference else None

        def lookup(path: str, name: str) -> WorkspaceType | None:
            return self._facts.workspace_type(batch, path, name)

        resolution: Resolution = resolve(requested, parent_object, lookup)
        return workspace.Plan(
            workspace=obj,
            parent_cluster=parent,
            path=f"{annotations.get(shapes.PATH) or parent}:{obj['metadata']['name']}",
            cluster=hashes.random_cluster_name(),
            resolution=resolution,
            shard=msgspec.structs.replace(self._shard, labels=host.get("labels") or {}),
            find_export=lambda path, name: export_for(batch, self._facts, path, name),
            now=times.now(),
            new_uid=new_uid,
            required_groups=(obj["metadata"].get("annotations") or {}).get(shapes.REQUIRED_GROUPS, ""),
        )

    def _fill(self, batch: Batch, parent: str, obj: Object, plan: workspace.Plan) -> None:
        """Add the new cluster's objects, then the Workspace as it stands with them."""
        manifests = workspace.build(plan)
        kinds = self._loopback.core.catalogs.builtin
        for manifest in manifests:
            metadata = manifest.object["metadata"]
            target = Target(kinds(manifest.type), manifest.cluster, metadata.get("namespace", ""), metadata["name"])
            batch.create(target, manifest.object)
            if manifest.type == API_BINDINGS:
                self._bound.add(batch, manifest.object)
        settled = workspace.settle(obj, manifests[0].object, plan.shard, plan.now)
        batch.update(self._target(batch, parent, obj), settled, whole=True)
        revision = int(obj["metadata"]["resourceVersion"])
        # Somebody may have scheduled or changed it since it was read.
        batch.guard(Stands(ObjectKey(self._type, parent, "", obj["metadata"]["name"]), revision))

    def _shard_metadata(self) -> Object:
        """Labels and annotations that this shard's object has now."""
        stored = self._loopback.get(self._facts.identities.shard_objects, ROOT, "", self._shard.name)
        return dict(stored["metadata"]) if stored is not None else {}

    async def _refuse(self, parent: str, obj: Object, reason: str, message: str) -> None:
        condition = Condition(workspace.SCHEDULED, "False", reason, message, "Error")
        status = obj.get("status") or {}
        conditions = set_condition(status.get("conditions") or [], condition, times.now())
        if conditions != status.get("conditions"):
            phase = status.get("phase", "Scheduling")
            changed = {**obj, "status": {**status, "phase": phase, "conditions": conditions}}
            await self._update(parent, obj, changed)
            kind = self._target_of(parent, obj).kind
            await warn(self._loopback, kind, obj, Warned(reason, message, COMPONENT, f"{reason}/{message}"))

    # --- afterwards ---

    async def _mirror(self, parent: str, obj: Object, cluster: str) -> None:
        found = self._loopback.get(LOGICAL_CLUSTERS, cluster, "", shapes.SINGLETON)
        if found is None:
            # Deleted directly: the owner follows.
            await self._loopback.delete(self._target_of(parent, obj), DeleteOptions())
            return
        changed = workspace.settle(obj, found, self._shard, times.now())
        if changed != obj:
            await self._update(parent, obj, changed)

    async def _delete(self, parent: str, obj: Object, cluster: str) -> None:
        found = self._loopback.get(LOGICAL_CLUSTERS, cluster, "", shapes.SINGLETON) if cluster else None
        owner = (found.get("spec") or {}).get("owner") or {} if found is not None else {}
        if found is None or owner.get("uid") != obj["metadata"]["uid"]:
            await self._release(parent, obj)
            return
        if not found["metadata"].get("deletionTimestamp"):
            await self._begin_deletion(parent, obj)
            return
        changed = workspacedeletion.mirrored(obj, found)
        if changed != obj:
            await self._update(parent, obj, changed)

    async def _begin_deletion(self, parent: str, obj: Object) -> None:
        """Mark the LogicalCluster, and say so on the Workspace in the same submit."""
        batch = self._loopback.batch()
        kind = self._loopback.core.catalogs.builtin(LOGICAL_CLUSTERS)
        try:
            workspacedeletion.begin(batch, self._target(batch, parent, obj), obj, kind)
            await batch.submit()
        except (Conflict, NotFound, contract.Conflict, contract.Missing):
            # One of them changed meanwhile, and its entry brings this key back.
            return

    async def _release(self, parent: str, obj: Object) -> None:
        batch = self._loopback.batch()
        try:
            workspacedeletion.release(batch, self._target(batch, parent, obj))
            await batch.submit()
        except (NotFound, contract.Conflict, contract.Missing):
            return

    async def _update(self, parent: str, obj: Object, changed: Object) -> None:
        try:
            await self._loopback.update(self._target_of(parent, obj), changed, whole=True)
        except (Conflict, NotFound):
            # Its newer state has an entry in the log, which brings this key back.
            return

    def _target_of(self, parent: str, obj: Object) -> Target:
        with self._loopback.store.snapshot() as snapshot:
            return self._target(snapshot, parent, obj)

    def _target(self, view: object, parent: str, obj: Object) -> Target:
        kind = self._loopback.core.catalogs.of(view, parent).of_type(self._type)  # type: ignore[arg-type]
        if kind is None:
            raise RuntimeError("the parent does not serve workspaces any more")
        return Target(kind, parent, "", obj["metadata"]["name"])


def export_for(batch: Batch, facts: Facts, path: str, name: str) -> Export | None:
    """An export that a new cluster binds; the batch guards that it still offers that when it lands.

    Nobody looks at a binding that comes bound, and a change of the export is only told to the bindings there are.
    """
    found = facts.export(batch, path, name)
    if found is not None:
        key = ObjectKey(API_EXPORTS, found.cluster, "", name)
        batch.guard(Stands(key, batch.revision_of(key)))
    return found


def _fits(host: Object, obj: Object) -> bool:
    """Whether a shard with this metadata takes new workspaces, and the one's selector selects it."""
    if UNSCHEDULABLE in (host.get("annotations") or {}):
        return False
    selector = ((obj.get("spec") or {}).get("location") or {}).get("selector")
    return selector is None or compile_label_selector(selector).matches(host.get("labels") or {})
