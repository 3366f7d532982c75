"""Status return: what the edge reports of an object that went down, written to its copy in the mailbox.

One reconcile an object, so only its latest state is sent. Invariants: what the mailbox has never becomes older, unless
the edge cluster did, by its own answer; only the holder of the mailbox's Lease writes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import Resource
from atoll.machinery.control.queue import Requeue, WorkQueue
from atoll.machinery.control.reconcile_log import note
from atoll.machinery.edge.failures import UNAVAILABLE_CODES, Failure, next_failure, refused
from atoll.machinery.edge.names import EDGE_REVISION, ObjectRef
from atoll.machinery.edge.returns import PutStatus, is_behind, status_return
from atoll.machinery.meta.equality import same
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import ApiError, Conflict, NotFound
from atoll.machinery.process.backoff import Backoff
from atoll.syncer.edge import Edge
from atoll.syncer.mailbox import Mailbox

_SOON = Backoff(0.1, 30.0)


class Returns:
    """Objects to look at are in `queue`; `failures` has what the mailbox refused."""

    def __init__(self, client: Client, mailbox: Mailbox, edge: Edge, is_writer: Callable[[], bool]) -> None:
        self._client, self._mailbox, self._edge, self._is_writer = client, mailbox, edge, is_writer
        self.queue: WorkQueue[ObjectRef] = WorkQueue()
        self.failures: dict[ObjectRef, Failure] = {}
        #: Called with each object that is looked at, None if it went.
        self.looked: Callable[[ObjectRef, Object | None], None] = lambda ref, live: None
        self.writes = 0

    def all(self) -> None:
        """Look at everything."""
        for ref in list(self._edge.refs()):
            self.queue.add(ref)

    async def reconcile(self, ref: ObjectRef) -> Requeue:
        """Write the status of one object, if the mailbox lacks it."""
        live, origin = self._edge.get(ref), self._mailbox.origin(ref)
        self.looked(ref, live)
        held = self._mailbox.held(origin)
        if not self._is_writer() or live is None or held is None or not self._mailbox.carried.lists(ref):
            self.failures.pop(ref, None)
            return None
        write = status_return(origin, live, held, self._edge.uid)
        if write is not None and is_behind(write, held):
            # Only what the cluster itself answers now may be behind.
            live = await self._edge.ask(ref)
            write = status_return(origin, live, held, self._edge.uid) if live is not None else None
        if write is None:
            self.failures.pop(ref, None)
            return None
        try:
            await self._put(write, held.get("status") or {}, held["apiVersion"].rpartition("/")[2])
        except Conflict:
            # The newer object is on its way.
            return _SOON
        except ApiError as error:
            if error.code in UNAVAILABLE_CODES:
                raise
            self.failures[ref] = next_failure(self.failures.get(ref), refused("status", error))
            note(refused=error.message)
            return self.failures[ref].delay_s(ref)
        self.failures.pop(ref, None)
        return None

    async def _put(self, write: PutStatus, before: Any, version: str) -> None:
        ref = write.ref
        resource = Resource(ref.group, version, ref.resource, namespaced=bool(ref.namespace))
        metadata = {"resourceVersion": write.resource_version, "annotations": {EDGE_REVISION: write.edge_revision}}
        patch = {"metadata": metadata, "status": difference(before, write.status)}
        try:
            answer = await self._client.patch(resource, ref.name, patch, ref.namespace, "status")
        except NotFound:
            # A kind without the subresource has its status in the object.
            answer = await self._client.patch(resource, ref.name, patch, ref.namespace)
        self.writes += 1
        note(operation="status")
        self._mailbox.keep(ref, answer)


def difference(before: Any, after: Any) -> Any:
    """Return the merge patch from one value to another."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return after
    removed = {name: None for name in before if name not in after}
    changed = {
        name: difference(before.get(name), value)
        for name, value in after.items()
        if name not in before or not same(before[name], value)
    }
    return removed | changed
