"""Home workspaces: `GET workspaces/~` in root, by anybody, gives a workspace of their own, made on first use.

`resources` calls it for the name `~`. A home is a logical cluster without a Workspace object; its name follows from the
user's, so nothing has to be looked up. Unlike kcp's, it is made in one submit and answered at once where its
initializers are the system's own. Invariant: a home is shown to nobody but whom it was made for.
"""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import suppress

from atoll.machinery.apiserver.authorization.effective_users import in_scope, is_service_account
from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.call.call import Call, Reply, View
from atoll.machinery.apiserver.rest import present
from atoll.machinery.apiserver.writing.batch import Batch
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.kcp.workspaces import workspace
from atoll.machinery.kcp.workspaces.workspacetypes import TypeReference, TypeRefused, forbidden, resolve
from atoll.machinery.meta import hashes, paths, times, wellknown
from atoll.machinery.meta.names import ROOT, ObjectKey, is_path_segment
from atoll.machinery.meta.objects import Object, decode, encode_json
from atoll.machinery.meta.status import AlreadyExists, Details, TooManyRequests
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.meta.uids import new_uid
from atoll.machinery.meta.user import User
from atoll.machinery.storage import contract
from atoll.machinery.storage.contract import Snapshot
from atoll.shard.admission.workspaces import owner_annotation
from atoll.tenancy.cluster_builder import ClusterBuilder, export_for
from atoll.tenancy.lookups import Lookups

HOME, PARENT = "~", "user"
TYPE = TypeReference("home", ROOT)
#: How often a home is planned where others write first.
ATTEMPTS = 4


class Homes:
    """Answers for `~`. `shard` hosts the homes that are made."""

    def __init__(self, loopback: Loopback, facts: Lookups, shard: workspace.Shard) -> None:
        self._loopback, self._facts, self._shard = loopback, facts, shard
        self._building = ClusterBuilder(loopback, facts)

    def serve(self, call: Call, snapshot: Snapshot) -> Reply | Awaitable[Reply]:
        """The caller's home, as a Workspace.

        Raises NotFound outside root, Forbidden, and TooManyRequests while initializers work in it.
        """
        if call.cluster != ROOT:
            raise errors.not_found(call.kind, HOME)
        if is_service_account(call.user.name) or not in_scope(call.user, ROOT):
            # Their names mean somebody else in every workspace.
            raise errors.forbidden(call.kind, HOME, "only users of the whole installation have a home workspace")
        found = _home_of(snapshot, call.user)
        if found is not None:
            return _shown(call, found)
        if not call.may("create"):
            raise errors.forbidden(call.kind, HOME, "no permission to create a home workspace")
        return self._made(call)

    async def _made(self, call: Call) -> Reply:
        for _ in range(ATTEMPTS):
            # Where another request of the same user came first, what it made is the answer; where what comes with the
            # home's bindings was written meanwhile, the home is made again.
            with suppress(
                AlreadyExists,
                contract.ObjectExists,
                contract.RevisionConflict,
                contract.ObjectMissing,
                contract.GuardFailed,
            ):
                await self._planned(call).submit()
            with self._loopback.store.snapshot() as snapshot:
                made = _home_of(snapshot, call.user)
            if made is not None:
                return _shown(call, made)
        raise errors.not_found(call.kind, HOME)

    def _planned(self, call: Call) -> Batch:
        """A batch with all of a home."""
        batch = self._loopback.batch()
        try:
            manifests = workspace.build(self._plan(batch, call.user))
        except TypeRefused as error:
            raise forbidden(HOME, error) from error
        self._building.add(batch, manifests)
        return batch

    def _plan(self, batch: Batch, user: User) -> workspace.WorkspacePlan:
        return workspace.WorkspacePlan(
            workspace={"metadata": {"name": HOME, "annotations": {wellknown.OWNER: owner_annotation(user)}}},
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
    """`user:<name>`; the cluster's own name for whom that would be no path, or one below the home of another."""
    return paths.join(PARENT, name) if is_path_segment(name) else hashes.home_cluster_name(name)


def _home_of(view: View, user: User) -> Object | None:
    record = view.get(ObjectKey(LOGICAL_CLUSTERS, hashes.home_cluster_name(user.name), "", wellknown.SINGLETON))
    return decode(record.value) if record is not None else None


def _shown(call: Call, cluster: Object) -> Reply:
    """A home's LogicalCluster as the Workspace that there is not."""
    owner = ((cluster.get("spec") or {}).get("createdBy") or {}).get("username")
    status, metadata = cluster.get("status") or {}, cluster["metadata"]
    if owner != call.user.name:
        raise errors.forbidden(call.kind, HOME, "the home workspace belongs to somebody else")
    if status.get("phase") != "Ready":
        raise TooManyRequests("Creating the home workspace", Details(retry_after_s=1))
    found: Object = {
        "apiVersion": call.kind.api_version,
        "kind": call.kind.kind,
        "metadata": {
            "name": metadata["name"],
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            "creationTimestamp": metadata["creationTimestamp"],
            "labels": metadata.get("labels") or {},
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
