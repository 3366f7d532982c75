"""Home workspaces: `GET workspaces/~` in root returns the caller's home workspace, created on first use.

`resources` calls it for the name `~`. A home is a logical cluster without a Workspace object; its name is a hash of the
user name. Unlike kcp, the shard creates it in one submit and returns it at once if only system initializers remain.
Invariant: a home is returned only to the user for whom it was created.
"""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import suppress

from atoll.machinery.apiserver.authorization import refusal
from atoll.machinery.apiserver.authorization.attributes import attributes_of, with_verb
from atoll.machinery.apiserver.authorization.effective_users import in_scope
from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.call.call import Call, Reply, View
from atoll.machinery.apiserver.rest import present
from atoll.machinery.apiserver.writing.batch import Batch
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.kcp.workspaces import workspace
from atoll.machinery.kcp.workspaces.workspacetypes import TypeReference, TypeRefused, forbidden, resolve
from atoll.machinery.meta import hashes, paths, times, wellknown
from atoll.machinery.meta.names import ROOT, ObjectKey, is_path_segment
from atoll.machinery.meta.objects import Object, decode, encode_json, labels_of, spec_of, status_of
from atoll.machinery.meta.status import AlreadyExists, Details, TooManyRequests
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.meta.uids import new_uid
from atoll.machinery.meta.user import User, is_service_account
from atoll.machinery.process.retry import ATTEMPTS
from atoll.machinery.storage.contract import Snapshot
from atoll.shard.admission.workspaces import owner_annotation
from atoll.tenancy.cluster_builder import ClusterBuilder, export_for
from atoll.tenancy.lookups import Lookups

HOME, PARENT = "~", "user"
TYPE = TypeReference("home", ROOT)


class Homes:
    """Serves `~`. New homes are placed on `shard`, which is this one."""

    def __init__(self, loopback: Loopback, facts: Lookups, shard: workspace.Shard) -> None:
        self._loopback, self._facts, self._shard = loopback, facts, shard
        self._builder = ClusterBuilder(loopback, facts)

    def serve(self, call: Call, snapshot: Snapshot) -> Reply | Awaitable[Reply]:
        """Return the caller's home as a Workspace.

        Raises NotFound outside root, Forbidden, and TooManyRequests while its initializers run.
        """
        if call.cluster != ROOT:
            raise errors.not_found(call.kind, HOME)
        if is_service_account(call.user.name) or not in_scope(call.user, ROOT):
            # The same service account name is another account in each workspace.
            raise errors.forbidden(call.kind, HOME, "only users of the whole installation have a home workspace")
        found = _home_of(snapshot, call.user)
        if found is not None:
            return _home_workspace(call, found)
        if not call.may("create"):
            create = with_verb(attributes_of(call.info, call.user, ROOT), "create")
            raise refusal.forbidden(create, refusal.WORKSPACE_ACCESS_NOT_PERMITTED)
        return self._create(call)

    async def _create(self, call: Call) -> Reply:
        for _ in range(ATTEMPTS):
            # If another request of the same user created the home, return that one; if an object that the home's
            # bindings need was written concurrently, try again.
            with suppress(AlreadyExists):
                await self._batch(call).try_submit()
            with self._loopback.store.snapshot() as snapshot:
                home = _home_of(snapshot, call.user)
            if home is not None:
                return _home_workspace(call, home)
        raise errors.not_found(call.kind, HOME)

    def _batch(self, call: Call) -> Batch:
        """Return a batch with all objects of a new home."""
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


def _home_of(view: View, user: User) -> Object | None:
    record = view.get(ObjectKey(LOGICAL_CLUSTERS, hashes.home_cluster_name(user.name), "", wellknown.SINGLETON))
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
