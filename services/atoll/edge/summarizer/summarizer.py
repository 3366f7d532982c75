"""The status summarizer: joins its controllers, and hands each change to those that it concerns.

The process makes one beside the placement translator, which tells it what changes. Invariant: it acts by its own
account alone, which reads mailboxes, writes summaries, and no object that is placed.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import Any

from atoll.edge.changes import Change
from atoll.edge.edge_data import EdgeData
from atoll.edge.export_view import ExportView
from atoll.edge.kinds import ASSOCIATED_STATES, STATUS_COLLECTORS, STATUS_SUMMARIES
from atoll.edge.placement_translator.observer import Observer
from atoll.edge.placement_translator.placed import Placed
from atoll.edge.summarizer.collected import Collected
from atoll.edge.summarizer.findings import Finder
from atoll.edge.summarizer.reports import Reports
from atoll.edge.summarizer.rows import Rows
from atoll.edge.summarizer.summaries import Summaries
from atoll.machinery.client.client import Client
from atoll.machinery.client.informer import key_of
from atoll.machinery.client.resource import Resource
from atoll.machinery.edge.associated import query_row
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.meta.objects import Object


class StatusSummarizer(Observer):
    """All of it. `client` is of its account."""

    name = "status-summarizer"

    def __init__(self, client: Client, export: str, placed: Placed) -> None:
        self._placed = placed
        self._reports = Reports()
        self.view = ExportView(client, export, (STATUS_COLLECTORS,), self._control_changed)
        self._collected = Collected(self.view, self._collectors_changed, self._collectors_complete)
        data = EdgeData(client, self.view)
        self._rows = Rows(data, placed, self._collected, self._row_changed)
        finder = Finder(placed, self._rows, self._collected, self._reports)
        self._summaries = Summaries(client, self.view, placed, self._rows, finder)
        self.controllers = (self._collected, self._rows, self._summaries)

    def watches(self) -> list[Coroutine[Any, Any, None]]:
        """Return what to run in the background."""
        return [self.view.run()]

    def _control_changed(self, kind: Resource, old: Object | None, new: Object | None) -> None:
        cluster, _, name = key_of(new or old or {})
        if kind == STATUS_COLLECTORS:
            self._collected.put(cluster, name, new)
        elif self._placed.contents.get(cluster) is not None:
            # Its workspace may be reached from now on.
            self._summaries.list(cluster)

    # --- what its parts tell

    def _collectors_complete(self) -> None:
        for mailbox in self._placed.projection.active():
            self._placed.projection.relist(mailbox)

    def _collectors_changed(self, cluster: str) -> None:
        for mailbox in self._placed.topology.mailboxes(cluster, self._placed.topology.names(cluster)):
            self._placed.projection.relist(mailbox)
        self._rows.look_at_all(cluster)
        content = self._placed.contents.get(cluster)
        self._summaries.look(cluster, content.items if content is not None else ())
        self._summaries.look_at_sets(cluster)

    def _row_changed(self, mailbox: str, ref: ObjectRef | None) -> None:
        for cluster in self._placed.topology.senders(mailbox):
            if ref is None:
                self._summaries.look_at_all(cluster)
            else:
                self._summaries.look(cluster, [ref])
                self._summaries.look_at_sets(cluster, ref)

    # --- what the translator tells

    def content_changed(self, cluster: str, refs: Iterable[ObjectRef]) -> None:
        """Objects are sent otherwise than before."""
        self._summaries.look(cluster, refs)
        self._summaries.list(cluster)

    def placement_changed(self, cluster: str, placement: str, mailboxes: Iterable[str]) -> None:
        """A placement, or its destinations, changed; something else may come up in these mailboxes."""
        for mailbox in mailboxes:
            self._rows.reread(mailbox)
        self._summaries.look_at_placement(cluster, placement)

    def copies_changed(self, mailbox: str, refs: Iterable[ObjectRef]) -> None:
        """Objects of a mailbox were looked at."""
        self._rows.look(mailbox, refs)

    def report_changed(self, mailbox: str, config: Object | None) -> None:
        """The syncer of a mailbox said something else."""
        is_new = self._reports.put(mailbox, config)
        if is_new is None or not self._rows.is_read(mailbox):
            # All of it is looked at once it was read.
            return
        written = dict.fromkeys(self._rows.of(mailbox), 0)
        written |= {ref: record.written for ref, record in self._placed.records.of(mailbox).items()}
        changed = [ref for ref, revision in written.items() if is_new(ref, revision)]
        for cluster in self._placed.topology.senders(mailbox):
            self._summaries.look(cluster, changed)

    def silence_changed(self, mailbox: str) -> None:
        """The syncer of a mailbox is heard of again, or not any more."""
        for cluster in self._placed.topology.senders(mailbox):
            self._summaries.look(cluster, [*self._placed.projection.copies.wanted(mailbox), *self._rows.of(mailbox)])

    def mailbox_gone(self, mailbox: str) -> None:
        """A mailbox is gone."""
        self._rows.forget(mailbox)
        self._reports.put(mailbox, None)

    def own_changed(self, change: Change) -> None:
        """An object of the edge API changed in a workspace or a mailbox."""
        if change.resource == STATUS_SUMMARIES.plural:
            self._summaries.changed(change)
        elif change.resource == ASSOCIATED_STATES.plural:
            self._rows.look_at_state(change.cluster, change.namespace, change.name)

    def associated(self, mailbox: str) -> list[Object] | None:
        """Return what the collectors of workspaces ask of a mailbox's syncer, None before all are known."""
        if not self._collected.is_complete:
            return None
        return [
            query_row(cluster, each.spec)
            for cluster, placements in sorted(self._placed.topology.senders(mailbox).items())
            for _, each in sorted(self._collected.of(cluster).items())
            if each.associated and any(map(each.is_for, placements))
        ]

    def reread(self) -> None:
        """Anything may have changed."""
        self._rows.reread()
