"""What is found of one summary's subject at all destinations: reports, tables, and when something will count as broken.

`summaries` asks for it before it writes. Invariant: it is a question about what is known now, so what is asked twice
without a change is answered alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import TypeAlias

import msgspec

from atoll.edge.mailboxes import mailbox_name
from atoll.edge.placement_translator.placed import Placed
from atoll.edge.placement_translator.statuses import PATIENCE, PATIENT
from atoll.edge.summarizer.collected import Collected
from atoll.edge.summarizer.reports import Reports
from atoll.edge.summarizer.row import Row, kind_of
from atoll.edge.summarizer.rows import Rows
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.edge.placements import UpsyncSet
from atoll.machinery.edge.summaries.broken import Breakage
from atoll.machinery.edge.summaries.summary import Findings, Report, Subject
from atoll.machinery.edge.summaries.tables import table
from atoll.machinery.edge.where import Destination
from atoll.machinery.meta import times
from atoll.machinery.meta.objects import labels_of

#: Destinations between two moments for others.
_STRIDE = 200
SILENT = Breakage("Silent", "its syncer is not heard of")


#: A destination: the name of its mailbox, the logical cluster of that, and all of it.
_At: TypeAlias = tuple[str, str, Destination]


class Subjects(msgspec.Struct, frozen=True):
    """What a summary is about: the subject, its workspace, and the set if it is one."""

    cluster: str
    subject: Subject
    members: UpsyncSet | None = None


class Finder:
    """Answers for all summaries."""

    def __init__(self, placed: Placed, rows: Rows, collected: Collected, reports: Reports) -> None:
        self._placed, self._rows, self._collected, self._reports = placed, rows, collected, reports

    async def find(self, of: Subjects, now_s: float) -> Findings:
        """Return what is known of a subject."""
        destinations = list(self._placed.topology.destinations(of.cluster, of.subject.placement).items())
        found, rows = Findings(len(destinations), kind_of=partial(self._kind, of)), list[Row]()
        for start in range(0, len(destinations), _STRIDE):
            if start:
                await asyncio.sleep(0)
            part = destinations[start : start + _STRIDE]
            places = [(name, self._placed.topology.cluster_of(name), destination) for name, destination in part]
            current = self._current(of, [mailbox for _, mailbox, _ in places]) if of.members is None else set()
            for at in places:
                for ref, row in self._rows_of(of, at[1]):
                    if row is not None:
                        rows.append(row)
                        self._associate(of, at[2], row, found)
                    is_current = of.members is not None or at[1] in current
                    self._count(of, at, (ref, row, is_current), found, now_s)
        self._tabulate(of, await self._concerned(of, rows), rows, found)
        return found

    def _rows_of(self, of: Subjects, mailbox: str) -> Iterable[tuple[ObjectRef, Row | None]]:
        """Return the rows in one mailbox: that of the object, or those of the members of a set."""
        if of.members is None:
            ref = of.subject.ref
            return ((ref, self._rows.get(mailbox, ref, of.cluster)),)
        return [
            (ref, rows[of.cluster])
            for ref, rows in self._rows.of(mailbox).items()
            if of.members.matches(ref) and of.cluster in rows and not self._placed.sources(mailbox, ref)
        ]

    def _count(
        self, of: Subjects, at: _At, seen: tuple[ObjectRef, Row | None, bool], found: Findings, now_s: float
    ) -> None:
        """Add a copy, or what came up, at one destination."""
        (name, mailbox, destination), (ref, row, is_current) = at, seen
        breakage, since = self._refusal(name, mailbox, ref), ""
        if breakage is None and row is not None:
            breakage, since = self._tested(of, row), row.returned_at
            due_s = (times.parse_time(since) or now_s) + breakage.after_s if breakage is not None else now_s
            if due_s > now_s:
                breakage, found.due_s = None, min(due_s, found.due_s or due_s)
        found.copies += 1
        found.reported += is_current or (row is not None and row.is_reported)
        found.up_to_date += is_current
        if breakage is not None:
            kind = row.kind if row is not None else None
            found.broken.append(Report(destination, ref, kind, breakage, since))

    def _current(self, of: Subjects, mailboxes: Iterable[str]) -> set[str]:
        """Return the mailboxes whose edge clusters have an object as it is in the workspace.

        Its records say when it was written last, and are not read where no copy of the placement was written since.
        """
        ref, placement, found, unclear = of.subject.ref, (of.cluster, of.subject.placement), set[str](), list[str]()
        content, projection = self._placed.contents.get(of.cluster), self._placed.projection
        is_looked_at = content is not None and ref not in content.changing
        for mailbox in mailboxes:
            report, state = self._reports.get(mailbox), projection.state(mailbox)
            if not report.applied or not report.is_whole or (report.errors and report.breakage(ref) is not None):
                continue
            if state is None or ref in state.failures or ref in state.due.refs or state.due.is_moved:
                continue
            is_certain = is_looked_at and not state.is_busy
            if is_certain and projection.copies.is_written(mailbox, placement, report.applied):
                found.add(mailbox)
            else:
                unclear.append(mailbox)
        revisions = zip(unclear, self._placed.records.written(unclear, ref), strict=True)
        return found.union(each for each, written in revisions if 0 < written <= self._reports.get(each).applied)

    def _refusal(self, name: str, mailbox: str, ref: ObjectRef) -> Breakage | None:
        """Return what keeps an object from an edge cluster, or its state from being known."""
        report, state = self._reports.get(mailbox), self._placed.projection.state(mailbox)
        failure = state.failures.get(ref) if state is not None else None
        if failure is not None and (failure.reason != PATIENT or failure.count >= PATIENCE):
            return Breakage(failure.reason, failure.message)
        if report.errors and (refused := report.breakage(ref)) is not None:
            return refused
        return SILENT if self._placed.topology.is_silent(name) else None

    def _tested(self, of: Subjects, row: Row) -> Breakage | None:
        """Return what tests say: those of collectors, if there are any, else those of the kind."""
        collectors = self._collected.of(of.cluster)
        asked = [
            row.broken[name]
            for name in row.concerned
            if name in row.broken and name in collectors and collectors[name].is_for(of.subject.placement)
        ]
        if asked:
            return next((each for each in asked if each is not None), None)
        return row.broken.get("")

    def _kind(self, of: Subjects, report: Report) -> tuple[str, str]:
        """Return apiVersion and kind of a copy without a row: by its record, or as its workspace serves it."""
        content = self._placed.contents.get(of.cluster)
        served = content.kinds.get(report.ref.kind) if content is not None else None
        if served is None:
            return "", ""
        destination, ref = report.destination, report.ref
        name = mailbox_name(destination.cluster, destination.sync_target_uid)
        record = self._placed.records.get(self._placed.topology.cluster_of(name), ref)
        version = record.version if record is not None else served.resource.version
        return kind_of(f"{ref.group}/{version}".removeprefix("/"), served.kind)

    def _associate(self, of: Subjects, destination: Destination, row: Row, found: Findings) -> None:
        """Add what belongs to an object at one destination, if a collector asks for it."""
        collectors, state = self._collected.of(of.cluster), row.state
        found_by = [collectors[name] for name in row.concerned if name in collectors]
        if state is None or not any(each.associated and each.is_for(of.subject.placement) for each in found_by):
            return
        found.associated.update(state.counts)
        found.left_out += state.left_out
        for each in state.broken:
            breakage = Breakage(each.reason, each.message)
            found.failing.append(Report(destination, each.ref, each.kind, breakage, each.since))

    async def _concerned(self, of: Subjects, rows: list[Row]) -> set[str]:
        """Return the names of the collectors that are about a subject, also while there is nothing to collect."""
        found, collectors = {name for row in rows for name in row.concerned}, self._collected.of(of.cluster)
        if of.members is not None:
            return found.union(name for name, each in collectors.items() if each.concerns_set(of.members))
        ref = of.subject.ref
        if not rows and any(each.covers(*ref.kind) for each in collectors.values()):
            labels = labels_of(await self._placed.contents.source(of.cluster, ref) or {"metadata": {}})
            return {name for name, each in collectors.items() if each.concerns(ref, labels)}
        return found

    def _tabulate(self, of: Subjects, concerned: set[str], rows: list[Row], found: Findings) -> None:
        """Add the table of each collector, and how many broken objects they want to see."""
        for name, each in sorted(self._collected.of(of.cluster).items()):
            if name not in concerned or not each.is_for(of.subject.placement):
                continue
            found.max_broken = max(found.max_broken, each.max_broken)
            if not each.has_table():
                continue
            errors: dict[str, str] = {}
            cells = [cell for row in rows if (cell := row.cells.get(name)) is not None]
            found.tables.append(table(each, cells, errors))
            self._collected.failed((of.cluster, name), of.subject.name, errors)
