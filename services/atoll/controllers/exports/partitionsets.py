"""PartitionSets: one Partition for each combination of label values of the Shards.

Watches: PartitionSets, the Partitions that they own, and the Shards of the site. Writes: creations and deletions of
Partitions, and the set's status. Converges because the owned Partitions are compared with the combinations of the
current Shards; a modified Partition is replaced.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from atoll.controllers.shard_predicate import ShardChangePredicate
from atoll.machinery.apiserver.call.gate import NOTHING_NEW
from atoll.machinery.apiserver.call.options import DeleteOptions
from atoll.machinery.apiserver.federation.federated_view import federated
from atoll.machinery.apiserver.writing.batch import LOST, Batch
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.control.manager import ReplicaController
from atoll.machinery.control.queue import Requeue
from atoll.machinery.kcp.sharding import partitions
from atoll.machinery.meta import times
from atoll.machinery.meta.names import ROOT, ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode, labels_of, owner_references_of, status_of
from atoll.machinery.meta.selectors import SelectorError
from atoll.machinery.meta.status import ApiError, NotFound
from atoll.machinery.process.backoff import Backoff
from atoll.machinery.storage.contract import GateUnchanged, LogEntry, Operation, RevisionUnchanged, Scope
from atoll.machinery.storage.pages import each_record
from atoll.tenancy.lookups import Lookups

#: Maximal number of Partitions created and deleted in one transaction.
AT_ONCE = 200
#: Seconds until the remaining Partitions.
AGAIN_S = 0.01
#: Delay of the retry after a conflict.
CONFLICT = Backoff(0.01, 10.0)


class PartitionSetController(ReplicaController):
    """Key: (cluster, set name)."""

    name = "partitionset"
    workers = 1

    def __init__(self, loopback: Loopback, facts: Lookups) -> None:
        self._loopback, self._facts = loopback, facts
        self._sets, self._partitions = facts.identities.partition_sets, facts.identities.partitions
        self._shards, self._shard_changes = facts.identities.shard_objects, ShardChangePredicate()

    # --- keys ---

    def watches(self, type: ResourceType) -> bool:
        return type in {self._sets, self._partitions, self._shards}

    def watches_replicas(self, type: ResourceType) -> bool:
        return type == self._shards

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        key = entry.key
        if key.type == self._shards:
            if self._shard_changes.has_changed(entry):
                yield from self.all_keys()
        elif key.type == self._partitions:
            for owner in owner_references_of(decode(entry.value)):
                if owner.get("kind") == "PartitionSet":
                    yield key.cluster, owner["name"]
        elif entry.operation is not Operation.DELETED:
            yield key.cluster, key.name

    keys_of_replica = keys

    def all_keys(self) -> Iterable[Hashable]:
        for key in self._loopback.keys(Scope(self._sets)):
            yield key.cluster, key.name

    # --- reconcile ---

    async def reconcile(self, key: tuple[str, str]) -> Requeue:
        cluster, name = key
        batch = self._loopback.batch()
        gate, record = batch.gate(cluster), batch.get(ObjectKey(self._sets, cluster, "", name))
        obj = decode(record.value) if record is not None else None
        if record is None or obj is None or obj["metadata"].get("deletionTimestamp") or gate.state in NOTHING_NEW:
            return None
        batch.guard(RevisionUnchanged(record.key, record.revision), GateUnchanged(cluster, gate.generation))
        try:
            left = self._reconcile_set(batch, cluster, obj)
            await batch.submit()
        except (*LOST, NotFound):
            # A concurrent write, or a generated name that exists already.
            return CONFLICT
        except ApiError as error:
            await self._write_status(cluster, obj, partitions.failed_status(status_of(obj), str(error), times.now()))
            raise
        return AGAIN_S if left else None

    def _reconcile_set(self, batch: Batch, cluster: str, obj: Object) -> bool:
        """Add the changes of a set's Partitions and of its status to a batch. Returns whether changes remain."""
        labels = self._labels()
        if labels is None:
            return False
        try:
            plan = partitions.plan(obj, labels, self._owned(cluster, obj))
        except SelectorError as error:
            self._add_status(batch, cluster, obj, partitions.invalid_status(status_of(obj), error, times.now()))
            return False
        kind = batch.catalog(cluster).of_type(self._partitions)
        if kind is None:
            return False
        changes: list[str | Object] = [*plan.delete, *plan.create]
        for change in changes[:AT_ONCE]:
            if isinstance(change, str):
                batch.delete(Target(kind, cluster, "", change), DeleteOptions())
            else:
                batch.create(Target(kind, cluster), change, whole=False)
        if len(changes) > AT_ONCE:
            return True
        self._add_status(batch, cluster, obj, partitions.ready_status(status_of(obj), plan.count, times.now()))
        return False

    def _add_status(self, batch: Batch, cluster: str, obj: Object, status: Object) -> None:
        kind = batch.catalog(cluster).of_type(self._sets)
        if kind is not None and status != obj.get("status"):
            target = Target(kind, cluster, "", obj["metadata"]["name"], "status")
            batch.update(target, {**obj, "status": status})

    def _owned(self, cluster: str, obj: Object) -> list[Object]:
        with self._loopback.store.snapshot() as snapshot:
            records = [snapshot.get(key) for key in snapshot.owned(cluster, obj["metadata"]["uid"])]
        return [decode(each.value) for each in records if each is not None and each.key.type == self._partitions]

    def _labels(self) -> list[dict[str, str]] | None:
        """Return the labels of every shard of the site; None while no Shard has been replicated from root."""
        with self._loopback.store.snapshot() as snapshot:
            shards = [decode(each.value) for each in each_record(federated(snapshot), Scope(self._shards, ROOT))]
            is_root_here = self._facts.is_here(snapshot, ROOT)
        return [labels_of(each) for each in shards] if shards or is_root_here else None

    async def _write_status(self, cluster: str, obj: Object, status: Object) -> None:
        """Write the status of a failed reconcile, in a separate transaction."""
        batch = self._loopback.batch()
        self._add_status(batch, cluster, obj, status)
        await batch.try_submit()
