"""The mailbox controller: one workspace for each SyncTarget, with its bindings and what its syncer reads.

The key is the name of a mailbox. Invariants: a workspace is deleted only with the mark of this controller and a
SyncTarget's UID in it, and only if the shard of the inventory says that there is no such SyncTarget; one that a user
made stays.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import TypeAlias

import structlog

from atoll.edge.changes import Change, ChangeHandler
from atoll.edge.export_view import UNREAD, ExportView
from atoll.edge.heartbeats import Heartbeats
from atoll.edge.kinds import BINDINGS, SYNC_TARGETS, SYNCER_CONFIGS
from atoll.edge.mailbox_bindings import MailboxBindings
from atoll.machinery.client.client import Client
from atoll.machinery.client.informer import Informer, Parts, head, key_of
from atoll.machinery.client.resource import WORKSPACES, Resource
from atoll.machinery.control.queue import Requeue, WorkQueue
from atoll.machinery.edge.names import GROUP, THE_ONE
from atoll.machinery.edge.syncerconfigs import unwritten_list
from atoll.machinery.meta.objects import Object, annotations_of, spec_of, status_of
from atoll.machinery.meta.status import AlreadyExists, Conflict, NotFound
from atoll.machinery.meta.wellknown import CLUSTER

log = structlog.get_logger()

KINDS = (SYNC_TARGETS, SYNCER_CONFIGS)
#: Annotations of a mailbox: name and UID of its SyncTarget.
TARGET_NAME, TARGET_UID = f"{GROUP}/sync-target-name", f"{GROUP}/sync-target-uid"
TYPE = "edge-mailbox"
#: Sets the clusters whose changes a handler is told.
Follow: TypeAlias = Callable[[ChangeHandler, Collection[str]], None]


def mailbox_name(cluster: str, uid: str) -> str:
    """Return the name of the mailbox of a SyncTarget."""
    return f"{cluster}-mb-{uid}"


def kept_workspace(obj: Object) -> Object:
    """Return what counts of a workspace that may be a mailbox: there is one for each edge cluster."""
    marks = {key: value for key, value in annotations_of(obj).items() if key in (TARGET_NAME, TARGET_UID, CLUSTER)}
    found = head(obj, "uid", "deletionTimestamp")
    return {
        "metadata": {**found["metadata"], "annotations": marks},
        "spec": {"cluster": spec_of(obj).get("cluster", "")},
        "status": {"phase": status_of(obj).get("phase", "")},
    }


def _kept_target(obj: Object) -> Object:
    """Return what counts of a SyncTarget here: what heartbeats say of it."""
    return {**head(obj, "uid", "deletionTimestamp"), "status": status_of(obj)}


_KEPT = {SYNC_TARGETS: _kept_target, SYNCER_CONFIGS: head}


def inventory_of(mailbox: str) -> str:
    """Return the logical cluster of the SyncTarget of a mailbox."""
    return mailbox.partition("-mb-")[0]


class Mailboxes:
    """The controller. `parent` is the workspace of all mailboxes, `home` the path of their type.

    As a handler of changes it is told those of mailboxes, and looks at their bindings.
    """

    name = "mailbox-controller"

    def __init__(self, client: Client, parent: str, home: str, export: str, bindings: MailboxBindings) -> None:
        self._home, self._parent = home, client.cluster(parent)
        self._bindings = bindings
        self._follow: Follow | None = None
        self.queue: WorkQueue[str] = WorkQueue()
        #: Logical cluster -> name of the mailbox.
        self._clusters: dict[str, str] = {}
        self.heartbeats = Heartbeats(self._client_of, self._target_in, self._shard_of, self._clusters.keys)
        self.view = ExportView(client, export, KINDS, self._changed, self.heartbeats.follow, _KEPT)
        self.workspaces = Informer(self._parent.reduced(Parts), WORKSPACES, self._workspace_changed, kept_workspace)
        self._targets: dict[str, Object] = {}
        self._workspaces: dict[str, Object] = {}
        self._configured: set[str] = set()

    @property
    def targets(self) -> Mapping[str, Object]:
        """All SyncTargets, by the names of their mailboxes."""
        return self._targets

    def _changed(self, kind: Resource, old: Object | None, new: Object | None) -> None:
        cluster, _, name = key_of(new or old or {})
        if kind == SYNC_TARGETS:
            self._target_changed(cluster, old, new)
            return
        if kind == SYNCER_CONFIGS and name == THE_ONE:
            (self._configured.discard if new is None else self._configured.add)(cluster)
        if kind in (SYNCER_CONFIGS, BINDINGS) and (mailbox := self._clusters.get(cluster)):
            self.queue.add(mailbox)

    def _client_of(self, cluster: str) -> Client | None:
        return self.view.client(cluster)

    def _shard_of(self, cluster: str) -> Client | None:
        return self.view.shard_of(cluster)

    def _target_in(self, cluster: str) -> Object | None:
        """Return the SyncTarget of the mailbox in a logical cluster."""
        return self._targets.get(self._clusters.get(cluster, ""))

    def _target_changed(self, cluster: str, old: Object | None, new: Object | None) -> None:
        for each in (old, new):
            if each is not None:
                name = mailbox_name(cluster, each["metadata"]["uid"])
                self._targets.pop(name, None)
                self.queue.add(name)
        if new is not None and "deletionTimestamp" not in new["metadata"]:
            name = mailbox_name(cluster, new["metadata"]["uid"])
            self._targets[name] = new
            if mailbox := spec_of(self._workspaces.get(name, {})).get("cluster"):
                self.heartbeats.queue.add(mailbox)

    def _workspace_changed(self, old: Object | None, new: Object | None) -> None:
        found = new or old or {}
        name, cluster = found["metadata"]["name"], spec_of(found).get("cluster")
        if new is not None:
            self._workspaces[name] = new
        else:
            self._workspaces.pop(name, None)
        if cluster and new is not None:
            self._clusters[cluster] = name
            self.heartbeats.queue.add(cluster)
        elif cluster:
            self._clusters.pop(cluster, None)
            self._bindings.changed(cluster)
        self._follow_all()
        self.queue.add(name)

    # --- changes of what is in mailboxes

    def start(self, follow: Follow) -> None:
        """Be told of changes of mailboxes from now on."""
        self._follow = follow
        self._follow_all()

    def _follow_all(self) -> None:
        if self._follow is not None and self._bindings.exports:
            self._follow(self, set(self._clusters))

    @property
    def is_idle(self) -> bool:
        """Whether all that was told is done."""
        return not len(self.queue)

    def reread(self, shard: str) -> None:
        """The bindings of any mailbox may have changed."""
        for cluster in self._clusters:
            self._look(cluster)

    def changed(self, change: Change) -> None:
        """An object of a mailbox changed."""
        if (change.group, change.resource) == (BINDINGS.group, BINDINGS.plural):
            self._look(change.cluster)

    def _look(self, cluster: str) -> None:
        self._bindings.changed(cluster)
        if name := self._clusters.get(cluster):
            self.queue.add(name)

    async def synced(self) -> None:
        """Wait until everything that a decision needs was seen."""
        await self.view.complete.wait()
        await self.workspaces.synced.wait()

    def keys(self) -> Collection[str]:
        """All mailboxes that are, or should be."""
        return self._targets.keys() | self._workspaces.keys()

    async def reconcile(self, name: str) -> Requeue:
        """Create, fill or delete a mailbox."""
        target, workspace = self._targets.get(name), self._workspaces.get(name)
        if target is None:
            return await self._remove(workspace)
        if workspace is None:
            await self._create(name, target)
        elif status_of(workspace).get("phase") == "Ready" and "deletionTimestamp" not in workspace["metadata"]:
            cluster = spec_of(workspace)["cluster"]
            await self._fill(cluster)
            return None if await self._bindings.ensure(cluster) else UNREAD
        return None

    async def _remove(self, workspace: Object | None) -> Requeue:
        if workspace is None or "deletionTimestamp" in workspace["metadata"] or not is_mailbox(workspace):
            return None
        metadata = workspace["metadata"]
        if not self.view.has_read(inventory_of(metadata["name"])):
            log.warning("mailbox of an inventory that is not read is kept", mailbox=metadata["name"])
            return UNREAD
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": metadata["uid"]}}
        try:
            await self._parent.request("DELETE", WORKSPACES.path(name=metadata["name"]), body=body)
        except (NotFound, Conflict):
            return None
        log.info("mailbox deleted", mailbox=metadata["name"])
        return None

    async def _create(self, name: str, target: Object) -> None:
        metadata = target["metadata"]
        annotations = {TARGET_NAME: metadata["name"], TARGET_UID: metadata["uid"]}
        workspace = {
            "apiVersion": "tenancy.kcp.io/v1alpha1",
            "kind": "Workspace",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"type": {"name": TYPE, "path": self._home}},
        }
        try:
            await self._parent.create(WORKSPACES, workspace)
        except AlreadyExists:
            return
        log.info("mailbox created", mailbox=name)

    async def _fill(self, cluster: str) -> None:
        """Create the SyncerConfig, once the mailbox binds the export.

        It is not whole before the translator wrote it: an edge cluster whose mailbox was lost would delete all it has.
        """
        inside = self.view.client(cluster)
        if inside is None or cluster in self._configured:
            return
        with suppress(AlreadyExists):
            await inside.create(SYNCER_CONFIGS, unwritten_list())


def is_mailbox(workspace: Object) -> bool:
    """Whether a workspace was made by this controller: its name has the UID in its mark."""
    annotations: Mapping[str, str] = annotations_of(workspace)
    uid = annotations.get(TARGET_UID)
    marked = bool(uid) and TARGET_NAME in annotations
    return marked and str(workspace["metadata"]["name"]).endswith(f"-mb-{uid}")
