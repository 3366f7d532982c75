"""APIExports: their identity, its Secret, and the default endpoint slice.

Watches: APIExports, their identity Secrets, deletions of endpoint slices, and the namespace of generated Secrets.
Writes: for an export without a Secret reference, a Secret in `kcp-system`, the reference and the identity hash in one
transaction; afterwards the condition of the identity in status. Converges because each reconcile compares the Secret
with the hash; the hash is written once. The key in a Secret is read here only, and is not passed on.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from atoll.controllers.exports.identity_secrets import builtin_target, with_identity
from atoll.controllers.shard_predicate import ShardChangePredicate
from atoll.machinery.apiserver.call.gate import NOTHING_NEW
from atoll.machinery.apiserver.federation.federated_view import federated
from atoll.machinery.apiserver.writing.batch import LOST, Batch
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.control.manager import ReplicaController
from atoll.machinery.control.queue import Requeue
from atoll.machinery.kcp.apis import apiexports
from atoll.machinery.kcp.apis.apiexports import SecretReference
from atoll.machinery.kcp.apis.endpointslices import endpoint_url
from atoll.machinery.kcp.namespaces import KCP_SYSTEM
from atoll.machinery.kcp.sharding.shards import virtual_workspace_url
from atoll.machinery.meta import times
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import ROOT, ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode, status_of
from atoll.machinery.meta.status import AlreadyExists, ApiError, Conflict, NotFound
from atoll.machinery.meta.types import API_EXPORT_ENDPOINT_SLICES, API_EXPORTS, NAMESPACES, SECRETS
from atoll.machinery.process.backoff import Backoff
from atoll.machinery.storage.contract import GateUnchanged, LogEntry, Operation, RevisionUnchanged, Scope
from atoll.machinery.storage.pages import each_record

#: References of exports to Secrets that are remembered, in all clusters together.
MAX_REFERENCES = 1 << 16
#: Delay of the retry after a conflicting creation.
CONFLICT = Backoff(0.01, 10.0)


class ExportController(ReplicaController):
    """Key: (cluster, export name)."""

    name = "apiexport"
    workers = 4
    #: Seconds: users wait for identities.
    max_delay_s = 10.0

    def __init__(self, loopback: Loopback, shards: ResourceType | None = None) -> None:
        """`shards`: the type of Shards, if status lists the (deprecated) URLs of virtual workspaces; else None."""
        self._loopback, self._shards, self._shard_changes = loopback, shards, ShardChangePredicate()
        types = (API_EXPORTS, API_EXPORT_ENDPOINT_SLICES, SECRETS, NAMESPACES)
        self._kinds = {type: loopback.core.catalogs.builtin(type) for type in types}
        #: Identity Secret references by cluster and export: listed once, then updated by log entries.
        self._named: LruCache[str, dict[str, SecretReference]] = LruCache(MAX_REFERENCES, len)

    # --- keys ---

    def watches(self, type: ResourceType) -> bool:
        return type in {API_EXPORTS, SECRETS, API_EXPORT_ENDPOINT_SLICES, NAMESPACES, self._shards}

    def watches_replicas(self, type: ResourceType) -> bool:
        return type == self._shards

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        key, gone = entry.key, entry.operation is Operation.DELETED
        if key.type == API_EXPORTS:
            self._update_references(entry)
            if not gone:
                yield key.cluster, key.name
        elif key.type == SECRETS:
            changed = SecretReference(key.namespace, key.name)
            for name, reference in self._secret_references(key.cluster).items():
                if reference == changed:
                    yield key.cluster, name
        elif key.type == API_EXPORT_ENDPOINT_SLICES:
            if gone:
                yield key.cluster, key.name
        elif key.type == self._shards:
            if self._shard_changes.has_changed(entry):
                yield from self.all_keys()
        elif gone and key.name == KCP_SYSTEM:
            for name in self._secret_references(key.cluster):
                yield key.cluster, name

    keys_of_replica = keys

    def _update_references(self, entry: LogEntry) -> None:
        named = self._named.get(entry.key.cluster)
        if named is None:
            return
        # In place, as a cluster may have thousands; the cache weighs what it drops and what it takes.
        self._named.drop(entry.key.cluster)
        named.pop(entry.key.name, None)
        if entry.operation is not Operation.DELETED:
            named[entry.key.name] = _identity_of(decode(entry.value))
        self._named.put(entry.key.cluster, named)

    def _secret_references(self, cluster: str) -> dict[str, SecretReference]:
        """Return the (future) identity Secret of each export of a cluster.

        The list may be newer than the log position, and a log entry may set it back. An export that names another
        Secret later has a later log entry, so that no change of a Secret is missed.
        """
        found = self._named.get(cluster)
        if found is not None:
            return found
        with self._loopback.store.snapshot() as snapshot:
            if not snapshot.last(API_EXPORTS, cluster):
                return {}
        exports = self._loopback.each(Scope(API_EXPORTS, cluster))
        named = {str(export["metadata"]["name"]): _identity_of(export) for export in exports}
        self._named.put(cluster, named)
        return named

    def all_keys(self) -> Iterable[Hashable]:
        # Log entries may have been skipped, so the cache may be stale.
        self._named.clear()
        for key in self._loopback.keys(Scope(API_EXPORTS)):
            yield key.cluster, key.name

    # --- reconcile ---

    async def reconcile(self, key: tuple[str, str]) -> Requeue:
        cluster, name = key
        batch = self._loopback.batch()
        gate, record = batch.gate(cluster), batch.get(ObjectKey(API_EXPORTS, cluster, "", name))
        export = decode(record.value) if record is not None else None
        if record is None or export is None or export["metadata"].get("deletionTimestamp") or gate.state in NOTHING_NEW:
            return None
        batch.guard(RevisionUnchanged(record.key, record.revision), GateUnchanged(cluster, gate.generation))
        try:
            self._reconcile_export(batch, cluster, export)
            await batch.submit()
        except (*LOST, AlreadyExists, Conflict, NotFound):
            # A concurrent write; only a write of the export itself would enqueue the key again.
            return CONFLICT
        except ApiError as error:
            await self._write_error(cluster, export, error)
            raise
        return None

    def _reconcile_export(self, batch: Batch, cluster: str, export: Object) -> None:
        """Add to a batch the objects and status that an export lacks."""
        desired = with_identity(self._loopback, batch, cluster, export)
        desired["status"] = self._with_urls(desired["status"], cluster, export["metadata"]["name"])
        if desired != export:
            batch.update(
                builtin_target(self._loopback, API_EXPORTS, cluster, export["metadata"]["name"]), desired, whole=True
            )
        self._add_slice(batch, cluster, export)

    def _with_urls(self, status: Object, cluster: str, name: str) -> Object:
        if self._shards is None:
            return apiexports.without_urls(status)
        with self._loopback.store.snapshot() as snapshot:
            shards = [decode(each.value) for each in each_record(federated(snapshot), Scope(self._shards, ROOT))]
        bases = [virtual_workspace_url(each) for each in shards]
        urls = sorted({endpoint_url(base, cluster, name) for base in bases if base})
        return apiexports.with_urls(status, urls, times.now())

    def _add_slice(self, batch: Batch, cluster: str, export: Object) -> None:
        wanted = apiexports.default_slice(export)
        if wanted is None:
            return
        name = wanted["metadata"]["name"]
        if batch.get(ObjectKey(API_EXPORT_ENDPOINT_SLICES, cluster, "", name)) is None:
            batch.create(builtin_target(self._loopback, API_EXPORT_ENDPOINT_SLICES, cluster, name), wanted, whole=False)

    async def _write_error(self, cluster: str, export: Object, error: ApiError) -> None:
        """Write to status why an identity could not be created; the queue retries."""
        if apiexports.secret_reference(export) is not None:
            return
        status = apiexports.with_generation_error(status_of(export), str(error), times.now())
        if status == export.get("status"):
            return
        target = builtin_target(self._loopback, API_EXPORTS, cluster, export["metadata"]["name"])
        await self._loopback.try_update(target, {**export, "status": status}, whole=True)


def _identity_of(export: Object) -> SecretReference:
    return apiexports.secret_reference(export) or apiexports.generated_reference(export)
