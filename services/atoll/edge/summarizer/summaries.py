"""The controller of StatusSummaries: writes them where they differ, and deletes those of nothing.

Keys are summaries, and workspaces whose summaries are listed once. Memory: a digest and a few times for each summary.
Invariants: a summary is written at most once in WRITE_S, and only if it says something else; after a start nothing is
written before the mailboxes that it is about were read, or READ_S passed.
"""

from __future__ import annotations

import hashlib
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

import msgspec

from atoll.edge.changes import Change
from atoll.edge.export_view import ExportView
from atoll.edge.kinds import STATUS_SUMMARIES
from atoll.edge.objects import NAMESPACES
from atoll.edge.placement_translator.content import Item
from atoll.edge.placement_translator.placed import Placed
from atoll.edge.placement_translator.placement_status import name_of
from atoll.edge.summarizer.findings import Finder, Subjects
from atoll.edge.summarizer.rows import Rows
from atoll.machinery.client.client import Client
from atoll.machinery.control.queue import Requeue, WorkQueue
from atoll.machinery.edge.names import REPORT_NAMESPACE, ObjectRef
from atoll.machinery.edge.summaries.summary import Report, Subject, content_of, set_title, set_uid, summary
from atoll.machinery.meta import times
from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.meta.status import AlreadyExists, Forbidden, NotFound
from atoll.machinery.process.backoff import Backoff

#: How long a summary waits for more changes, and between two writes.
BURST_S, WRITE_S = 0.3, 1.0
#: How long a summary waits between two looks, for each copy of all summaries of its workspace: under changes that
#: never end they take a tenth of the process, a fifth where edge clusters are behind or silent.
COPY_S = 20e-6
#: How long after a start a summary waits for mailboxes to be read.
READ_S = 30.0
PAGE = 200
#: Placements by which one object has summaries, the first by name: their number is else that of objects by placements.
MAX_OF_OBJECT = 20
#: When to look again at what may not be written.
REFUSED = Backoff(5.0, 300.0)


class SummaryKey(NamedTuple):
    """A summary, or without a name all those of a workspace."""

    cluster: str
    namespace: str = ""
    name: str = ""


class _Written(msgspec.Struct):
    """A summary that is there: a digest of what it says, when it was written, and since when objects are broken.

    `looked_s` is when it was made last, and `copies` of how many.
    """

    digest: str = ""
    revision: int = 0
    at_s: float = 0.0
    looked_s: float = 0.0
    copies: int = 0
    since: dict[str, str] = {}


