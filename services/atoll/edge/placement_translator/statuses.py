"""The controller of EdgePlacement.status: numbers, conditions, and an Event when a condition needs its owner.

Keys are placements. It asks `topology`, `contents` and `projection`, and what syncers report. Invariant: a status that
holds is not written again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from functools import partial

from atoll.edge.events import tell
from atoll.edge.export_view import ExportView
from atoll.edge.heartbeats import TIME
from atoll.edge.kinds import PLACEMENTS
from atoll.edge.placement_translator.content import DEFINERS, Content, Kind
from atoll.edge.placement_translator.contents import Contents
from atoll.edge.placement_translator.placement_status import (
    PROJECTED,
    SYNCED,
    DestinationState,
    Projected,
    Sends,
    edge_errors,
    name_of,
    status_with,
)
from atoll.edge.placement_translator.projection import Projection
from atoll.edge.placement_translator.reading import EVERY_KIND, not_carried
from atoll.edge.placement_translator.topology import Topology
from atoll.machinery.control.queue import Requeue, WorkQueue
from atoll.machinery.edge.failures import MAX_ROWS
from atoll.machinery.edge.placements import Placement
from atoll.machinery.edge.where import Destination, Key
from atoll.machinery.meta.objects import Object, status_of
from atoll.machinery.meta.status import Conflict, NotFound

#: How long a status waits for more changes, and for each destination, of which all are looked at.
BURST_S, DESTINATION_S = 0.2, 0.0002
#: How long after a start a status waits for mailboxes to be read.
READ_S = 30.0
COMPONENT = "placement-translator"
#: A kind that was just defined in a mailbox is not served at once.
PATIENT, PATIENCE = "NotFound", 3
#: Reasons without an Event: others tell of them, or their owner cannot do anything.
_QUIET = frozenset({"DestinationsSilent", "Invalid"})


class Statuses:
    """The controller."""

    name = "placement-translator-statuses"

    def __init__(self, view: ExportView, topology: Topology, contents: Contents) -> None:
        self._view, self._topology, self._contents = view, topology, contents
        self.queue: WorkQueue[Key] = WorkQueue(in_turn=True)
        self._started_s = time.monotonic()
        #: Set before the first reconcile.
        self.projection: Projection
        #: Mailbox -> status of its SyncerConfig.
        self._reports: dict[str, Object] = {}

    def look(self, cluster: str, placements: Iterable[str]) -> None:
        """Something of placements changed."""
        for each in placements:
            delay_s = max(BURST_S, DESTINATION_S * len(self._topology.destinations(cluster, each)))
            self.queue.add((cluster, each), delay_s=delay_s)

    def look_at_mailbox(self, mailbox: str) -> None:
        """Something of a mailbox changed."""
        for cluster, placements in self._topology.senders(mailbox).items():
            self.look(cluster, placements)

    def set_report(self, mailbox: str, config: Object | None) -> None:
        """Take over what a syncer says, and that it was heard; when it was heard says nothing of its objects."""
        status = {} if config is None else status_of(config)
        if TIME in status:
            status = {**status, TIME: ""}
        if status != self._reports.get(mailbox, {}):
            self._reports[mailbox] = status
            self.look_at_mailbox(mailbox)
        if not status:
            self._reports.pop(mailbox, None)

    async def synced(self) -> None:
        """Wait until all placements and mailboxes were seen."""
        await self._topology.complete.wait()

    async def reconcile(self, key: Key) -> Requeue:
        """Write the status of a placement if it differs."""
        cluster, name = key
        obj, client, content = self._topology.object_of(*key), self._view.client(cluster), self._contents.get(cluster)
        if obj is None or client is None or content is None or not content.is_complete:
            return None
        if status_of(obj).get("specGeneration") != obj["metadata"]["generation"]:
            # Where it goes is not known yet: it would be said to be everywhere.
            return None
        if (wait_s := self._wait_s(cluster, name)) > 0:
            return wait_s
        status = status_with(obj, self._projected(cluster, name, content))
        if status == status_of(obj):
            return None
        # Others write other fields of it.
        metadata = {"resourceVersion": obj["metadata"]["resourceVersion"]}
        with suppress(NotFound, Conflict):
            await client.patch(PLACEMENTS, name, {"metadata": metadata, "status": status}, subresource="status")
            await tell(client, obj, status, (PROJECTED, SYNCED), COMPONENT, _QUIET)
        return None

    def _wait_s(self, cluster: str, name: str) -> float:
        """Return how long to wait for mailboxes that were not read yet: what was said before the start may hold."""
        mailboxes = self._topology.mailboxes(cluster, [name])
        if all(self.projection.is_read(each) for each in mailboxes):
            return 0.0
        return self._started_s + READ_S - time.monotonic()

    def _projected(self, cluster: str, name: str, content: Content) -> Projected:
        placement = self._topology.placement(cluster, name)
        placements = [] if placement is None else [placement]
        asked = {key for key in content.forbidden if _is_about(key, placements)}
        found = self._topology.destinations(cluster, name)
        sends = partial(content.sends, placement=name)
        states = tuple(self._destination((cluster, name), *each, sends) for each in sorted(found.items()))
        contested = self._contested(cluster, name, content)
        return Projected(bool(placements), content.count(name), asked, not_carried(placements), states, contested)

    def _contested(self, cluster: str, name: str, content: Content) -> tuple[str, ...]:
        mailboxes = self._topology.mailboxes(cluster, [name])
        found = self.projection.copies.composition.conflicts.of(cluster, mailboxes)
        rows = sorted((ref, each) for ref, each in found.items() if content.sends(ref, name))
        return tuple(f"{name_of(ref)}: {each[0].field} of workspace {each[0].winner}" for ref, each in rows)

    def _destination(self, key: Key, name: str, destination: Destination, sends: Sends) -> DestinationState:
        """Return how far a destination is. It costs what fails there, however much is sent."""
        mailbox = self._topology.cluster_of(name)
        state = self.projection.state(mailbox)
        if not mailbox or state is None:
            return DestinationState(destination.sync_target_name)
        report = self._reports.get(mailbox, {})
        failures = {ref: each for ref, each in state.failures.items() if sends(ref)}
        refused = {
            ref: f"{each.reason}: {each.message}"
            for ref, each in failures.items()
            if each.reason != PATIENT or each.count >= PATIENCE
        }
        rows = report.get("errors") or ()
        errors = edge_errors(rows, sends)
        written = max(state.listed, self.projection.copies.written(mailbox, key))
        is_projected = state.is_done and not failures
        applied = str(report.get("appliedRevision") or "")
        return DestinationState(
            destination.sync_target_name,
            refused,
            errors,
            is_projected,
            self._topology.is_silent(name) or not report,
            # What was tried counts as applied, and not all that fails may be told.
            applied.isdecimal() and int(applied) >= written and len(rows) < MAX_ROWS,
        )


def _is_about(kind: Kind, placements: list[Placement]) -> bool:
    """Whether placements ask for a kind that may not be read, or for those that it defines."""
    if kind == EVERY_KIND or kind in DEFINERS:
        return True
    return any(test.covers(*kind) for each in placements for test in each.downsync)
