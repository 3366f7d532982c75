"""The controller of mailboxes: copies of what workspaces send, and then the list of them for the syncer.

Keys are logical clusters of mailboxes. Invariants: nothing is withdrawn before all workspaces that send were read; the
list names what is in the mailbox and nothing else, and is written after it, once for a burst; an object that the
mailbox refuses waits alone.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterable
from functools import partial
from typing import Any, TypeAlias

import msgspec
import structlog

from atoll.edge.edge_data import Clusters
from atoll.edge.export_view import UNREAD
from atoll.edge.placement_translator.composition import defined_group, is_misfit
from atoll.edge.placement_translator.content import DEFINERS, NAMESPACES, Item, Kind
from atoll.edge.placement_translator.contents import Contents
from atoll.edge.placement_translator.copies import Copies
from atoll.edge.placement_translator.listing import Listing
from atoll.edge.placement_translator.mailbox_state import Due, MailboxState
from atoll.edge.placement_translator.records import CopyRecords
from atoll.edge.placement_translator.rendering import Tell, Unrendered
from atoll.edge.placement_translator.syncer_list import write_list
from atoll.edge.placement_translator.topology import Topology
from atoll.machinery.client.client import Client
from atoll.machinery.client.discovery import served_kinds
from atoll.machinery.control.queue import Requeue, WorkQueue
from atoll.machinery.control.reconcile_log import note
from atoll.machinery.edge.categories import goes_to_mailbox
from atoll.machinery.edge.failures import Failure, metric_reason, next_failure
from atoll.machinery.edge.names import PROJECTED, PROJECTED_VALUE, ObjectRef
from atoll.machinery.edge.syncerconfigs import is_part
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import ApiError

log = structlog.get_logger()

PAGE = 500
#: Requests under way at a time, in all mailboxes; objects in work at a time in one.
MAX_REQUESTS, BATCH = 64, 200
#: How long after a start writes of an earlier process may come, by the clocks of shards.
LATE_S = 60.0

#: What is sent, where, and what was.
Sources: TypeAlias = tuple[Topology, Contents, CopyRecords]
Work = Callable[[], Awaitable[None]]
#: Called with a mailbox after each reconcile, and the objects that were looked at.
Done = Callable[[str, Iterable[ObjectRef]], None]


class Projection:
    """The controller."""

    name = "placement-translator-projection"

    def __init__(self, base: Clusters, sources: Sources, done: Done, tell: Tell) -> None:
        self._base, self._done, self._tell = base, done, tell
        self._topology, self._contents, self._records = sources
        self.copies = Copies(base, *sources, tell)
        self.listing = Listing(self._topology, self._records, self.copies)
        self.queue: WorkQueue[str] = WorkQueue()
        self._states: dict[str, MailboxState] = {}
        #: The SyncerConfigs of a mailbox as they were seen last.
        self.parts: Callable[[str], Collection[Object]] = lambda mailbox: ()
        #: Refused writes of copies, by reason.
        self.refused: Counter[str] = Counter()
        #: Called when nothing is left to do for a mailbox without placements.
        self.released: Callable[[], None] = lambda: None
        self._requests = asyncio.Semaphore(MAX_REQUESTS)

    # --- changes

    def due(self, mailbox: str) -> Due:
        """Return what is due in a mailbox, to add to it; `wake` then."""
        return self._state(mailbox).due

    def wake(self, mailbox: str) -> None:
        """Look at a mailbox."""
        self.queue.add(mailbox)

    def changed(self, mailbox: str, ref: ObjectRef, revision: int) -> None:
        """A copy has another revision, 0 if it was deleted. What was written here, or looked at, is no news."""
        state = self._states.get(mailbox)
        if self._is_looked_at(mailbox, ref, revision) and (state is None or ref not in state.due.changes):
            return
        self.due(mailbox).add_change(ref, revision)
        self.wake(mailbox)

    def _is_looked_at(self, mailbox: str, ref: ObjectRef, revision: int) -> bool:
        record = self._records.get(mailbox, ref)
        return record is not None and record.revision == revision

    def relist(self, mailbox: str) -> None:
        """What the syncer of a mailbox is asked may be something else; one without a state is listed in any case."""
        if (state := self._states.get(mailbox)) is not None:
            state.due.is_unlisted = True
            self.wake(mailbox)

    def parts_changed(self, mailbox: str) -> None:
        """The list in a mailbox is seen with another content: somebody's, or what was written here."""
        state = self._states.get(mailbox)
        if state is not None and (state.is_busy or not self._is_as_written(mailbox, state)):
            state.due.is_list_seen = True
            self.wake(mailbox)

    def state(self, mailbox: str) -> MailboxState | None:
        """Return what is known of a mailbox."""
        return self._states.get(mailbox)

    def is_read(self, mailbox: str) -> bool:
        """Whether all copies of a mailbox were looked at since the start."""
        state = self._states.get(mailbox)
        return state is not None and state.is_read

    def active(self) -> set[str]:
        """Return the mailboxes with copies, or with something to do."""
        return set(self._states)

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits that was told, also in mailboxes that cannot be written to now."""
        return not len(self.queue) and not any(each.due.refs or each.due.is_unread for each in self._states.values())

    @property
    def failing(self) -> int:
        """How many copies mailboxes refuse now."""
        return sum(len(state.failures) for state in self._states.values())

    @property
    def incomplete(self) -> int:
        """How many mailboxes refuse copies now."""
        return sum(bool(state.failures) for state in self._states.values())

    def moved(self) -> list[str]:
        """Return the mailboxes whose placements changed since they were looked at."""
        return [mailbox for mailbox, state in self._states.items() if state.due.is_moved]

    def reread_all(self) -> None:
        """Any copy may have been changed."""
        for mailbox in self._concerned():
            self.due(mailbox).is_unread = True
            self.wake(mailbox)

    def resume_all(self) -> None:
        """Copies are as the records say, but for what is told beside; what definers define now is not in records."""
        for mailbox in self._concerned():
            if any(kind in DEFINERS for kind in self._records.kinds(mailbox) or ()):
                self.due(mailbox).is_unread = True
            self._state(mailbox)
            self.wake(mailbox)

    def _concerned(self) -> list[str]:
        """Return the mailboxes that are destinations, or may have copies."""
        return [
            each
            for each in self._topology.all_mailboxes()
            if self._topology.is_sent_to(each) or each in self._states or self._may_have_copies(each)
        ]

    def _may_have_copies(self, mailbox: str) -> bool:
        return not self._records.is_swept(mailbox) or self._records.has_any(mailbox)

    def forget(self, mailbox: str) -> None:
        """A mailbox is gone."""
        self._states.pop(mailbox, None)
        self._records.forget(mailbox)
        self.copies.forget(mailbox)

    def _state(self, mailbox: str) -> MailboxState:
        found = self._states.get(mailbox)
        if found is None:
            found = self._states[mailbox] = MailboxState()
            if not self._records.is_swept(mailbox):
                found.due.is_unread = True
                self._records.put_late(mailbox, int((time.time() + LATE_S) * 1_000_000))
        return found

    # --- reconcile

    async def synced(self) -> None:
        """Wait until all placements and mailboxes were seen."""
        await self._topology.complete.wait()

    async def reconcile(self, mailbox: str) -> Requeue:
        """Bring the copies and their list up to date."""
        if not self._topology.is_mailbox(mailbox) or self._topology.is_ending(mailbox):
            return None
        senders, state = self._topology.senders(mailbox), self._state(mailbox)
        contents = [self._contents.get(cluster) for cluster in senders]
        if any(each is None or not each.is_complete for each in contents):
            # It is woken once they were read.
            return None
        if not self._topology.has_read(mailbox):
            return UNREAD
        try:
            wait_s = await self._look(mailbox, state)
        finally:
            await self._records.flush()
        if not senders and not self._records.of(mailbox) and state.list_at_s is None:
            self._states.pop(mailbox, None)
            self.copies.forget_written(mailbox)
            self.released()
        return wait_s

    async def _look(self, mailbox: str, state: MailboxState) -> float | None:
        """Do what is due; return when to come back."""
        self._find_late(mailbox, state.due)
        first = self._first(mailbox, state)
        due, state.is_busy = state.take_first(first) if first else state.take(), True
        try:
            await self._copy(mailbox, state, due)
        except BaseException:
            state.due.join(due)
            # A new copy may be there whose answer did not come, and be wanted by nobody when it is tried again.
            state.due.is_unread |= not self._records.is_swept(mailbox)
            raise
        finally:
            state.is_busy = False
            self._done(mailbox, due.refs)
        state.is_read |= not first
        note(objects=len(due.refs))
        self._done(mailbox, ())
        return await self._list(mailbox, state)

    def _find_late(self, mailbox: str, due: Due) -> None:
        """Have a mailbox read if something came that may be a copy of a process that ended before it had a record."""
        late_until = self._records.late_until(mailbox)
        for ref, revision in due.changes.items():
            is_late = 0 < revision < late_until and goes_to_mailbox(*ref.kind)
            if is_late and self._records.get(mailbox, ref) is None:
                self._records.add_kinds(mailbox, {ref.kind})
                due.is_unread = True

    def _first(self, mailbox: str, state: MailboxState) -> list[ObjectRef]:
        """Return copies that changed while nothing ran: they go before mailboxes are compared as a whole, in turn."""
        due = state.due
        if state.is_read or due.is_unread or not due.is_moved:
            return []
        found = [ref for ref in due.refs if self._records.get(mailbox, ref) is not None]
        if found:
            self.wake(mailbox)
        return found

    async def _copy(self, mailbox: str, state: MailboxState, due: Due) -> None:
        now_s = time.time()
        if due.is_unread:
            await self._read(mailbox, state, due)
            due.is_moved = True
        if due.is_redefined:
            # What did not fit may fit now.
            for ref in state.failures:
                due.add(ref, is_live_due=True)
        if due.is_redefined and await self.copies.redefined(mailbox):
            due.is_moved = True
        groups = self.copies.composition.settle(mailbox)
        if groups:
            due.is_unlisted = True
            for ref in () if due.is_moved else (*self.copies.wanted(mailbox), *self._records.of(mailbox)):
                if defined_group(ref) in groups:
                    due.add(ref, is_live_due=False)
        if due.is_moved:
            self.copies.forget_written(mailbox)
            stale, namespaces = await self.copies.stale(mailbox)
            state.namespaces |= namespaces
            for ref in (*stale, *state.failures):
                due.add(ref, is_live_due=False)
        if due.is_list_seen and not self._is_as_written(mailbox, state):
            due.is_unlisted = True
        if due.is_moved or due.is_unlisted:
            state.relisted = None
            state.list_again(now_s)
        for ref, failure in state.failures.items():
            if failure.is_due(ref, failure.attempt, now_s):
                due.add(ref, is_live_due=True)
        for ref, revision in due.changes.items():
            if self._is_looked_at(mailbox, ref, revision):
                # It was told before the answer to the write came.
                due.refs[ref] = False
        if state.relisted is not None:
            state.relisted.update(due.refs)
        for refs in self._in_order(mailbox, due):
            await self._put(mailbox, state, refs)
            if any(ref.kind in DEFINERS for ref in refs):
                self._define(mailbox, state)
        if self._records.take_moved(mailbox):
            state.list_again(time.time())
        if not state.failures:
            self._records.put_written(mailbox)

    def _define(self, mailbox: str, state: MailboxState) -> None:
        """Definers of a mailbox were put: copies of what has another definition than before may be gone."""
        kinds, is_another = self.copies.composition.definitions.settle(mailbox)
        if is_another:
            state.relisted = None
            state.list_again(time.time())
        refs = [ref for ref in self._records.of(mailbox) if ref.kind in kinds] if kinds else []
        for ref in refs:
            state.due.add(ref, is_live_due=True)
        if refs:
            self.wake(mailbox)

    def _in_order(self, mailbox: str, due: Due) -> list[dict[ObjectRef, bool]]:
        """Return objects in the order of their writes."""
        stages: list[dict[ObjectRef, bool]] = [{}, {}, {}, {}, {}, {}]
        for ref, is_live_due in sorted(due.refs.items()):
            sources = self.copies.wanted_one(mailbox, ref)
            stages[_stage(ref, sources)][ref] = is_live_due
        return [each for each in stages if each]

    async def _put(self, mailbox: str, state: MailboxState, refs: dict[ObjectRef, bool]) -> None:
        new = [ref for ref in refs if self._is_new(mailbox, ref) and self.copies.wanted_one(mailbox, ref)]
        await self._records.expect(mailbox, {NAMESPACES, *(ref.kind for ref in refs)}, has_new=bool(new))
        # Where a copy is, its Namespace is; of one that failed it may have gone.
        needed = {ref.namespace for ref in (*new, *(each for each in refs if each in state.failures)) if ref.namespace}
        for name in sorted(needed - state.namespaces):
            await self._attempt(
                mailbox, state, ObjectRef(*NAMESPACES, "", name), partial(self._ensure, mailbox, state, name)
            )
        rows = list(refs.items())
        for start in range(0, len(rows), BATCH):
            if start:
                await self._records.flush()
            works = [
                # What somebody changed meanwhile in a copy that failed was not put back.
                self._attempt(mailbox, state, ref, partial(self._put_one, mailbox, ref, is_live_due=due or failed))
                for ref, due in rows[start : start + BATCH]
                for failed in [ref in state.failures]
            ]
            await _all(works)

    def _is_new(self, mailbox: str, ref: ObjectRef) -> bool:
        """Whether a copy may not be in its mailbox yet."""
        record = self._records.get(mailbox, ref)
        return record is None or not record.sources

    async def _ensure(self, mailbox: str, state: MailboxState, name: str) -> None:
        await self.copies.ensure_namespace(mailbox, name)
        state.namespaces.add(name)

    async def _put_one(self, mailbox: str, ref: ObjectRef, *, is_live_due: bool, live: Object | None = None) -> None:
        found = await self.copies.put(mailbox, ref, live, is_live_due=is_live_due)
        if found.is_another:
            self._owner_changed(mailbox, ref)
        if found.problem is not None:
            raise found.problem

    def _owner_changed(self, mailbox: str, ref: ObjectRef) -> None:
        """What an object owns has the uid of its copy, which is new."""
        for cluster, item in self.copies.wanted_one(mailbox, ref).items():
            content = self._contents.get(cluster)
            for owned in content.owned_by(item.uid) if content is not None else ():
                self.due(mailbox).add(owned, is_live_due=False)
                self.wake(mailbox)

    async def _attempt(self, mailbox: str, state: MailboxState, ref: ObjectRef, work: Work) -> None:
        async with self._requests:
            try:
                await work()
            except ApiError as error:
                failure = Failure("apply", error.reason or str(error.code), error.message, "", 1, time.time())
                self.refused[metric_reason(failure.reason)] += 1
                before = state.failures.get(ref)
                if is_misfit(error):
                    self.copies.composition.refused(mailbox, ref, self.copies.wanted_one(mailbox, ref))
                if not isinstance(error, Unrendered) and (before is None or before.message != failure.message):
                    self._tell_refused(mailbox, ref, failure)
                state.failures[ref] = next_failure(before, failure)
                state.namespaces.discard(ref.namespace)
                state.list_again(time.time())
                log.info("copy refused", mailbox=mailbox, resource=ref.resource, group=ref.group, reason=error.reason)
            else:
                if state.failures.pop(ref, None) is not None:
                    self.copies.composition.accepted(mailbox, ref, self.copies.wanted_one(mailbox, ref))

    def _tell_refused(self, mailbox: str, ref: ObjectRef, failure: Failure) -> None:
        """Who customizes an object should know that a mailbox refuses the result; of others the placement tells."""
        for cluster, item in self.copies.wanted_one(mailbox, ref).items():
            if item.customizer is not None or item.expands:
                self._tell(cluster, ref, "CustomizedObjectRefused", f"{failure.reason}: {failure.message}")

    # --- reading a mailbox

    async def _read(self, mailbox: str, state: MailboxState, due: Due) -> None:
        """Compare all copies in a mailbox with what is sent; what has a record and is not there has none any more.

        What was otherwise than its record is due, so that it is told to those who read copies.
        """
        gone, kinds = self._records.of(mailbox), self._records.kinds(mailbox)
        state.namespaces.clear()
        async for ref, live in self._inventory(self._base.cluster(mailbox), kinds):
            before = self._records.get(mailbox, ref)
            gone.pop(ref, None)
            if before is None:
                # It is listed also if what is sent now is refused, and withdrawn in its order.
                self.copies.found(mailbox, ref, live)
            if self.copies.wanted_one(mailbox, ref):
                work = partial(self._put_one, mailbox, ref, is_live_due=False, live=live)
                await self._attempt(mailbox, state, ref, work)
            if self._records.get(mailbox, ref) != before:
                due.add(ref, is_live_due=False)
        for ref, record in gone.items():
            # What is wanted is made again. It stays listed until then, so that the edge keeps what it has of it.
            kept = msgspec.structs.replace(record, sources="") if self.copies.wanted_one(mailbox, ref) else None
            self._records.put(mailbox, ref, kept)
        self._records.put_swept(mailbox)

    async def _inventory(
        self, client: Client, kinds: Collection[Kind] | None
    ) -> AsyncIterator[tuple[ObjectRef, Object]]:
        """Yield the copies in a mailbox, of these kinds or, with None, of all."""
        selector = f"{PROJECTED}={PROJECTED_VALUE}"
        for (group, plural), kind in (await served_kinds(client)).items():
            is_asked = kinds is None or (group, plural) in kinds
            if not is_asked or not goes_to_mailbox(group, plural) or "list" not in kind.verbs:
                continue
            async for page in client.pages(kind.resource, labelSelector=selector, limit=str(PAGE)):
                for live in page["items"]:
                    metadata = live["metadata"]
                    yield ObjectRef(group, plural, metadata.get("namespace", ""), metadata["name"]), live

    # --- the list

    async def _list(self, mailbox: str, state: MailboxState) -> float | None:
        """Write the list if it is time; return when to come back."""
        now_s = time.time()
        if state.list_at_s is not None and state.list_at_s <= now_s and not state.due.refs:
            # Nobody says that all is there before it is written.
            state.list_at_s, state.is_busy = None, True
            try:
                client, versions = self._base.cluster(mailbox), self.copies.versions.written(mailbox)
                specs, seen = partial(self.listing.specs, mailbox, state), self._seen(mailbox, state)
                written = await write_list(client, specs, versions, seen)
            except BaseException:
                state.list_at_s = now_s
                raise
            finally:
                state.is_busy = False
            if written:
                state.listed_at_s = now_s
                state.written_parts = {each["metadata"]["name"]: _revision(each) for each in written}
                state.listed = max(state.written_parts.values())
            state.take_list(written or seen)
            self.copies.writes["list"] += bool(written)
            self._done(mailbox, ())
        waits = [state.list_at_s - now_s] if state.list_at_s is not None else []
        waits += [failure.at_s + failure.delay_s(ref) - now_s for ref, failure in state.failures.items()]
        return max(min(waits), 0.0) if waits else None

    def _seen(self, mailbox: str, state: MailboxState) -> Collection[Object]:
        """Return the SyncerConfigs as they were seen last, none while our own last write was not."""
        parts = self.parts(mailbox)
        return parts if max(map(_revision, parts), default=0) >= state.listed else ()

    def _is_as_written(self, mailbox: str, state: MailboxState) -> bool:
        """Whether all parts of the list that were seen last are those that were written here."""
        seen = {each["metadata"]["name"]: _revision(each) for each in self.parts(mailbox) if is_part(each)}
        return seen == state.written_parts


def _revision(part: Object) -> int:
    return int(part["metadata"]["resourceVersion"])


def _stage(ref: ObjectRef, sources: dict[str, Item]) -> int:
    """Return the place of a write: definitions, Namespaces, the others before what they own; away it goes back."""
    if not sources:
        return 5 if ref.kind in DEFINERS or ref.kind == NAMESPACES else 4
    if ref.kind in DEFINERS:
        return 0
    if ref.kind == NAMESPACES:
        return 1
    return 3 if any(item.owners for item in sources.values()) else 2


async def _all(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Wait for all, whatever fails. Raises the first error."""
    for result in await asyncio.gather(*works, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
