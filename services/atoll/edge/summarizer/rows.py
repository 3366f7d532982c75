"""The controller that reads copies in mailboxes, and what came up there, into rows.

Keys are mailboxes. A copy is read when the translator saw another revision of it, or when collectors changed; many of
one kind by their list; one without a status, of which no collector asks, never. Memory: one `Row` for each workspace of
a copy that was read, nothing of the others, no object. Invariant: what was to be read and could not be is read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from atoll.edge.edge_data import Clusters
from atoll.edge.placement_translator.content import Kind
from atoll.edge.placement_translator.placed import Placed
from atoll.edge.placement_translator.records import Copy
from atoll.edge.summarizer.collected import Collected
from atoll.edge.summarizer.row import NONE, Row, evaluated, is_reported, kind_of, returned_at, row_of
from atoll.edge.summarizer.states import States
from atoll.machinery.client.discovery import served_kinds
from atoll.machinery.client.resource import Resource
from atoll.machinery.control.queue import Requeue, WorkQueue
from atoll.machinery.edge.names import UPSYNCED, ObjectRef
from atoll.machinery.edge.summaries.collectors import Collector
from atoll.machinery.meta.objects import Object, annotations_of, labels_of
from atoll.machinery.meta.status import NotFound

#: Objects of a page, and objects of a kind that are read one by one; more are listed.
PAGE, MAX_SINGLE = 500, 16
#: Objects that are looked at before others go on.
STRIDE = 50
#: How long a mailbox waits for more changes.
BURST_S = 0.2
#: Called with a mailbox and an object whose rows changed; without one the mailbox was read for the first time.
Changed: TypeAlias = Callable[[str, ObjectRef | None], None]
_ByCluster: TypeAlias = dict[str, Row]


class _Mailbox:
    """What is known of a mailbox, and what to read."""

    def __init__(self) -> None:
        self.rows: dict[ObjectRef, _ByCluster] = {}
        self.due: set[ObjectRef] = set()
        #: Whether all copies were read since the start, and since collectors changed, and all that came up.
        self.is_read, self.is_copies_read, self.is_risen_read = False, False, False
        self.states = States()


class Rows:
    """The controller."""

    name = "status-summarizer-rows"

    def __init__(self, data: Clusters, placed: Placed, collected: Collected, changed: Changed) -> None:
        self._data, self._placed, self._collected, self._changed = data, placed, collected, changed
        self.queue: WorkQueue[str] = WorkQueue()
        self._mailboxes: dict[str, _Mailbox] = {}

    # --- changes

    def look(self, mailbox: str, refs: Iterable[ObjectRef] = ()) -> None:
        """Objects of a mailbox may have changed."""
        self._mailboxes.setdefault(mailbox, _Mailbox()).due.update(refs)
        self.queue.add(mailbox, delay_s=BURST_S)

    def look_at_state(self, mailbox: str, namespace: str, name: str) -> None:
        """An AssociatedState of a mailbox changed."""
        if (state := self._mailboxes.get(mailbox)) is not None:
            state.states.look(namespace, name)
            self.look(mailbox)

    def look_at_all(self, cluster: str) -> None:
        """The collectors of a workspace changed."""
        for mailbox in self._placed.topology.mailboxes(cluster, self._placed.topology.names(cluster)):
            if (state := self._mailboxes.get(mailbox)) is not None:
                state.states.look_at_all()
                state.is_copies_read = False
                self.look(mailbox)

    def reread(self, mailbox: str = "") -> None:
        """Anything may have come up, or is asked for now, in a mailbox or in all."""
        for name in [mailbox] if mailbox else list(self._mailboxes):
            found = self._mailboxes.setdefault(name, _Mailbox())
            found.is_risen_read = False
            found.states.look_at_all()
            self.look(name)

    def forget(self, mailbox: str) -> None:
        """A mailbox is gone."""
        self._mailboxes.pop(mailbox, None)

    # --- answers

    def get(self, mailbox: str, ref: ObjectRef, cluster: str) -> Row | None:
        """Return the row of a copy for a workspace."""
        state = self._mailboxes.get(mailbox)
        return state.rows.get(ref, {}).get(cluster) if state is not None else None

    def of(self, mailbox: str) -> Mapping[ObjectRef, Mapping[str, Row]]:
        """Return all rows of a mailbox, by workspace: what came up, and copies that were read."""
        state = self._mailboxes.get(mailbox)
        return state.rows if state is not None else {}

    def is_read(self, mailbox: str) -> bool:
        """Whether everything in a mailbox was read once."""
        state = self._mailboxes.get(mailbox)
        return state is not None and state.is_read

    # --- reconcile

    async def synced(self) -> None:
        """Wait until all placements and collectors were seen."""
        await self._placed.topology.complete.wait()
        await self._collected.synced()

    async def reconcile(self, mailbox: str) -> Requeue:
        """Read what may have changed."""
        state = self._mailboxes.get(mailbox)
        if state is None:
            return None
        if not self._placed.topology.senders(mailbox):
            self.forget(mailbox)
            return None
        due, state.due = state.due, set()
        was_read = state.is_read
        try:
            await self._read(mailbox, state, due)
        except BaseException:
            state.due, state.is_risen_read = state.due | due, False
            raise
        if not was_read and self._placed.projection.is_read(mailbox):
            state.is_read = True
            self._changed(mailbox, None)
        return None

    async def _read(self, mailbox: str, state: _Mailbox, due: set[ObjectRef]) -> None:
        sent: dict[tuple[Kind, str], list[ObjectRef]] = {}
        risen: dict[Kind, list[ObjectRef]] = {}
        if any(self._collected.asks(cluster) for cluster in self._placed.topology.senders(mailbox)):
            due |= await state.states.read(self._data.cluster(mailbox))
        if not state.is_copies_read and self._placed.projection.is_read(mailbox):
            due |= {*self._reported(mailbox), *state.rows}
            state.is_copies_read = True
        for count, ref in enumerate(sorted(due), 1):
            if count % STRIDE == 0:
                await asyncio.sleep(0)
            sources, record = self._placed.sources(mailbox, ref), self._placed.records.get(mailbox, ref)
            if sources and record is not None:
                if self._is_unreported(ref, sources, record):
                    self._put(mailbox, ref, {}, is_news=True)
                elif not self._is_fresh(state, ref, sources, record):
                    sent.setdefault((ref.kind, record.version), []).append(ref)
            elif not sources and self._placed.asking(mailbox, ref):
                risen.setdefault(ref.kind, []).append(ref)
            else:
                self._put(mailbox, ref, {})
        for (kind, version), refs in sent.items():
            resource = Resource(kind[0], version, kind[1], bool(refs[0].namespace))
            await self._read_kind(mailbox, resource, refs, is_whole=False)
        await self._read_risen(mailbox, state, risen)

    def _is_fresh(self, state: _Mailbox, ref: ObjectRef, sources: list[str], record: Copy) -> bool:
        """Whether the rows of a copy are of what the translator saw last, for all workspaces that send it."""
        rows, associated = state.rows.get(ref, {}), state.states.get(ref)
        return sorted(rows) == sources and all(
            row.revision >= record.revision
            and (row.written, row.state) == (record.written, associated)
            and row.collected == self._collected.version(cluster)
            for cluster, row in rows.items()
        )

    def _is_unreported(self, ref: ObjectRef, sources: Iterable[str], record: Copy) -> bool:
        """Whether a copy has no status and no collector may ask for it: then its record says all that a row would."""
        return not record.has_status and not any(self._collectors(cluster, ref) for cluster in sources)

    def _reported(self, mailbox: str) -> list[ObjectRef]:
        """Return the copies of a mailbox that have rows, or are to have some."""
        records = self._placed.records.of(mailbox)
        return [
            ref
            for ref, sources in self._placed.projection.copies.wanted(mailbox).items()
            if (record := records.get(ref)) is not None and not self._is_unreported(ref, sources, record)
        ]

    async def _read_risen(self, mailbox: str, state: _Mailbox, risen: dict[Kind, list[ObjectRef]]) -> None:
        """Read what came up: what is due, and at first all of it."""
        is_due, state.is_risen_read = not state.is_risen_read, True
        sets = list(self._placed.sets(mailbox)) if is_due or risen else []
        if not sets:
            return
        for kind, served in (await served_kinds(self._data.cluster(mailbox))).items():
            is_whole = is_due and any(
                members.api_group == kind[0] and {kind[1], "*"} & set(members.resources) for _, members in sets
            )
            if "list" in served.verbs and (is_whole or kind in risen):
                await self._read_kind(mailbox, served.resource, risen.get(kind, []), is_whole=is_whole)

    async def _read_kind(self, mailbox: str, resource: Resource, refs: list[ObjectRef], *, is_whole: bool) -> None:
        """Read objects of a kind, all of it if asked; what is not there has no rows."""
        client, left = self._data.cluster(mailbox), {ref: ref for ref in refs}
        if is_whole or len(refs) > MAX_SINGLE:
            async for page in client.pages(resource, limit=str(PAGE)):
                for copy in page["items"]:
                    ref = _ref_of(resource, copy)
                    if is_whole or ref in left:
                        # One reference serves the copies of an object in all mailboxes.
                        await self._take(mailbox, left.pop(ref, ref), copy)
        else:
            for ref in refs:
                try:
                    copy = await client.get(resource, ref.name, ref.namespace)
                except NotFound:
                    continue
                del left[ref]
                await self._take(mailbox, ref, copy)
        for ref in left:
            self._put(mailbox, ref, {})

    async def _take(self, mailbox: str, ref: ObjectRef, copy: Object) -> None:
        """Replace the rows of an object that was read."""
        clusters = self._placed.sources(mailbox, ref)
        has_risen = not clusters and UPSYNCED in annotations_of(copy)
        if has_risen:
            clusters = self._placed.asking(mailbox, ref)
        record = self._placed.records.get(mailbox, ref)
        written = record.written if record is not None else 0
        rows = {}
        for cluster in clusters:
            rows[cluster] = await self._row((mailbox, cluster), ref, copy, copy if has_risen else None, written)
        self._put(mailbox, ref, rows)
        # Expressions of a whole page would hold up everybody else.
        await asyncio.sleep(0)

    async def _row(self, at: tuple[str, str], ref: ObjectRef, copy: Object, source: Object | None, written: int) -> Row:
        """Return the row of a copy in a mailbox, for a workspace."""
        mailbox, cluster = at
        destination = self._placed.topology.destination(mailbox)
        assert destination is not None, "a mailbox with senders"
        version, collectors = self._collected.version(cluster), self._collectors(cluster, ref)
        if source is None:
            source = (await self._placed.contents.source(cluster, ref) if collectors else None) or {}
        labels = labels_of(source) if source else {}
        concerned = {name: each for name, each in collectors.items() if each.concerns(ref, labels)}

        def failed(name: str, errors: Mapping[str, str]) -> None:
            self._collected.failed((cluster, name), (mailbox, ref), errors)

        known = self._mailboxes.get(mailbox)
        state = known.states.get(ref) if known is not None else None
        broken, cells = evaluated(ref, row_of(copy, destination, source, state), concerned, failed)
        return Row(
            int(copy["metadata"]["resourceVersion"]),
            written,
            version,
            kind_of(copy["apiVersion"], copy["kind"]),
            is_reported(copy),
            returned_at(copy),
            tuple(concerned),
            broken or NONE,
            cells or NONE,
            state,
        )

    def _collectors(self, cluster: str, ref: ObjectRef) -> dict[str, Collector]:
        """Return the collectors that may be about a kind."""
        found = self._collected.of(cluster)
        return {name: each for name, each in sorted(found.items()) if each.covers(*ref.kind)}

    def _put(self, mailbox: str, ref: ObjectRef, rows: _ByCluster, *, is_news: bool = False) -> None:
        """Replace the rows of an object; with `is_news` its record says something else."""
        state = self._mailboxes.get(mailbox)
        if state is None:
            return
        before = state.rows.pop(ref, {})
        if rows:
            state.rows[ref] = rows
        if before != rows or is_news:
            for cluster in before.keys() - rows.keys():
                for name in before[cluster].concerned:
                    self._collected.failed((cluster, name), (mailbox, ref), {})
            self._changed(mailbox, ref)


def _ref_of(resource: Resource, obj: Object) -> ObjectRef:
    metadata = obj["metadata"]
    return ObjectRef(resource.group, resource.plural, metadata.get("namespace", ""), metadata["name"])
