"""Reported states: how often an object runs, and the status of its only copy, where a placement wants it.

The controller `ReportedStates` writes them into workspaces. Keys are objects. Invariants: what was written is taken
back once nobody wants it, or the number is another one; an object that is gone is never made by it, as the account may
not create.
"""

from __future__ import annotations

from typing import NamedTuple

from atoll.edge.edge_data import Clusters
from atoll.edge.placement_translator.contents import Contents
from atoll.edge.placement_translator.records import CopyRecords
from atoll.edge.placement_translator.topology import Topology
from atoll.machinery.client.resource import Resource
from atoll.machinery.control.queue import Requeue, WorkQueue
from atoll.machinery.edge.applied import is_in_force
from atoll.machinery.edge.categories import returns_status
from atoll.machinery.edge.names import TRANSLATOR, ObjectRef
from atoll.machinery.edge.returns import singleton_configurations
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import Conflict, Forbidden, NotFound
from atoll.machinery.process.backoff import Backoff

#: When to look again at what may not be written.
REFUSED = Backoff(5.0, 300.0)


class ReportedKey(NamedTuple):
    """An object of a workspace."""

    cluster: str
    ref: ObjectRef


class ReportedStates:
    """The controller."""

    name = "placement-translator-reported-states"

    def __init__(self, base: Clusters, topology: Topology, contents: Contents, records: CopyRecords) -> None:
        self._base, self._topology, self._contents, self._records = base, topology, contents, records
        self.queue: WorkQueue[ReportedKey] = WorkQueue(in_turn=True)
        #: What has a reported state, by workspace, with its version.
        self._reported: dict[str, dict[ObjectRef, str]] = {}

    def look(self, cluster: str, ref: ObjectRef) -> None:
        """The wish for an object's state, its destinations, or the state itself may have changed."""
        content = self._contents.get(cluster)
        item = content.items.get(ref) if content is not None else None
        if (item is not None and item.selection.wants_singleton) or ref in self._reports(cluster):
            self.queue.add(ReportedKey(cluster, ref))

    def look_at_all(self, cluster: str) -> None:
        """Look at all of a workspace."""
        content = self._contents.get(cluster)
        for ref in [*(content.items if content is not None else ()), *self._reports(cluster)]:
            self.look(cluster, ref)

    def _reports(self, cluster: str) -> dict[ObjectRef, str]:
        if cluster not in self._reported:
            self._reported[cluster] = self._records.reported(cluster)
        return self._reported[cluster]

    async def synced(self) -> None:
        """Wait until all placements and mailboxes were seen."""
        await self._topology.complete.wait()

    async def reconcile(self, key: ReportedKey) -> Requeue:
        """Write or take back a reported state."""
        cluster, ref = key
        content = self._contents.get(cluster)
        item = content.items.get(ref) if content is not None else None
        is_wanted = item is not None and item.selection.wants_singleton and returns_status(*ref.kind)
        mailboxes = self._topology.mailboxes(cluster, item.selection.placements) if item is not None else set()
        version = item.version if item is not None else self._reports(cluster).get(ref, "")
        if not version:
            return None
        resource = Resource(ref.group, version, ref.resource, bool(ref.namespace))
        try:
            source = await self._base.cluster(cluster).get(resource, ref.name, ref.namespace)
            copy = await self._copy(ref, mailboxes) if is_wanted else None
            await self._write(cluster, resource, source, (len(mailboxes) if is_wanted else None, copy))
        except (NotFound, Conflict):
            is_wanted = False
        except Forbidden:
            return REFUSED
        self._take_down(cluster, ref, version if is_wanted else "")
        await self._records.flush()
        return None

    def _take_down(self, cluster: str, ref: ObjectRef, version: str) -> None:
        reported = self._reports(cluster)
        if reported.get(ref, "") == version:
            return
        self._records.put_reported(cluster, ref, version)
        if version:
            reported[ref] = version
        else:
            reported.pop(ref, None)

    async def _copy(self, ref: ObjectRef, mailboxes: set[str]) -> Object | None:
        if len(mailboxes) != 1:
            return None
        (mailbox,) = mailboxes
        record = self._records.get(mailbox, ref)
        if record is None:
            return None
        resource = Resource(ref.group, record.version, ref.resource, bool(ref.namespace))
        try:
            return await self._base.cluster(mailbox).get(resource, ref.name, ref.namespace)
        except NotFound:
            return None

    async def _write(
        self, cluster: str, resource: Resource, source: Object, state: tuple[int | None, Object | None]
    ) -> None:
        client, found = self._base.cluster(cluster), singleton_configurations(source, *state)
        # With its uid it is this object and no other of the same name.
        identity = {"uid": source["metadata"]["uid"]}
        for configuration, subresource in ((found.metadata, ""), (found.status, "status")):
            if not is_in_force(configuration, source, TRANSLATOR, subresource=subresource):
                body = {**configuration, "metadata": {**configuration["metadata"], **identity}}
                await client.apply(resource, body, subresource=subresource, manager=TRANSLATOR)
