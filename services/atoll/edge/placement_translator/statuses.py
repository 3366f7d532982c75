"""The controller of EdgePlacement.status: numbers, conditions, and an Event when a condition needs its owner.

Keys are placements. It asks `topology`, `contents` and `projection`, and what syncers report. Invariant: a status that
holds is not written again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

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
BURST_S, DESTINATION_S = 0.2, 0.0001
#: Destinations that are looked at before others go on.
STRIDE = 200
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
        #: Mailbox -> what is known of its SyncerConfig's status.
        self._reports: dict[str, _Report] = {}

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
        before = self._reports.pop(mailbox, None)
        if status:
            self._reports[mailbox] = _report(status)
        if status != (before.status if before is not None else {}):
            self.look_at_mailbox(mailbox)

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
        status = status_with(obj, await self._projected(cluster, name, content))
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
        left_s = self._started_s + READ_S - time.monotonic()
        if left_s <= 0 or all(map(self.projection.is_read, self._topology.mailboxes(cluster, [name]))):
            return 0.0
        return left_s

    async def _projected(self, cluster: str, name: str, content: Content) -> Projected:
        """Return what is known of a placement; who changes something meanwhile has it looked at again."""
        placement = self._topology.placement(cluster, name)
        placements = [] if placement is None else [placement]
        asked = {key for key in content.forbidden if _is_about(key, placements)}
        states, up_to_date = dict[str, DestinationState](), 0
        sends = partial(content.sends, placement=name)
        for count, (mailbox, destination) in enumerate(self._topology.destinations(cluster, name).items(), 1):
            state = self._destination((cluster, name), mailbox, destination, sends)
            if state is None:
                up_to_date += 1
            else:
                states[mailbox] = state
            if count % STRIDE == 0:
                await asyncio.sleep(0)
        contested = self._contested(cluster, name, content)
        objects, kinds = content.count(name), not_carried(placements)
        lacking = [states[each] for each in sorted(states)]
        return Projected(bool(placements), objects, asked, kinds, lacking, contested, up_to_date)

    def _contested(self, cluster: str, name: str, content: Content) -> tuple[str, ...]:
        conflicts = self.projection.copies.composition.conflicts
        if not conflicts.has_any(cluster):
            return ()
        found = conflicts.of(cluster, self._topology.mailboxes(cluster, [name]))
        rows = sorted((ref, each) for ref, each in found.items() if content.sends(ref, name))
        return tuple(f"{name_of(ref)}: {each[0].field} of workspace {each[0].winner}" for ref, each in rows)

    def _destination(self, key: Key, name: str, destination: Destination, sends: Sends) -> DestinationState | None:
        """Return how far a destination is, None if it lacks nothing. It costs what fails there, not what is sent."""
        mailbox = self._topology.cluster_of(name)
        state, report = self.projection.state(mailbox), self._reports.get(mailbox)
        if not mailbox or state is None:
            return DestinationState(destination.sync_target_name)
        is_silent = report is None or self._topology.is_silent(name)
        written = max(state.listed, self.projection.copies.written(mailbox, key))
        is_applied = report is not None and report.is_whole and report.applied >= written
        rows = report.rows if report is not None else ()
        if is_applied and not is_silent and not rows and not state.failures and state.is_done:
            return None
        failures = {ref: each for ref, each in state.failures.items() if sends(ref)}
        refused = {
            ref: f"{each.reason}: {each.message}"
            for ref, each in failures.items()
            if each.reason != PATIENT or each.count >= PATIENCE
        }
        is_projected = state.is_done and not failures
        errors = edge_errors(rows, sends)
        return DestinationState(destination.sync_target_name, refused, errors, is_projected, is_silent, is_applied)


class _Report(NamedTuple):
    """The status of a SyncerConfig; `applied` is -1 if it says none.

    What was tried counts as applied, and not all that fails may be told: then `is_whole` is false.
    """

    status: Object
    applied: int
    rows: Sequence[Object]
    is_whole: bool


def _report(status: Object) -> _Report:
    applied, rows = str(status.get("appliedRevision") or ""), status.get("errors") or ()
    return _Report(status, int(applied) if applied.isdecimal() else -1, rows, len(rows) < MAX_ROWS)


def _is_about(kind: Kind, placements: list[Placement]) -> bool:
    """Whether placements ask for a kind that may not be read, or for those that it defines."""
    if kind == EVERY_KIND or kind in DEFINERS:
        return True
    return any(test.covers(*kind) for each in placements for test in each.downsync)
