"""Home workspaces: `GET workspaces/~` in root returns the caller's home workspace, created on first use.

`resources` calls it for the name `~`. A home is a logical cluster without a Workspace object; its name is a hash of the
user name. The shard `root` chooses the shard of a home (`home_placement`): its own homes it creates in one submit; for
another shard it writes a marker, which every other shard goes by (`sharding.ownership_resolver`), and has that shard
create it. Unlike kcp, it returns a home at once if only system initializers remain. Invariant: a home is returned only
to the user for whom it was created.
"""

from __future__ import annotations

from collections.abc import Awaitable

from atoll.machinery.apiserver.authorization import refusal
from atoll.machinery.apiserver.authorization.attributes import attributes_of, with_verb
from atoll.machinery.apiserver.authorization.effective_users import in_scope
from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.call.call import Call, Reply
from atoll.machinery.apiserver.rest import present
from atoll.machinery.apiserver.writing.batch import Batch
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.kcp.workspaces import workspace
from atoll.machinery.kcp.workspaces.homes import HomeUser, Seat
from atoll.machinery.kcp.workspaces.workspacetypes import TypeReference, TypeRefused, forbidden, resolve
from atoll.machinery.meta import hashes, paths, times, wellknown
from atoll.machinery.meta.names import ROOT, is_path_segment
from atoll.machinery.meta.objects import Object, encode_json, labels_of, spec_of, status_of
from atoll.machinery.meta.status import Details, TooManyRequests
from atoll.machinery.meta.uids import new_uid
from atoll.machinery.meta.user import is_service_account
from atoll.machinery.storage.contract import Snapshot
from atoll.replication.peers import Peers
from atoll.shard.admission.workspaces import owner_annotation
from atoll.shard.handlers.home_claims import HomeClaims
from atoll.shard.handlers.home_placement import HomePlacement, Seats, current_home
from atoll.tenancy.cluster_builder import ClusterBuilder, export_for
from atoll.tenancy.lookups import Lookups
from atoll.tenancy.placement import ShardPlacement

HOME, PARENT = "~", "user"
TYPE = TypeReference("home", ROOT)
#: The query parameter that names the region of the front proxy where the user came in: a hint, and so anybody's.
REGION_PARAMETER = "region"


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
        self._builder = ClusterBuilder(loopback, facts)
        self._homes = HomePlacement(loopback, Seats(placement, claims, peers), self._batch)

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
        found = current_home(snapshot, cluster)
        if found is not None:
            return _home_workspace(call, found)
        if call.cluster != ROOT:
            raise errors.not_found(call.kind, HOME)
        if not call.may("create"):
            create = with_verb(attributes_of(call.info, call.user, ROOT), "create")
            raise refusal.forbidden(create, refusal.WORKSPACE_ACCESS_NOT_PERMITTED)
        return self._create(call, cluster)

    async def _create(self, call: Call, cluster: str) -> Reply:
        name = call.user.name
        user = HomeUser(name, cluster, _path(name), owner_annotation(call.user, ROOT))
        region = call.info.query.get(REGION_PARAMETER, "")
        return _home_workspace(call, await self._homes.create(user, region))

    def _batch(self, user: HomeUser, seat: Seat) -> Batch:
        """Return a batch with all objects of a new home on this shard. Raises Forbidden."""
        batch = self._loopback.batch()
        try:
            manifests = workspace.build(self._plan(batch, user, seat))
        except TypeRefused as error:
            raise forbidden(HOME, error) from error
        self._builder.add(batch, manifests)
        return batch

    def _plan(self, batch: Batch, user: HomeUser, seat: Seat) -> workspace.WorkspacePlan:
        return workspace.WorkspacePlan(
            workspace={"metadata": {"name": HOME, "annotations": {wellknown.OWNER: user.owner}}},
            parent_cluster="",
            path=user.path,
            cluster=user.cluster,
            resolution=resolve(TYPE, {}, lambda path, name: self._facts.workspace_type(batch, path, name)),
            shard=self._shard,
            find_export=lambda path, name: export_for(batch, self._facts, path, name, user.path),
            now=times.now(),
            new_uid=new_uid,
            generation=str(seat.generation),
        )


def _path(name: str) -> str:
    """Return `user:<name>`; the cluster's name if the user name is not one path segment."""
    return paths.join(PARENT, name) if is_path_segment(name) else hashes.home_cluster_name(name)


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
