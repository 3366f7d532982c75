"""Creation of logical clusters for other shards: a POST of a LogicalCluster creates the complete cluster.

`resources` calls it for creates of LogicalClusters; it handles those by system:kcp:logical-cluster-admin that name an
owner, and homes that the shard `root` places here. One submit brings the cluster to the furthest phase that its type
allows, with bindings, namespaces and its administrator; the response is the resulting LogicalCluster. Any other create
takes the ordinary path through admission. Invariant: a cluster is created once; a repeated request gets AlreadyExists.
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
from atoll.machinery.apiserver.writing.batch import Batch
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.kcp.workspaces import homes, remote_logicalcluster, workspace
from atoll.machinery.meta import times, wellknown
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.status import AlreadyExists, Details, ServerTimeout, invalid
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.meta.uids import new_uid
from atoll.machinery.process.retry import ATTEMPTS
from atoll.machinery.storage.contract import Record, Snapshot
from atoll.tenancy.cluster_builder import ClusterBuilder, export_for
from atoll.tenancy.lookups import Lookups


class LogicalClusterCreates:
    """Creates logical clusters for other shards. `shard` is this one."""

    def __init__(self, loopback: Loopback, facts: Lookups, shard: workspace.Shard) -> None:
        self._loopback, self._facts, self._shard = loopback, facts, shard
        self._builder = ClusterBuilder(loopback, facts)

    def create(self, call: Call, snapshot: Snapshot) -> Awaitable[Reply] | None:
        """Create the cluster; return None for an ordinary create of a LogicalCluster. Raises Invalid, AlreadyExists."""
        if LOGICAL_CLUSTER_ADMIN not in effective_users(call.user, call.cluster).own.groups:
            return None
        options = write_options(call.info.query, call.user_agent, "CreateOptions")
        obj = decode_body(call, options.validation)
        if options.dry_run:
            return None
        if homes.is_home(obj, call.cluster, self._shard.name):
            return self._create(call, obj)
        if not remote_logicalcluster.is_requested(obj):
            return None
        if found := remote_logicalcluster.problems(obj, call.cluster, self._shard.name):
            raise invalid(call.kind.group_kind, wellknown.SINGLETON, found)
        if (route := snapshot.replicas.shard_of(call.cluster)) not in ("", self._shard.name):
            raise AlreadyExists(f'logical cluster "{call.cluster}" lies on shard "{route}"')
        return self._create(call, obj)

    async def _create(self, call: Call, obj: Object) -> Reply:
        for _ in range(ATTEMPTS):
            if (record := self._record(call)) is not None:
                raise errors.already_exists(call.kind, wellknown.SINGLETON, decode(record.value))
            if not await self._batch(call.cluster, obj).try_submit():
                # A duplicate request, or a concurrent write of an object that the bindings need.
                continue
            record = self._record(call)
            if record is None:
                raise errors.not_found(call.kind, wellknown.SINGLETON)
            return present.single(call, record.value, 201)
        raise ServerTimeout("others kept coming first", Details(retry_after_s=1))

    def _record(self, call: Call) -> Record | None:
        with self._loopback.store.snapshot() as snapshot:
            return snapshot.get(ObjectKey(LOGICAL_CLUSTERS, call.cluster, "", wellknown.SINGLETON))

    def _batch(self, cluster: str, obj: Object) -> Batch:
        """Return a batch with all objects of a new cluster."""
        batch, facts = self._loopback.batch(), self._facts
        if not remote_logicalcluster.is_requested(obj):
            plan = self._builder.unowned_plan(batch, obj, cluster, self._shard)
            self._builder.add(batch, workspace.build(plan))
            return batch
        own_path = obj["metadata"]["annotations"][wellknown.PATH]
        requested = remote_logicalcluster.RequestedCluster(
            self._shard,
            lambda path, name: facts.workspace_type(batch, path, name),
            lambda path, name: export_for(batch, facts, path, name, own_path),
            times.now(),
            new_uid,
        )
        self._builder.add(batch, workspace.build(remote_logicalcluster.plan_of(obj, cluster, requested)))
        return batch
