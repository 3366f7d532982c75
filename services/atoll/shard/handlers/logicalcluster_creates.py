"""Logical clusters that other shards order: a POST of a LogicalCluster, answered with the whole cluster made.

`resources` calls it for creates of LogicalClusters by system:kcp:logical-cluster-admin that name an owner. One submit
brings the cluster to the furthest state that its type allows, with bindings, namespaces and its administrator, and the
answer is the LogicalCluster as it stands then. Any other create of a LogicalCluster goes the ordinary way, and
admission judges it. Invariant: a cluster comes from one order; whoever sends it again hears that it exists.
"""

from __future__ import annotations

from collections.abc import Awaitable

from atoll.machinery.apiserver.authorization.effective_users import effective_users
from atoll.machinery.apiserver.authorization.groups import LOGICAL_CLUSTER_ADMIN
from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.call.call import Call, Reply
from atoll.machinery.apiserver.call.options import write_options
from atoll.machinery.apiserver.rest import present
from atoll.machinery.apiserver.rest.body import decode_body
from atoll.machinery.apiserver.writing.batch import LOST, Batch
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.kcp.workspaces import remote_logicalcluster, workspace
from atoll.machinery.meta import times, wellknown
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.status import AlreadyExists, Details, ServerTimeout, invalid
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.meta.uids import new_uid
from atoll.machinery.storage.contract import Record, Snapshot
from atoll.tenancy.cluster_builder import ClusterBuilder, export_for
from atoll.tenancy.lookups import Lookups

#: How often a cluster is planned where others write first.
ATTEMPTS = 4


class LogicalClusterCreates:
    """Answers orders. `shard` is this one."""

    def __init__(self, loopback: Loopback, facts: Lookups, shard: workspace.Shard) -> None:
        self._loopback, self._facts, self._shard = loopback, facts, shard
        self._building = ClusterBuilder(loopback, facts)

    def create(self, call: Call, snapshot: Snapshot) -> Awaitable[Reply] | None:
        """Make what is ordered; None for any other create of a LogicalCluster. Raises Invalid, AlreadyExists."""
        if LOGICAL_CLUSTER_ADMIN not in effective_users(call.user, call.cluster).own.groups:
            return None
        options = write_options(call.info.query, call.user_agent, "CreateOptions")
        obj = decode_body(call, options.validation)
        if options.dry_run or not remote_logicalcluster.is_requested(obj):
            return None
        if found := remote_logicalcluster.problems(obj, call.cluster, self._shard.name):
            raise invalid(call.kind.group_kind, wellknown.SINGLETON, found)
        if (route := snapshot.replicas.shard_of(call.cluster)) not in ("", self._shard.name):
            raise AlreadyExists(f'logical cluster "{call.cluster}" lies on shard "{route}"')
        return self._made(call, obj)

    async def _made(self, call: Call, obj: Object) -> Reply:
        for _ in range(ATTEMPTS):
            if (record := self._record(call)) is not None:
                raise errors.already_exists(call.kind, wellknown.SINGLETON, decode(record.value))
            try:
                await self._planned(call.cluster, obj).submit()
            except LOST:
                # The same order came twice, or something that comes with its bindings was written meanwhile.
                continue
            record = self._record(call)
            if record is None:
                raise errors.not_found(call.kind, wellknown.SINGLETON)
            return present.single(call, record.value, 201)
        raise ServerTimeout("others kept coming first", Details(retry_after_s=1))

    def _record(self, call: Call) -> Record | None:
        with self._loopback.store.snapshot() as snapshot:
            return snapshot.get(ObjectKey(LOGICAL_CLUSTERS, call.cluster, "", wellknown.SINGLETON))

    def _planned(self, cluster: str, obj: Object) -> Batch:
        """A batch with all of a new cluster."""
        batch, facts = self._loopback.batch(), self._facts
        own = obj["metadata"]["annotations"][wellknown.PATH]
        ground = remote_logicalcluster.RequestedCluster(
            self._shard,
            lambda path, name: facts.workspace_type(batch, path, name),
            lambda path, name: export_for(batch, facts, path, name, own),
            times.now(),
            new_uid,
        )
        self._building.add(batch, workspace.build(remote_logicalcluster.plan_of(obj, cluster, ground)))
        return batch
