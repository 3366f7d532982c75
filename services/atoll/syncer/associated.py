"""AssociatedStates: how what an edge cluster makes of placed objects fares, as one object a placed one in the mailbox.

Rules of SyncerConfigs name the kinds, each of which has one watch of the whole cluster, of metadata where that
suffices. One reconcile a placed object, at most once in BATCH_S. Invariants: nothing is written before every kind that
a state is made of was read; what was written and says the same is not written again; a state of nothing goes.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Iterator

from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import Resource
from atoll.machinery.control.queue import Requeue, WorkQueue
from atoll.machinery.control.reconcile_log import note
from atoll.machinery.edge.associated import Rule
from atoll.machinery.edge.associated_states import (
    STATES,
    Observed,
    associated_state,
    content_of,
    since_of,
    state_key,
    subject_of,
)
from atoll.machinery.edge.categories import comes_up
from atoll.machinery.edge.failures import Failure
from atoll.machinery.edge.names import VERSION, ObjectRef
from atoll.machinery.meta import times
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import AlreadyExists, Conflict, NotFound
from atoll.machinery.process.backoff import Backoff
from atoll.syncer.associated_copies import AssociatedCopies
from atoll.syncer.associated_index import AssociatedIndex
from atoll.syncer.associated_kind import AssociatedKind, Needs
from atoll.syncer.edge import Edge
from atoll.syncer.mailbox import Mailbox

#: How long a state waits for more changes.
BATCH_S = 1.0
_STATES = Resource(STATES[0], VERSION, STATES[1])
_SOON = Backoff(0.1, 30.0)
#: Stands for all states that are in the mailbox.
_EVERY = ObjectRef("", "", "", "")


class Associated:
    """Placed objects to look at are in `queue`; `failures` has the kinds that the cluster does not let be read."""

    def __init__(self, client: Client, mailbox: Mailbox, edge: Edge, is_writer: Callable[[], bool]) -> None:
        self._client, self._mailbox, self._edge, self._is_writer = client, mailbox, edge, is_writer
        self.queue: WorkQueue[ObjectRef] = WorkQueue()
        self.writes = 0
        self._index, self.copies = AssociatedIndex(), AssociatedCopies()
        self._kinds: dict[tuple[str, str], AssociatedKind] = {}
        self._lacking: dict[tuple[str, str], Failure] = {}
        #: States that are in the mailbox, by what they are about; None until they were read.
        self._held: dict[ObjectRef, Object] | None = None
        self._reading = asyncio.Lock()

    @property
    def failures(self) -> dict[ObjectRef, Failure]:
        """The kinds that are asked for and cannot be followed, as references without a name."""
        if not self._kinds and not self._lacking:
            return {}
        refused = {kind: each.refusal for kind, each in self._kinds.items() if each.refusal is not None}
        return {ObjectRef(*kind, "", ""): each for kind, each in {**self._lacking, **refused}.items()}

    # --- changes

    def taken(self) -> None:
        """This process writes from now on: another one may have written meanwhile."""
        self._held = None
        self.all()

    def all(self) -> None:
        """Look at everything: the rules are others, or a kind was read."""
        queries = [each for each in self._mailbox.carried.associated if any(rule.copies for rule in each.rules)]
        copying = {ref for ref in self._mailbox.refs() if any(each.covers(*ref.kind) for each in queries)}
        self.copies.expect(copying)
        for ref in {*self._edge.refs(), *copying, *(self._held or ())}:
            self.changed(ref)
        # States from before are read, and those of nothing go.
        self.queue.add(_EVERY)

    def changed(self, ref: ObjectRef) -> None:
        """A placed object changed, at the edge or in the mailbox."""
        if any(each.covers(*ref.kind) for each in self._mailbox.carried.associated) or ref in (self._held or ()):
            self.queue.add(ref, delay_s=BATCH_S)

    def _observed(self, ref: ObjectRef, found: Observed | None, obj: Object | None) -> None:
        ties = self._kinds[ref.kind].ties(ref, obj) if obj is not None else ()
        for placed in self._index.put(ref, found, ties):
            self.queue.add(placed, delay_s=BATCH_S)

    # --- kinds

    async def follow(self) -> bool:
        """Follow what is asked for and served; return whether all of it is served."""
        needs = Needs.of(self._mailbox.carried.associated)
        found: dict[tuple[str, str], AssociatedKind] = {}
        lacking = {}
        for kind, need in needs.items():
            served = await self._edge.kinds.find(*kind, await self._edge.kinds.preferred(kind[0]))
            if served is None or "watch" not in served.verbs:
                text = "the edge cluster does not serve it"
                lacking[kind] = Failure("associated", "NotServed", text, "", 1, time.time())
                continue
            before = self._kinds.get(kind)
            if before is not None and before.is_same(served, need):
                found[kind] = before
            else:
                found[kind] = AssociatedKind(self._edge.client, served, need, self._index, self._observed)
        for kind, each in list(self._kinds.items()):
            if found.get(kind) is not each:
                each.stop()
                for ref in self._index.refs(kind):
                    self._index.put(ref, None)
        is_other = self._lacking.keys() != lacking.keys()
        self._lacking = {kind: self._lacking.get(kind, failure) for kind, failure in lacking.items()}
        started = [each for kind, each in found.items() if self._kinds.get(kind) is not each]
        self._kinds = found
        for each in started:
            each.start(self.all)
        if is_other:
            self.all()
        return not lacking

    async def close(self) -> None:
        """End all watches."""
        tasks = [task for each in self._kinds.values() if (task := each.stop()) is not None]
        self._kinds = {}
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- reconcile

    async def reconcile(self, ref: ObjectRef) -> Requeue:
        """Bring the state of a placed object to what the edge cluster has."""
        if not (self._is_writer() and self._mailbox.is_complete):
            return None
        held = await self._states()
        if ref == _EVERY:
            for each in held:
                self.queue.add(each)
            return None
        rules, live = list(self._rules(ref)), self._edge.get(ref)
        self._index.place(ref, live, rules)
        if rules and live is None and not self._edge.is_read(ref.kind):
            # A start does not know yet whether it is there.
            return None
        if not rules or live is None:
            # While parts of the lists change, it may still be wanted.
            if self._mailbox.carried.number:
                self.copies.put(ref, frozenset())
            return await self._delete(ref) if self._mailbox.carried.number and ref in held else None
        kinds = {kind for rule in rules for kind in (*rule.owners, rule.kind)}
        if not all(map(self._is_listed, kinds)):
            return None
        self.copies.put(ref, frozenset(self._copied(ref, live, rules)))
        state, due_s = self._state(ref, live, rules)
        if ref in held and content_of(held[ref]) == content_of(state):
            return due_s
        return await self._put(ref, state) or due_s

    def _is_listed(self, kind: tuple[str, str]) -> bool:
        """Whether all of a kind was read, or it is known that none of it can be."""
        found = self._kinds.get(kind)
        return kind in self._lacking or (found is not None and (found.is_read or found.refusal is not None))

    def _rules(self, ref: ObjectRef) -> Iterator[Rule]:
        """Yield what is asked of a placed object."""
        queries = [each for each in self._mailbox.carried.associated if each.covers(*ref.kind)]
        if queries and self._mailbox.carried.lists(ref):
            copy = self._mailbox.held(self._mailbox.origin(ref))
            for each in queries:
                if copy is not None and each.concerns(ref, copy):
                    yield from each.rules

    def _copied(self, ref: ObjectRef, live: Object, rules: Iterable[Rule]) -> Iterator[ObjectRef]:
        """Yield what comes up whole for a placed object: of each rule the first ones, by name."""
        for rule in rules:
            if rule.copies and comes_up(*rule.kind):
                found = {each.ref for each in self._index.members(ref, live, rule)}
                yield from sorted(each for each in found if not self._mailbox.carried.lists(each))[: rule.max_objects]

    def _state(self, ref: ObjectRef, live: Object, rules: Iterable[Rule]) -> tuple[Object, float | None]:
        """Return the state of a placed object, and in how many seconds something more counts as broken."""
        rules = list(rules)
        members = {each.ref: each for rule in rules for each in self._index.members(ref, live, rule)}
        before = since_of((self._held or {}).get(ref, {}))
        now, now_s = times.now(), time.monotonic()
        broken = [each for each in members.values() if each.reason]
        # What was broken before a start is broken without another wait.
        due = {
            each.ref: before.get(each.ref, now)
            for each in broken
            if each.ref in before or now_s - each.at_s >= each.after_s
        }
        waits = [each.at_s + each.after_s - now_s for each in broken if each.ref not in due]
        kinds = {kind: each.version_and_kind for kind, each in self._kinds.items()}
        # Of several collectors the one that wants to see most counts.
        limits = {rule.kind: rule.max_objects for rule in sorted(rules, key=lambda rule: rule.max_objects)}
        return associated_state(ref, members.values(), due, kinds, limits), min(waits) if waits else None

    async def _states(self) -> dict[ObjectRef, Object]:
        async with self._reading:
            if self._held is None:
                held = {}
                # A mailbox of an older service has no such kind, and nobody who asks.
                with contextlib.suppress(NotFound):
                    async for page in self._client.pages(_STATES, limit="250"):
                        held.update({subject_of(each): each for each in page["items"]})
                self._held = held
            return self._held

    async def _put(self, ref: ObjectRef, state: Object) -> Requeue:
        held = await self._states()
        before = held.get(ref)
        try:
            if before is None:
                held[ref] = await self._client.create(_STATES, state)
            else:
                metadata = {**state["metadata"], "resourceVersion": before["metadata"]["resourceVersion"]}
                held[ref] = await self._client.update(_STATES, {**state, "metadata": metadata})
        except (AlreadyExists, Conflict, NotFound):
            await self._reread(ref)
            return _SOON
        self.writes += 1
        note(operation="state")
        return None

    async def _delete(self, ref: ObjectRef) -> Requeue:
        namespace, name = state_key(ref)
        try:
            await self._client.delete(_STATES, name, namespace)
            self.writes += 1
            note(operation="delete")
        except NotFound:
            pass
        (await self._states()).pop(ref, None)
        return None

    async def _reread(self, ref: ObjectRef) -> None:
        """Somebody else wrote or removed the state of an object."""
        held, (namespace, name) = await self._states(), state_key(ref)
        try:
            held[ref] = await self._client.get(_STATES, name, namespace)
        except NotFound:
            held.pop(ref, None)
