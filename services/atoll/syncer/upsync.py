"""Upsync: objects of the edge that the mailbox asks for, as copies there, with their status.

One reconcile an object: `machinery.edge.upsync.plan_upsync` decides, this reads and writes. Invariants: only what
came up is ever written or deleted; a copy goes when its object or the wish for it is gone, also while no syncer ran;
copies are bounded, those that are up already stay, and what is left out is reported.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from msgspec.structs import replace

from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import Resource
from atoll.machinery.control.queue import Requeue, WorkQueue
from atoll.machinery.control.reconcile_log import note
from atoll.machinery.edge.categories import comes_up
from atoll.machinery.edge.failures import UNAVAILABLE_CODES, Failure, next_failure, refused
from atoll.machinery.edge.names import ASSOCIATED_WITH, UPSYNCED, ObjectRef, mark
from atoll.machinery.edge.placements import ANY, UpsyncSet
from atoll.machinery.edge.syncset import SyncSet
from atoll.machinery.edge.system_objects import is_system_object
from atoll.machinery.edge.upsync import BOUNDS, Bounds, DeleteCopy, PutCopy, plan_upsync, upsync_copy
from atoll.machinery.meta.objects import Object, annotations_of, encode_json
from atoll.machinery.meta.status import AlreadyExists, ApiError, Conflict, Forbidden, NotFound
from atoll.machinery.process.backoff import Backoff
from atoll.syncer.associated_copies import AssociatedCopies
from atoll.syncer.edge import NAMESPACE_KIND, Edge
from atoll.syncer.kinds import Kinds
from atoll.syncer.mailbox import Mailbox
from atoll.syncer.packed import pack, unpack
from atoll.syncer.room import Room
from atoll.syncer.state import State

_SOON = Backoff(0.1, 30.0)


class Upsync:
    """Objects to look at are in `queue`; `failures` has what did not come up."""

    def __init__(
        self,
        client: Client,
        mailbox: Mailbox,
        edge: Edge,
        state: State,
        is_writer: Callable[[], bool],
        bounds: Bounds = BOUNDS,
    ) -> None:
        self._client, self._mailbox, self._edge = client, mailbox, edge
        self._state, self._is_writer = state, is_writer
        self.queue: WorkQueue[ObjectRef] = WorkQueue()
        self.failures: dict[ObjectRef, Failure] = {}
        self.writes = 0
        #: The copies as the mailbox answered them.
        self._held: dict[ObjectRef, bytes] = {}
        self._room = Room(bounds)
        #: Associated objects that come up beside what sets ask for.
        self.copies = AssociatedCopies()

    def all(self) -> None:
        """Look at everything, first at what is up."""
        copies = self._state.copies
        self._room.hold(copies)
        for ref in sorted({*self._edge.refs(), *copies, *self.failures}, key=lambda each: (each not in copies, each)):
            self.changed(ref)

    def changed(self, ref: ObjectRef) -> None:
        """Look at an object, if it comes up or did, or should have."""
        if (
            ref in self._state.copies
            or ref in self.failures
            or (comes_up(*ref.kind) and self._carried(ref).comes_up(ref))
        ):
            self.queue.add(ref)

    def _carried(self, ref: ObjectRef) -> SyncSet:
        """Return what is carried, with an associated object that comes up."""
        carried = self._mailbox.carried
        if self.copies.placed(ref) is None or carried.comes_up(ref):
            return carried
        one = UpsyncSet(ref.group, (ref.resource,), (ref.namespace,), (ref.name,))
        return replace(carried, upsync=(*carried.upsync, one))

    def _marked(self, ref: ObjectRef, live: Object | None) -> Object | None:
        """Return an object of the edge with the mark of the placed one for which it comes up, and of no other."""
        placed = self.copies.placed(ref)
        of = self._mailbox.get(placed) if placed is not None else None
        annotations = annotations_of(live) if live is not None else {}
        if live is None or (of is None and ASSOCIATED_WITH not in annotations):
            return live
        kept = {key: value for key, value in annotations.items() if key != ASSOCIATED_WITH}
        marks = {ASSOCIATED_WITH: mark(of, placed)} if of is not None and placed is not None else {}
        return {**live, "metadata": {**live["metadata"], "annotations": {**kept, **marks}}}

    async def reconcile(self, ref: ObjectRef) -> Requeue:
        """Bring one copy to what the edge has."""
        carried, live = self._carried(ref), self._marked(ref, self._edge.get(ref))
        if not (self._is_writer() and self._mailbox.is_complete):
            return None
        if carried.comes_up(ref) and not self._edge.is_read(ref.kind):
            return None
        if any(each.copies(*ref.kind) for each in carried.associated) and not self._is_decided(ref, live):
            return None
        is_wanted = live is not None and carried.comes_up(ref) and not is_system_object(ref, live)
        version = live["apiVersion"].rpartition("/")[2] if live is not None else ""
        version = self._state.copies.get(ref, version if is_wanted else "")
        if not version:
            self._done(ref, is_gone=live is None or not carried.comes_up(ref))
            return None
        resource = Resource(ref.group, version, ref.resource, namespaced=bool(ref.namespace))
        if live is not None and is_wanted and not self._has_room(ref, live):
            return None
        try:
            return await self._bring(ref, resource, live)
        except AlreadyExists:
            return self._name_taken(ref)
        except Conflict:
            self._held.pop(ref, None)
            return _SOON
        except ApiError as error:
            if error.code in UNAVAILABLE_CODES:
                raise
            return self._failed(ref, refused("upsync", error))

    def _is_decided(self, ref: ObjectRef, live: Object | None) -> bool:
        """Whether it is known that an associated object comes up, or that it does not."""
        if not self._edge.is_read(ref.kind):
            return False
        return live is None or self.copies.placed(ref) is not None or self.copies.is_complete

    async def _bring(self, ref: ObjectRef, resource: Resource, live: Object | None) -> Requeue:
        held = await self._read(ref, resource)
        carried = self._carried(ref)
        at_edge, in_mailbox = ({ref: each} if each is not None else {} for each in (live, held))
        plan = plan_upsync(carried, at_edge, in_mailbox, self._edge.uid)
        if plan.behind:
            # Only what the cluster itself answers now may be behind.
            live = self._marked(ref, await self._edge.ask(ref))
            at_edge = {ref: live} if live is not None else {}
            plan = plan_upsync(carried, at_edge, in_mailbox, self._edge.uid, is_current=True)
        if plan.taken:
            return self._name_taken(ref)
        for write in plan.writes:
            if isinstance(write, PutCopy):
                await self._put(resource, write)
            else:
                await self._delete(resource, write)
        self._done(ref, is_gone=live is None or not carried.comes_up(ref))
        return None

    def _done(self, ref: ObjectRef, *, is_gone: bool) -> None:
        """`is_gone` says what was brought: an object that went meanwhile has a copy, which is looked at again."""
        self.failures.pop(ref, None)
        if is_gone:
            self._forget(ref)

    def _name_taken(self, ref: ObjectRef) -> float:
        self._forget(ref)
        message = "the mailbox has an object of this name that did not come up"
        return self._failed(ref, Failure("upsync", "NameTaken", message, "", 1, time.time()))

    def _failed(self, ref: ObjectRef, failure: Failure) -> float:
        self.failures[ref] = next_failure(self.failures.get(ref), failure)
        note(refused=failure.message)
        return self.failures[ref].delay_s(ref)

    def _has_room(self, ref: ObjectRef, live: Object) -> bool:
        """Whether an object is within the bounds; it is counted then, and reported otherwise."""
        if self._room.take(ref, len(encode_json(upsync_copy(ref, live, self._edge.uid)))):
            return True
        bounds = self._room.bounds
        message = f"at most {bounds.objects} objects and {bounds.size_bytes} bytes come up"
        self._failed(ref, Failure("upsync", "TooMany", message, "", 1, time.time()))
        return False

    def _forget(self, ref: ObjectRef) -> None:
        self._state.copies.pop(ref, None)
        self._held.pop(ref, None)
        for each in self._room.free(ref):
            self.queue.add(each)

    async def _read(self, ref: ObjectRef, resource: Resource) -> Object | None:
        """Return the copy in the mailbox, None if there is none: what did not come up nobody sees there."""
        if ref in self._held:
            return unpack(self._held[ref])
        try:
            return await self._client.get(resource, ref.name, ref.namespace)
        except (Forbidden, NotFound):
            return None

    async def _put(self, resource: Resource, write: PutCopy) -> None:
        ref, obj = write.ref, write.obj
        # Noted first: a copy that nobody remembers would stay for ever.
        self._state.copies[ref] = resource.version
        if write.resource_version:
            metadata = {**obj["metadata"], "resourceVersion": write.resource_version}
            answer = await self._client.update(resource, {**obj, "metadata": metadata})
        else:
            answer = await self._create(resource, obj)
        if "status" in obj and answer.get("status") != obj["status"]:
            # A kind may have no status of its own, or none in the mailbox.
            with contextlib.suppress(NotFound):
                answer = await self._client.update(resource, {**answer, "status": obj["status"]}, "status")
        self.writes += 1
        note(operation="put")
        self._held[ref] = pack(answer)

    async def _create(self, resource: Resource, obj: Object) -> Object:
        """Create a copy, and its Namespace if it lacks."""
        try:
            return await self._client.create(resource, obj)
        except NotFound as error:
            namespace = obj["metadata"].get("namespace", "")
            if not namespace or error.details.kind != "namespaces":
                raise
        metadata = {"name": namespace, "annotations": {UPSYNCED: f"Namespace//{namespace}"}}
        bare: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        await self._client.create(NAMESPACE_KIND, bare)
        return await self._client.create(resource, obj)

    async def _delete(self, resource: Resource, write: DeleteCopy) -> None:
        conditions = {"uid": write.uid, "resourceVersion": write.resource_version}
        # A copy of a Pod is one that nobody stops: with a grace period it would stay for ever.
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": conditions, "gracePeriodSeconds": 0}
        try:
            await self._client.request("DELETE", resource.path(write.ref.namespace, write.ref.name), None, options)
        except NotFound:
            return
        self.writes += 1
        note(operation="delete")


async def copies_of(client: Client, resource: Resource) -> dict[ObjectRef, str]:
    """Return what the mailbox has of a kind that came up, with its version: nothing where the kind is not served."""
    found = {}
    try:
        async for page in client.pages(resource, limit="250"):
            for item in page["items"]:
                metadata = item["metadata"]
                ref = ObjectRef(resource.group, resource.plural, metadata.get("namespace", ""), metadata["name"])
                if UPSYNCED in annotations_of(item):
                    found[ref] = resource.version
    except (Forbidden, NotFound):
        return {}
    return found


async def upsynced_kinds(mailbox: Mailbox, kinds: Kinds) -> tuple[dict[tuple[str, str], Resource], bool]:
    """Return what is served at the edge of the kinds that the mailbox asks for, and whether nothing can be added.

    Discovery lags behind definitions, and of those that others make the syncer is not told.
    """
    found, is_whole = {}, True
    rules = [rule for each in mailbox.carried.associated for rule in each.rules if rule.copies]
    for rule in rules:
        whole = await kinds.find(*rule.kind, await kinds.preferred(rule.group))
        if whole is not None and "watch" in whole.verbs and comes_up(*rule.kind):
            found[rule.kind] = whole.resource
    for each in mailbox.carried.upsync:
        version = await kinds.preferred(each.api_group)
        served = await kinds.version(each.api_group, version) if version else {}
        if not served.keys() >= {*each.resources}:
            kinds.forget(each.api_group)
            is_whole = False
        for name, kind in served.items():
            is_asked_for = name in each.resources or ANY in each.resources
            if is_asked_for and "watch" in kind.verbs and comes_up(each.api_group, name):
                found[each.api_group, name] = kind.resource
    return found, is_whole