class Summaries:
    """The controller. `base` is a client of its account for workspaces themselves."""

    name = "status-summarizer"

    #: Monotonic seconds.
    clock = staticmethod(time.monotonic)

    def __init__(self, base: Client, view: ExportView, placed: Placed, rows: Rows, finder: Finder) -> None:
        self._base, self._view, self._placed, self._rows, self._finder = base, view, placed, rows, finder
        self.queue: WorkQueue[SummaryKey] = WorkQueue(in_turn=True)
        #: Workspace -> summaries that are there; it is here once they were listed.
        self._written: dict[str, dict[SummaryKey, _Written]] = {}
        #: Workspace -> object -> its summaries, as long as they are there.
        self._of: dict[str, dict[ObjectRef, set[SummaryKey]]] = defaultdict(lambda: defaultdict(set))
        self._started_s = self.clock()

    # --- changes

    def look(self, cluster: str, refs: Iterable[ObjectRef]) -> None:
        """What is said of objects may have changed."""
        content, known = self._placed.contents.get(cluster), self._of.get(cluster, {})
        for ref in refs:
            item = content.items.get(ref) if content is not None else None
            found = set(known.get(ref, ()))
            for placement in _summarized(item) if item is not None else ():
                if item is not None and (uid := self._uid(cluster, placement)):
                    found.add(SummaryKey(cluster, ref.namespace or REPORT_NAMESPACE, f"{item.uid}.{uid}"))
            self._add(found)

    def look_at_placement(self, cluster: str, placement: str) -> None:
        """A placement, or its destinations, changed."""
        content = self._placed.contents.get(cluster)
        items = content.items.items() if content is not None else ()
        self.look(cluster, [ref for ref, item in items if placement in item.selection.placements])
        self.look_at_sets(cluster)
        self._add(key for key in self._written.get(cluster, ()) if key.namespace == REPORT_NAMESPACE)

    def look_at_sets(self, cluster: str, ref: ObjectRef | None = None) -> None:
        """What is said of sets may have changed: of all, or of those with an object."""
        for placement in self._placed.topology.placements(cluster):
            uid = self._uid(cluster, placement.name)
            self._add(
                SummaryKey(cluster, REPORT_NAMESPACE, f"{set_uid(members)}.{uid}")
                for members in placement.upsync
                if uid and (ref is None or members.matches(ref))
            )

    def list(self, cluster: str) -> None:
        """A workspace was read: what is there from before the start is listed, once."""
        if cluster not in self._written:
            self.queue.add(SummaryKey(cluster))

    def look_at_all(self, cluster: str) -> None:
        """A mailbox of a workspace was read for the first time: many are soon after each other."""
        self.queue.add(SummaryKey(cluster), delay_s=BURST_S)

    def changed(self, change: Change) -> None:
        """Somebody wrote a summary, maybe this controller."""
        key = SummaryKey(change.cluster, change.namespace, change.name)
        written = self._written.get(change.cluster, {}).get(key)
        if written is None or written.revision == change.revision:
            return
        written.digest = ""
        self._add([key])

    def _add(self, keys: Iterable[SummaryKey]) -> None:
        for key in keys:
            self.queue.add(key, delay_s=BURST_S)

    def _uid(self, cluster: str, placement: str) -> str:
        obj = self._placed.topology.object_of(cluster, placement)
        return str(obj["metadata"]["uid"]) if obj is not None else ""

    # --- reconcile

    async def synced(self) -> None:
        """Wait until all placements and summaries' workspaces were seen."""
        await self._placed.topology.complete.wait()
        await self._view.complete.wait()

    async def reconcile(self, key: SummaryKey) -> Requeue:
        """Write or delete a summary."""
        client, content = self._view.client(key.cluster), self._placed.contents.get(key.cluster)
        if client is None:
            return None
        if not key.name:
            return await self._look_at_all(client, key.cluster)
        summaries = self._written.get(key.cluster)
        if summaries is None or (content is not None and not content.is_complete):
            # They are looked at once the workspace was read and listed.
            return None
        written, now_s = summaries.get(key), self.clock()
        if written is not None and (wait_s := _free_at_s(written, len(summaries)) - now_s) > 0:
            return wait_s
        found = self._subject(key)
        if found is None:
            return await self._delete(client, key, written is not None)
        if (wait_s := self._wait_s(found, now_s)) > 0:
            return wait_s
        return await self._write(client, key, found)

    async def _look_at_all(self, client: Client, cluster: str) -> Requeue:
        if cluster not in self._written:
            await self._list(client, cluster)
        content = self._placed.contents.get(cluster)
        self.look(cluster, list(content.items) if content is not None else ())
        self.look_at_sets(cluster)
        return None

    async def _list(self, client: Client, cluster: str) -> None:
        found: dict[SummaryKey, _Written] = {}
        async for page in client.pages(STATUS_SUMMARIES, limit=str(PAGE)):
            for obj in page["items"]:
                metadata = obj["metadata"]
                key = SummaryKey(cluster, metadata["namespace"], metadata["name"])
                since = _since(obj.get("brokenObjects") or ())
                found[key] = _Written(_digest(obj), int(metadata["resourceVersion"]), since=since)
        self._written[cluster] = {**found, **self._written.get(cluster, {})}
        self._add(found)

    def _subject(self, key: SummaryKey) -> Subjects | None:
        """Return what a summary is about, None if nothing any more."""
        uid, _, placement_uid = key.name.partition(".")
        placement = self._placed.topology.placement_with(key.cluster, placement_uid)
        if placement is None:
            return None
        for members in placement.upsync:
            if set_uid(members) == uid:
                ref = ObjectRef(members.api_group, ".".join(members.resources), "", "")
                subject = Subject(uid, placement.name, placement_uid, ref, set_title(members))
                return Subjects(key.cluster, subject, members)
        content = self._placed.contents.get(key.cluster)
        ref_of = content.by_uid.get(uid) if content is not None else None
        if content is None or ref_of is None or placement.name not in _summarized(content.items[ref_of]):
            return None
        return Subjects(key.cluster, Subject(uid, placement.name, placement_uid, ref_of, name_of(ref_of)))

    def _wait_s(self, of: Subjects, now_s: float) -> float:
        """Return how long to wait for mailboxes that were not read yet: what was said before the start may hold."""
        left_s = self._started_s + READ_S - now_s
        if left_s <= 0:
            return 0.0
        mailboxes = self._placed.topology.mailboxes(of.cluster, [of.subject.placement])
        return 0.0 if all(map(self._rows.is_read, mailboxes)) else left_s

    async def _delete(self, client: Client, key: SummaryKey, is_stored: bool) -> Requeue:
        if is_stored:
            try:
                await client.delete(STATUS_SUMMARIES, key.name, key.namespace)
            except NotFound:
                pass
            except Forbidden:
                return REFUSED
        summaries = self._written[key.cluster]
        summaries.pop(key, None)
        for keys in self._of.get(key.cluster, {}).values():
            keys.discard(key)
        if not summaries and not self._placed.topology.names(key.cluster):
            self._written.pop(key.cluster, None)
            self._of.pop(key.cluster, None)
        return None

    async def _write(self, client: Client, key: SummaryKey, of: Subjects) -> Requeue:
        found = await self._finder.find(of, time.time())
        summaries = self._written[key.cluster]
        written = summaries.setdefault(key, _Written())
        self._of[key.cluster][of.subject.ref].add(key)
        written.looked_s, written.copies = self.clock(), found.copies
        found.broken, written.since = _dated(found.broken, written.since)
        body = summary(of.subject, found)
        due_s = None if found.due_s is None else max(found.due_s - time.time(), WRITE_S)
        digest = _digest(body)
        if not written.digest and written.revision and await self._is_stored(client, key, digest):
            written.digest = digest
        if digest == written.digest:
            return due_s
        try:
            answer = await self._apply(client, key, {**body, "observedAt": times.now()})
        except (NotFound, Forbidden):
            # Its namespace is not there, or goes.
            return REFUSED
        written.digest, written.at_s = digest, self.clock()
        written.revision = int(answer["metadata"]["resourceVersion"])
        return due_s

    async def _is_stored(self, client: Client, key: SummaryKey, digest: str) -> bool:
        try:
            return _digest(await client.get(STATUS_SUMMARIES, key.name, key.namespace)) == digest
        except NotFound:
            return False

    async def _apply(self, client: Client, key: SummaryKey, body: Object) -> Object:
        try:
            return await client.apply(STATUS_SUMMARIES, body)
        except NotFound:
            if key.namespace != REPORT_NAMESPACE:
                raise
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": REPORT_NAMESPACE}}
        with suppress(AlreadyExists):
            await self._base.cluster(key.cluster).create(NAMESPACES, namespace)
        return await client.apply(STATUS_SUMMARIES, body)


