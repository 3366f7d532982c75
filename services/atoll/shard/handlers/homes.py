"""Home workspaces: `GET workspaces/~` in root returns the caller's home workspace, created on first use.

`resources` calls it for the name `~`. A home is a logical cluster without a Workspace object; its name is a hash of the
user name. The shard `root` chooses the shard of a home: its own homes it creates in one submit; for another shard it
writes a marker, which every other shard goes by (`sharding.ownership_resolver`), and has that shard create it. Unlike
kcp, it returns a home at once if only system initializers remain. Invariant: of two first uses one chooses the shard,
and a home is returned only to the user for whom it was created.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection
from contextlib import suppress

import structlog

from atoll.machinery.apiserver.authorization import refusal
from atoll.machinery.apiserver.authorization.attributes import attributes_of, with_verb
from atoll.machinery.apiserver.authorization.effective_users import in_scope
from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.call.call import Call, Reply, View
from atoll.machinery.apiserver.federation.federated_view import federated
from atoll.machinery.apiserver.rest import present
from atoll.machinery.apiserver.writing.batch import Batch
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.client.resource import Resource
from atoll.machinery.kcp.sharding.ownership import Owner, record_of
from atoll.machinery.kcp.sharding.scheduling import Unschedulable
from atoll.machinery.kcp.workspaces import unowned_cluster, workspace
from atoll.machinery.kcp.workspaces.workspacetypes import TypeReference, TypeRefused, forbidden, resolve
from atoll.machinery.meta import hashes, paths, times, wellknown
from atoll.machinery.meta.names import ROOT, ObjectKey, is_path_segment
from atoll.machinery.meta.objects import Object, annotations_of, decode, encode_json, labels_of, spec_of, status_of
from atoll.machinery.meta.status import AlreadyExists, Details, TooManyRequests
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.meta.uids import new_uid
from atoll.machinery.meta.user import User, is_service_account
from atoll.machinery.process.retry import ATTEMPTS
from atoll.machinery.storage.contract import Snapshot
from atoll.replication.peers import PEER_ERRORS, Peers
from atoll.shard.admission.workspaces import owner_annotation
from atoll.shard.handlers.home_claims import HomeClaims
from atoll.tenancy.cluster_builder import ClusterBuilder, export_for
from atoll.tenancy.lookups import Lookups
from atoll.tenancy.placement import ShardPlacement

log = structlog.get_logger()

HOME, PARENT = "~", "user"
TYPE = TypeReference("home", ROOT)
#: The query parameter that names the region of the front proxy where the user came in: a hint, and so anybody's.
REGION_PARAMETER = "region"
CLUSTERS = Resource("core.kcp.io", "v1alpha1", "logicalclusters", namespaced=False)


class _Silent(Exception):
    """A shard that did not create a home."""


class Homes:
    """Serves `~`. `shard` is this one; the shard `root` places new homes, with `peers` on any shard."""

    def __init__(
        self,
        loopback: Loopback,
        facts: Lookups,
        shard: workspace.Shard,
        placement: ShardPlacement,
        claims: HomeClaims,
        peers: Peers | None = None,
    ) -> None:
        self._loopback, self._facts, self._shard = loopback, facts, shard
        self._placement, self._claims, self._peers = placement, claims, peers
        self._builder = ClusterBuilder(loopback, facts)

    def serve(self, call: Call, snapshot: Snapshot) -> Reply | Awaitable[Reply]:
        """Return the caller's home as a Workspace: in root, and in the home itself, where a front proxy asks for it.

        Raises NotFound elsewhere, Forbidden, and TooManyRequests while its initializers run.
        """
        cluster = hashes.home_cluster_name(call.user.name)
        if call.cluster not in (ROOT, cluster):
            raise errors.not_found(call.kind, HOME)
        if is_service_account(call.user.name) or not in_scope(call.user, ROOT):
            # The same service account name is another account in each workspace.
            raise errors.forbidden(call.kind, HOME, "only users of the whole installation have a home workspace")
        found = _home_of(federated(snapshot), cluster)
        if found is not None and wellknown.MOVED_TO not in annotations_of(found):
            return _home_workspace(call, found)
        if call.cluster != ROOT:
            raise errors.not_found(call.kind, HOME)
        if not call.may("create"):
            create = with_verb(attributes_of(call.info, call.user, ROOT), "create")
            raise refusal.forbidden(create, refusal.WORKSPACE_ACCESS_NOT_PERMITTED)
        return self._create(call, cluster)

    async def _create(self, call: Call, cluster: str) -> Reply:
        silent: set[str] = set()
        for _ in range(ATTEMPTS):
            seat = self._seat(cluster)
            if seat is None or seat.shard in silent:
                chosen = self._choose(call, {*silent, *await self._claims.shards(cluster)})
                # If another request of the same user chose first, its choice counts; if an object that the home's
                # bindings need was written concurrently, try again.
                with suppress(AlreadyExists):
                    await self._placed(call, cluster, chosen, seat).try_submit()
                seat = self._seat(cluster)
            if seat is None:
                continue
            try:
                return _home_workspace(call, await self._home_at(call, cluster, seat.shard))
            except _Silent:
                silent.add(seat.shard)
        raise TooManyRequests("Creating the home workspace", Details(retry_after_s=1))

    def _seat(self, cluster: str) -> Owner | None:
        """Return the shard that was chosen for a home, and the number of choices."""
        with self._loopback.store.snapshot() as snapshot:
            record = snapshot.get(ObjectKey(LOGICAL_CLUSTERS, cluster, "", wellknown.SINGLETON))
        found = record_of(cluster, record.value) if record is not None else None
        return Owner(found.successor or self._shard.name, found.generation) if found is not None else None

    def _choose(self, call: Call, without: Collection[str]) -> str:
        """Return the shard for a new home. Raises TooManyRequests."""
        with self._loopback.store.snapshot() as snapshot:
            try:
                region = call.info.query.get(REGION_PARAMETER, "")
                return self._placement.choose_home(snapshot, _path(call.user.name), region, without).name
            except Unschedulable as error:
                raise TooManyRequests(str(error), Details(retry_after_s=1)) from error

    def _placed(self, call: Call, cluster: str, shard: str, before: Owner | None) -> Batch:
        """Return a batch with a new home, or with the marker of one on another shard and the route to it."""
        if shard == self._shard.name and before is None:
            return self._batch(call)
        batch, user = self._loopback.batch(), call.user
        generation = before.generation + 1 if before is not None else 1
        marker = unowned_cluster.home_marker(_path(user.name), user.name, shard, generation)
        target = Target(self._loopback.core.catalogs.builtin(LOGICAL_CLUSTERS), cluster, "", wellknown.SINGLETON)
        if before is None:
            batch.create(target, marker)
        else:
            found = _home_of(batch, cluster) or marker
            metadata = {**found["metadata"], "annotations": {**annotations_of(found), **annotations_of(marker)}}
            batch.update(target, {**found, "metadata": metadata}, whole=True)
        batch.route(cluster, shard, generation)
        return batch

    async def _home_at(self, call: Call, cluster: str, shard: str) -> Object:
        """Return the LogicalCluster of a home on the shard chosen for it, created there if it is absent.

        Raises _Silent for a shard that is not known to have it, and does not create it.
        """
        with self._loopback.store.snapshot() as snapshot:
            found = _home_of(federated(snapshot), cluster)
        if found is not None and wellknown.MOVED_TO not in annotations_of(found):
            return found
        if self._peers is None:
            raise _Silent
        user = call.user
        wanted = unowned_cluster.home(_path(user.name), owner_annotation(user, ROOT), user.name, shard)
        try:
            client = self._peers.client(shard).cluster(cluster)
            try:
                return await client.create(CLUSTERS, wanted)
            except AlreadyExists:
                return await client.get(CLUSTERS, wellknown.SINGLETON)
        except PEER_ERRORS as error:
            log.warning("shard does not create a home", shard=shard, reason=str(error) or type(error).__name__)
            raise _Silent from error

    def _batch(self, call: Call) -> Batch:
        """Return a batch with all objects of a new home on this shard."""
        batch = self._loopback.batch()
        try:
            manifests = workspace.build(self._plan(batch, call.user))
        except TypeRefused as error:
            raise forbidden(HOME, error) from error
        self._builder.add(batch, manifests)
        return batch

    def _plan(self, batch: Batch, user: User) -> workspace.WorkspacePlan:
        return workspace.WorkspacePlan(
            workspace={"metadata": {"name": HOME, "annotations": {wellknown.OWNER: owner_annotation(user, ROOT)}}},
            parent_cluster="",
            path=_path(user.name),
            cluster=hashes.home_cluster_name(user.name),
            resolution=resolve(TYPE, {}, lambda path, name: self._facts.workspace_type(batch, path, name)),
            shard=self._shard,
            find_export=lambda path, name: export_for(batch, self._facts, path, name, _path(user.name)),
            now=times.now(),
            new_uid=new_uid,
        )


def _path(name: str) -> str:
    """Return `user:<name>`; the cluster's name if the user name is not one path segment."""
    return paths.join(PARENT, name) if is_path_segment(name) else hashes.home_cluster_name(name)


