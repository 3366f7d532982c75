"""Writes of Workspaces: state, the reason for waiting, and removal of our finalizer.

Used by the controllers of this package. A conflicting write is dropped: the newer state has a log entry, which enqueues
the key again.
"""

from __future__ import annotations

from atoll.controllers.event_recorder import Warning, warn
from atoll.controllers.workspaces import workspace_deletion
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.writing.batch import LOST
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.kcp.workspaces import workspace
from atoll.machinery.meta import times
from atoll.machinery.meta.conditions import ERROR, FALSE, Condition, with_conditions
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.meta.objects import Object, status_of
from atoll.machinery.meta.status import NotFound

COMPONENT = "kcp-workspace"


class WorkspaceWriter:
    """Writes of one controller. `type` is that of Workspaces."""

    def __init__(self, loopback: Loopback, type: ResourceType) -> None:
        self.loopback, self.type = loopback, type

    def target(self, view: View, parent: str, obj: Object) -> Target:
        """Return the write target of a Workspace."""
        kind = self.loopback.core.catalogs.of(view, parent).of_type(self.type)
        if kind is None:
            raise RuntimeError("the parent does not serve workspaces any more")
        return Target(kind, parent, "", obj["metadata"]["name"])

    def target_now(self, parent: str, obj: Object) -> Target:
        """Return the write target of a Workspace, resolved in the latest state."""
        with self.loopback.store.snapshot() as snapshot:
            return self.target(snapshot, parent, obj)

    async def update(self, parent: str, obj: Object, changed: Object) -> Object | None:
        """Write a Workspace with its status. Returns the stored object; None if another one wrote it."""
        if changed == obj:
            return obj
        return await self.loopback.try_update(self.target_now(parent, obj), changed, whole=True)

    async def refuse(self, parent: str, obj: Object, reason: str, message: str) -> None:
        """Write why a Workspace is not scheduled to its condition, and record a warning Event."""
        changed = waiting(obj, reason, message)
        if changed is obj:
            return
        await self.update(parent, obj, changed)
        kind = self.target_now(parent, obj).kind
        await warn(self.loopback, kind, obj, Warning(reason, message, COMPONENT, f"{reason}/{message}"))

    async def release(self, parent: str, obj: Object, route: str = "") -> None:
        """Remove our finalizer from a terminating Workspace, and the route of the cluster `route` unless empty."""
        batch = self.loopback.batch()
        try:
            workspace_deletion.release(batch, self.target(batch, parent, obj))
            if route:
                known = batch.replicas.route_of(route)
                batch.route(route, "", known.generation if known is not None else 0)
            await batch.submit()
        except (NotFound, *LOST):
            return


def waiting(obj: Object, reason: str, message: str) -> Object:
    """Return the Workspace with the reason why it is not scheduled; the same object if it has it already."""
    status = status_of(obj)
    condition = Condition(workspace.SCHEDULED, FALSE, reason, message, ERROR)
    desired = with_conditions(status, times.now(), condition)
    return obj if desired == status else {**obj, "status": {"phase": "Scheduling", **desired}}
