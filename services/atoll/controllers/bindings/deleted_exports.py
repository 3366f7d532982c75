"""Deleted exports of other shards: their maximal permission policies no longer restrict bindings.

Watches: deletions of APIExports on other shards. Writes: bound CRDs, without the note that such an export has a policy
(`bound_crds.POLICED`), by which the authorizer goes while the export is not held here. Invariant: the note stays while
any shard still sends the export, and for one that is not replicated here any more, which is no deletion.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import msgspec

from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.federation.federated_view import federated
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.control.manager import ReplicaController
from atoll.machinery.kcp.apis import bound_crds
from atoll.machinery.meta import hashes
from atoll.machinery.meta.names import ROOT, ObjectKey, ResourceType
from atoll.machinery.meta.objects import decode
from atoll.machinery.meta.types import API_BINDINGS, API_EXPORTS
from atoll.machinery.storage.contract import LogEntry, Operation, Scope
from atoll.machinery.storage.pages import each_record
from atoll.tenancy.bound_definitions import BoundCrds


class DeletedExportKey(msgspec.Struct, frozen=True, tag=True):
    """An APIExport of another shard, by logical cluster and name."""

    cluster: str
    name: str


class DeletedExports(ReplicaController):
    """Key: a deleted export. `shards` is the type of Shard objects."""

    name = "deletedexports"
    workers = 1

    def __init__(self, loopback: Loopback, shards: ResourceType) -> None:
        self._loopback, self._shards = loopback, shards
        self._bound = BoundCrds()

    def watches(self, type: ResourceType) -> bool:
        return False

    def watches_replicas(self, type: ResourceType) -> bool:
        return type == API_EXPORTS

    def keys_of_replica(self, entry: LogEntry) -> Iterable[Hashable]:
        if entry.operation is Operation.DELETED:
            yield DeletedExportKey(entry.key.cluster, entry.key.name)

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        return ()

    def all_keys(self) -> Iterable[Hashable]:
        return ()

    async def reconcile(self, key: DeletedExportKey) -> None:
        batch = self._loopback.batch()
        if self._is_held(batch, key):
            return
        for uid in _bound_through(batch, key):
            self._bound.forget_policy(batch, uid, key.name)
        await batch.submit()

    def _is_held(self, view: View, key: DeletedExportKey) -> bool:
        """Whether a row of the export is held, of the cluster's shard or of any other."""
        export, reaching = ObjectKey(API_EXPORTS, key.cluster, "", key.name), federated(view)
        if reaching.get(export) is not None:
            return True
        origins = (record.key.name for record in each_record(reaching, Scope(self._shards, ROOT)))
        return any(view.replicas.row_of(origin, export) is not None for origin in origins)


def _bound_through(view: View, key: DeletedExportKey) -> set[str]:
    """Return the uids of the bound CRDs of the bindings to an export."""
    label = hashes.EXPORT_LABEL, hashes.export_hash(key.cluster, key.name)
    records = (view.get(each) for each in view.labelled(*label, API_BINDINGS))
    return {
        needed.uid
        for record in records
        if record is not None
        for needed in bound_crds.required_crds(decode(record.value))
        if needed.export == key.name
    }