def _summarized(item: Item) -> tuple[str, ...]:
    """Return the placements by which an object has summaries."""
    return item.selection.placements[:MAX_OF_OBJECT]


def _free_at_s(written: _Written, count: int) -> float:
    """Return when one of so many summaries may be made again, by the monotonic clock."""
    since_write_s = written.at_s + WRITE_S if written.at_s else 0.0
    return max(since_write_s, written.looked_s + written.copies * count * COPY_S)


def _digest(body: Object) -> str:
    return hashlib.sha256(encode_json(content_of(body))).hexdigest()[:32]


def _place(cluster: str, target: str, namespace: str, name: str) -> str:
    return f"{cluster}/{target}/{namespace}/{name}"


def _since(rows: Iterable[Object]) -> dict[str, str]:
    """Return since when the objects that a summary lists are broken."""
    return {
        _place(each["cluster"], each["syncTargetName"], each.get("namespace", ""), each["name"]): each["lastUpdate"]
        for each in rows
    }


def _dated(reports: Iterable[Report], before: Mapping[str, str]) -> tuple[list[Report], dict[str, str]]:
    """Return reports with the time since which each object is broken, and these times; a new one is as its report."""
    found, since, now = [], dict[str, str](), times.now()
    for each in reports:
        destination = each.destination
        place = _place(destination.cluster, destination.sync_target_name, each.ref.namespace, each.ref.name)
        since[place] = before.get(place) or each.since or now
        found.append(each if each.since == since[place] else msgspec.structs.replace(each, since=since[place]))
    return found, since
