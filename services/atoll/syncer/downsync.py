"""Downsync: one reconcile an object, from what the mailbox wants and what lies at the edge to at most one write.

`plan` decides, with the object, its Namespace, its definition and its owners; this reads them, writes, and remembers.
Objects that wait for a Namespace or a definition are looked at again when it comes. Invariants: only the holder of the
cluster's Lease writes, and nothing that another SyncTarget's syncer keeps; nothing is decided about a kind before it
was read whole; a failing object holds up no other.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable
from itertools import islice

from atoll.machinery.control.queue import Requeue, WorkQueue
from atoll.machinery.control.reconcile_log import note
from atoll.machinery.edge.applied import digest, record_of
from atoll.machinery.edge.categories import goes_to_edge
from atoll.machinery.edge.failures import CONTESTED, UNAVAILABLE_CODES, Failure, next_failure, refused
from atoll.machinery.edge.names import SYNCER, ObjectRef
from atoll.machinery.edge.plan import (
    Action,
    Annotate,
    Apply,
    Delete,
    SyncState,
    Wanted,
    acknowledged,
    adopting,
    is_made_by,
    may_delete,
    plan,
)
from atoll.machinery.edge.syncset import SyncSet
from atoll.machinery.edge.what import is_another_kind
from atoll.machinery.meta.conditions import is_true
from atoll.machinery.meta.objects import Object, conditions_of, owner_references_of, spec_of
from atoll.machinery.meta.status import ApiError
from atoll.machinery.meta.types import CRDS, NAMESPACES
from atoll.machinery.process.backoff import Backoff
from atoll.syncer.contests import Contests, opponent
from atoll.syncer.edge import Edge
from atoll.syncer.kinds import Kind
from atoll.syncer.mailbox import Mailbox, definition_of
from atoll.syncer.others import OtherSyncers
from atoll.syncer.state import State

_NAMESPACES, _DEFINITIONS = (NAMESPACES.group, NAMESPACES.resource), (CRDS.group, CRDS.resource)
#: A conflict or a kind that is not served yet: what changes it is on its way.
_SOON = Backoff(0.05, 30.0)
#: How often to look at what others still use.
_HELD_S = 300.0
#: Revision of keys that wait for another attempt: what was tried does not hold up `applied`.
_TRIED = sys.maxsize

#: Told of an object that was there before and is now carried.
Adopted = Callable[[ObjectRef, Object], None]


class Downsync:
    """Objects to look at are in `queue`; `is_writer` says whether this process may write."""

    def __init__(
        self, mailbox: Mailbox, edge: Edge, state: State, others: OtherSyncers, is_writer: Callable[[], bool]
    ) -> None:
        self._mailbox, self._edge, self._state, self._is_writer = mailbox, edge, state, is_writer
        self._others, self.contests = others, Contests()
        self.queue: WorkQueue[ObjectRef] = WorkQueue()
        self.adopted: Adopted = lambda ref, obj: None
        #: Called with an object that waits for another one, and when it waits for nothing any more.
        self.waits: Callable[[ObjectRef, ObjectRef], None] = lambda ref, needed: None
        self.arrived: Callable[[ObjectRef], None] = lambda ref: None
        #: Called when a kind turns out to be served that is not followed yet.
        self.appeared: Callable[[], None] = lambda: None
        self.applies = self.deletions = 0
        self._waiting: defaultdict[ObjectRef, set[ObjectRef]] = defaultdict(set)

    # --- what is to be looked at

    def wanted(self, ref: ObjectRef, revision: int) -> None:
        """The mailbox has another state of an object."""
        self.queue.add(ref, revision)

    def reconfigured(self, before: SyncSet, revision: int) -> None:
        """Other objects are listed: look at what this changes, and at what may go now."""
        carried = self._mailbox.carried
        known = {*self._mailbox.refs(), *self._edge.refs()}
        refs = [ref for ref in known if carried.lists(ref) != before.lists(ref) or not carried.lists(ref)]
        refs += [ref for ref in known if carried.versions.get(ref.kind) != before.versions.get(ref.kind)]
        self._add(refs, revision)

    def all(self) -> None:
        """Look at everything."""
        self._add([*self._mailbox.refs(), *self._edge.refs()], self._mailbox.revision)

    def live_changed(self, ref: ObjectRef) -> None:
        """An object of the edge changed or went."""
        self.queue.add(ref, self._mailbox.revision)
        if ref.kind == _DEFINITIONS:
            group = ref.name.partition(".")[2]
            self._edge.kinds.forget(group)
        elif ref.namespace:
            # What goes makes room for its Namespace and its definition to go.
            for other in (ObjectRef(*_NAMESPACES, "", ref.namespace), definition_of(ref.kind)):
                if self._edge.get(ref) is None and self._edge.get(other) is not None:
                    self.queue.add(other, self._mailbox.revision)
        self._add(list(self._waiting.pop(ref, ())), self._mailbox.revision)

    def kind_read(self, kind: tuple[str, str]) -> None:
        """A kind was read whole at the edge: what is in its list has arrived, without a change of its own."""
        refs = [ref for ref in (*self._mailbox.refs(), *self._edge.refs()) if ref.kind == kind]
        for needed in [each for each in self._waiting if each.kind == kind]:
            refs += self._waiting.pop(needed)
        self._add(refs, self._mailbox.revision)

    @property
    def applied(self) -> int:
        """The revision of the mailbox up to which everything was tried at the edge."""
        oldest = self.queue.oldest()
        return self._mailbox.revision if oldest is None else min(self._mailbox.revision, oldest - 1)

    def _add(self, refs: list[ObjectRef], revision: int) -> None:
        for ref in sorted(refs, key=lambda ref: (ref.kind != _DEFINITIONS, ref.kind != _NAMESPACES, ref)):
            self.queue.add(ref, revision)

    # --- one object

    async def reconcile(self, ref: ObjectRef) -> Requeue:
        """Bring one object of the edge to what is wanted."""
        if not (self._mailbox.is_complete and self._is_writer() and goes_to_edge(*ref.kind)):
            return None
        try:
            return await self._bring(ref)
        except ApiError as error:
            if error.code in UNAVAILABLE_CODES:
                raise
            # It could not even be looked at.
            self._failed(ref, refused("get", error))
            self._try_again(ref)
            return None

    async def _bring(self, ref: ObjectRef) -> Requeue:
        carried, obj = self._mailbox.carried, self._mailbox.get(ref)
        is_listed = obj is not None and carried.lists(ref)
        if not is_listed and self._edge.get(ref) is None and ref.kind != _NAMESPACES:
            self._state.failures.pop(ref, None)
            return None
        version = carried.versions.get(ref.kind, "") if is_listed else ""
        kind = await self._edge.kind_of(ref, version)
        if kind is None:
            return self._not_served(ref, version)
        if not self._edge.follows(ref.kind):
            self.appeared()
        if not self._edge.is_read(ref.kind):
            # What was not looked at holds `applied` up, but for kinds that the edge refuses to list, which is reported.
            return None if self._edge.is_refused(ref.kind) else _SOON
        if self._waits(ref, is_listed):
            return None
        self.arrived(ref)
        wanted, live = await self._concerned(ref, obj, kind)
        # Whether an attempt is due is asked below: what is not due now has to come back.
        state = SyncState(self._state.syncer, self._state.number, self._state.records)
        actions = [each for each in plan(wanted, live, state, time.time()) if each.ref == ref]
        self._state.number = acknowledged(wanted, state).number
        if not actions:
            if self.contests.rounds(ref):
                # It is as wanted only until it is changed back.
                self.queue.add(ref, _TRIED, self.contests.wait_s(ref))
                return None
            self._state.failures.pop(ref, None)
            if not is_listed:
                self._state.records.pop(ref, None)
                self._look_again(ref, live)
            return None
        if (delay_s := self._put_off_s(actions[0])) > 0:
            self._note_contest(ref, live.get(ref))
            self.queue.add(ref, _TRIED, delay_s)
            return None
        if ref not in live or not await self._is_kept(ref, live[ref], actions[0]):
            for action in actions:
                if not await self._do(kind, action):
                    return _SOON
        self._try_again(ref)
        return None

    async def _is_kept(self, ref: ObjectRef, live: Object, action: Action) -> bool:
        """Whether another syncer keeps an object, which is noted."""
        keeper = await self._others.keeper(live)
        if keeper:
            message = f"the syncer of SyncTarget {keeper} runs at this cluster too and keeps it: delete that syncer"
            self._failed(ref, Failure(_operation(action), "KeptByOther", message, _attempt(action), 1, time.time()))
            note(operation=_operation(action), refused=message)
        return bool(keeper)

    def _look_again(self, ref: ObjectRef, live: dict[ObjectRef, Object]) -> None:
        """Look now and then at a Namespace or definition of ours that what others have in it keeps."""
        if ref.kind in (_NAMESPACES, _DEFINITIONS) and len(live) > 1 and is_made_by(self._state.syncer, ref, live[ref]):
            self.queue.add(ref, _TRIED, _HELD_S)

    def _note_contest(self, ref: ObjectRef, live: Object | None) -> None:
        """Report an object that somebody changes back all the time."""
        rounds, before = self.contests.rounds(ref), self._state.failures.get(ref)
        if rounds and (before is None or before.reason != CONTESTED):
            what = "deletes it" if live is None else f"changes it back (field manager {opponent(live)})"
            message = f"somebody {what} whenever it is applied, which is done once a minute now"
            self._state.failures[ref] = Failure("apply", CONTESTED, message, "", rounds, time.time())
            note(operation="apply", refused=message)

    def _put_off_s(self, action: Action) -> float:
        """Return the seconds until an action that failed, or that somebody undoes each time, is to be tried again."""
        if (wait_s := self.contests.wait_s(action.ref, _attempt(action))) > 0:
            return wait_s
        failure, now_s = self._state.failures.get(action.ref), time.time()
        if failure is not None and failure.reason == CONTESTED:
            return 0.0
        if failure is None or failure.is_due(action.ref, _attempt(action), now_s):
            return 0.0
        return failure.at_s + failure.delay_s(action.ref) - now_s

    def _not_served(self, ref: ObjectRef, version: str) -> Requeue:
        """Wait for the definition of a kind, and say so unless it is on its way."""
        definition = definition_of(ref.kind)
        self._waiting[definition].add(ref)
        if self._mailbox.get(definition) is None:
            message = f"{version} of {definition.name} is not served"
            self._failed(ref, Failure("apply", "NotServed", message, "", 1, time.time()))
            self._try_again(ref)
            return None
        self.waits(ref, definition)
        established = self._edge.get(definition)
        return _SOON if established is not None and is_true(conditions_of(established), "Established") else None

    def _waits(self, ref: ObjectRef, is_listed: bool) -> bool:
        """Whether an object waits for its Namespace or its definition, which are looked at first."""
        if not is_listed:
            return False
        needed = [ObjectRef(*_NAMESPACES, "", ref.namespace)] if ref.namespace else []
        definition = definition_of(ref.kind)
        if self._mailbox.get(definition) is not None and self._mailbox.carried.lists(definition):
            needed.append(definition)
        for each in needed:
            live = self._edge.get(each)
            if live is None:
                self.queue.add(each, self._mailbox.revision)
            elif "deletionTimestamp" not in live["metadata"] and _is_usable(each, live, self._mailbox.get(each)):
                continue
            self._waiting[each].add(ref)
            self.waits(ref, each)
            return True
        return False

    async def _concerned(
        self, ref: ObjectRef, obj: Object | None, kind: Kind
    ) -> tuple[Wanted, dict[ObjectRef, Object]]:
        """Return an object with all that a decision about it needs, in the mailbox and at the edge."""
        refs = {ref, definition_of(ref.kind)}
        if ref.namespace:
            refs.add(ObjectRef(*_NAMESPACES, "", ref.namespace))
        if obj is not None:
            refs |= self._owners(ref, obj)
        if ref.kind == _NAMESPACES:
            inside = (each for each in self._mailbox.refs() if each.namespace == ref.name)
            refs |= set(islice((each for each in inside if self._mailbox.carried.lists(each)), 1))
        wanted = {each: found for each in refs if (found := self._mailbox.get(each)) is not None}
        live = {each: found for each in refs if (found := self._edge.get(each)) is not None}
        carried = self._mailbox.carried
        if ref not in live and obj is not None and carried.lists(ref):
            found = await self._edge.look(kind, ref)
            if found is not None:
                live[ref] = found
        complete = Wanted(wanted, carried, is_complete=True)
        live.update(await self._content(ref, live.get(ref), complete))
        return complete, live

    async def _content(self, ref: ObjectRef, live: Object | None, wanted: Wanted) -> dict[ObjectRef, Object]:
        """Return what is in a Namespace or of a definition that may have to go."""
        if ref.kind not in (_NAMESPACES, _DEFINITIONS) or live is None:
            return {}
        kept = wanted.listed().get(ref)
        if kept is not None and not is_another_kind(kept, live):
            return {}
        state = SyncState(self._state.syncer, self._state.number)
        if not (is_made_by(state.syncer, ref, live) and may_delete(wanted, state)):
            return {}
        if ref.kind == _NAMESPACES:
            return await self._edge.content(ref.name)
        spec = spec_of(live)
        version = next(each["name"] for each in spec["versions"] if each["served"])
        return await self._edge.instances(spec["group"], spec["names"]["plural"], version)

    def _owners(self, ref: ObjectRef, obj: Object) -> set[ObjectRef]:
        """Return the owners of an object that the mailbox has."""
        uids = {each["name"]: each["uid"] for each in owner_references_of(obj)}
        if not uids:
            return set()
        places = [each for each in self._mailbox.refs() if each.namespace in ("", ref.namespace) and each.name in uids]
        found = {each: self._mailbox.get(each) or {"metadata": {}} for each in places}
        return {each for each, owner in found.items() if owner["metadata"].get("uid") == uids[each.name]}

    # --- writing

    async def _do(self, kind: Kind, action: Action) -> bool:
        """Do an action; False if what it was decided on is no more. Raises what says nothing about the object."""
        ref = action.ref
        try:
            if isinstance(action, Apply):
                await self._apply(kind, action)
            elif isinstance(action, Annotate):
                self._edge.keep(ref, await self._edge.annotate(kind, action))
            else:
                await self._edge.delete(kind, action)
                self.deletions += 1
        except ApiError as error:
            if error.code in UNAVAILABLE_CODES:
                raise
            if error.code == 409 and isinstance(action, Delete | Annotate):
                return False
            self._failed(action.ref, refused(_operation(action), error, _attempt(action)))
            note(operation=_operation(action), refused=error.message)
        else:
            note(operation=_operation(action))
            if not self.contests.rounds(ref):
                self._state.failures.pop(ref, None)
        return True

    async def _apply(self, kind: Kind, action: Apply) -> None:
        """Apply, remember what was applied, and mark at once what turns out to be somebody else's."""
        ref, configuration = action.ref, action.configuration
        self._note(kind)
        answer, was_created = await self._edge.apply(kind, configuration)
        self.applies += 1
        self.contests.applied(ref, _attempt(action))
        adopts = action.adopts
        if action.is_new and not was_created:
            configuration, adopts = adopting(configuration), True
            answer, _ = await self._edge.apply(kind, configuration)
        self._state.records[ref] = record_of(configuration, answer, SYNCER)
        self._edge.keep(ref, answer)
        if adopts:
            self.adopted(ref, answer)

    def _note(self, kind: Kind) -> None:
        resource = kind.resource
        if self._state.kinds is not None:
            self._state.kinds.add((resource.group, resource.plural, resource.version))

    def _failed(self, ref: ObjectRef, failure: Failure) -> None:
        self._state.failures[ref] = next_failure(self._state.failures.get(ref), failure)

    def _try_again(self, ref: ObjectRef) -> None:
        """Look at an object that fails when its next attempt is due; meanwhile it counts as tried."""
        if (failure := self._state.failures.get(ref)) is not None:
            self.queue.add(ref, _TRIED, failure.delay_s(ref))


def _is_usable(ref: ObjectRef, live: Object, wanted: Object | None) -> bool:
    """Whether what needs a Namespace or a definition may be applied."""
    if ref.kind != _DEFINITIONS:
        return True
    is_replaced = wanted is not None and is_another_kind(wanted, live)
    return not is_replaced and is_true(conditions_of(live), "Established")


def _operation(action: Action) -> str:
    return type(action).__name__.lower()


def _attempt(action: Action) -> str:
    """Return what tells an attempt from another one: what is written."""
    return digest(action.configuration) if isinstance(action, Apply) else ""


def kinds_to_follow(state: State, carried: SyncSet) -> set[tuple[str, str, str]]:
    """Return group, resource and version of all kinds to follow: what is listed, and what was ever written."""
    listed = {(*kind, version) for kind, version in carried.versions.items() if goes_to_edge(*kind)}
    kinds = {each[:2] for each in listed}
    return listed | {each for each in state.kinds or () if each[:2] not in kinds}