def _home_of(view: View, cluster: str) -> Object | None:
    record = view.get(ObjectKey(LOGICAL_CLUSTERS, cluster, "", wellknown.SINGLETON))
    return decode(record.value) if record is not None else None


def _home_workspace(call: Call, cluster: Object) -> Reply:
    """Return a home's LogicalCluster in the form of a Workspace."""
    owner = (spec_of(cluster).get("createdBy") or {}).get("username")
    status, metadata = status_of(cluster), cluster["metadata"]
    if owner != call.user.name:
        raise errors.forbidden(call.kind, HOME, "the home workspace belongs to somebody else")
    if status.get("phase") not in {"Ready", "Inactive"}:
        raise TooManyRequests("Creating the home workspace", Details(retry_after_s=1))
    found: Object = {
        "apiVersion": call.kind.api_version,
        "kind": call.kind.kind,
        "metadata": {
            "name": metadata["name"],
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            "creationTimestamp": metadata["creationTimestamp"],
            "labels": labels_of(cluster),
            "annotations": {wellknown.CLUSTER: ROOT, wellknown.PATH: metadata["annotations"][wellknown.PATH]},
        },
        "spec": {
            "cluster": metadata["annotations"][wellknown.CLUSTER],
            "URL": status.get("URL", ""),
            "type": {"name": TYPE.name, "path": TYPE.path},
        },
        "status": {key: status[key] for key in ("phase", "conditions", "initializers") if status.get(key)},
    }
    return present.single(call, encode_json(found))
