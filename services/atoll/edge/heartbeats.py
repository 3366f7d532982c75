"""Heartbeats of syncers: the Lease that each renews in its mailbox, and what SyncTarget and SyncerConfig say of it.

Leases of all mailboxes come by the export's view, which claims them. The moment of a renewal is its resourceVersion, as
a revision counts microseconds of the center's clock: what an edge cluster takes for the time does not matter.
Invariant: nothing is written but a change of health and, every five minutes or a little later, the time. A missing list
has it written once it is there. A renewal is looked at only when the one before it would be overdue.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import suppress

import structlog

from atoll.edge.export_view import UNREAD
from atoll.edge.kinds import LEASES, SYNC_TARGETS, SYNCER_CONFIGS
from atoll.machinery.client.client import Client
from atoll.machinery.client.informer import Head, Informer, head, key_of
from atoll.machinery.control.queue import Requeue, WorkQueue
from atoll.machinery.edge.names import LEASE_NAME, LEASE_NAMESPACE, THE_ONE
from atoll.machinery.meta import times
from atoll.machinery.meta.conditions import ERROR, FALSE, READY, TRUE, Condition, is_true, with_conditions
from atoll.machinery.meta.objects import Object, status_of
from atoll.machinery.meta.status import NotFound
from atoll.machinery.process.backoff import Backoff

log = structlog.get_logger()

#: Name and namespace of the Lease.
SILENT_S, REFRESH_S = 90.0, 300.0
HEALTHY, TIME = "HeartbeatHealthy", "lastSyncerHeartbeatTime"
#: When to look again for the list of a mailbox whose syncer came first.
UNLISTED = Backoff(1.0, 15.0)


class Heartbeats:
    """The controller. The key is the logical cluster of a mailbox.

    `target_of` returns the SyncTarget of one, `client_of` a client of a workspace, `shard_of` that of its shard, and
    `keys` all of them.
    """

    name = "heartbeats"

    def __init__(
        self,
        client_of: Callable[[str], Client | None],
        target_of: Callable[[str], Object | None],
        shard_of: Callable[[str], Client | None],
        keys: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self.keys = keys
        self._client_of, self._target_of, self._shard_of = client_of, target_of, shard_of
        self.queue: WorkQueue[str] = WorkQueue()
        self._informers: dict[Client, Informer] = {}
        #: Mailbox -> seconds since 1970 of the last renewal.
        self._renewals: dict[str, float] = {}
        #: Mailboxes whose list was not there to be written.
        self._unlisted: set[str] = set()
        #: Mailboxes that are looked at before their syncer would be overdue, so that a renewal changes nothing.
        self._awaited: set[str] = set()

    async def follow(self, client: Client) -> None:
        """Watch the Leases on one shard, until cancelled."""
        if client not in self._informers:
            options = {"fieldSelector": f"metadata.name={LEASE_NAME}"}
            self._informers[client] = Informer(client.reduced(Head), LEASES, self._seen, head, **options)
        await self._informers[client].run()

    async def synced(self) -> None:
        """Wait until the Leases of all shards were seen."""
        for informer in list(self._informers.values()):
            await informer.synced.wait()

    def _seen(self, old: Object | None, new: Object | None) -> None:
        cluster, namespace, _ = key_of(new or old or {})
        if namespace != LEASE_NAMESPACE:
            return
        if new is None:
            self._renewals.pop(cluster, None)
        else:
            self._renewals[cluster] = int(new["metadata"]["resourceVersion"]) / 1e6
        if new is None or cluster not in self._awaited:
            self.queue.add(cluster)

    async def reconcile(self, mailbox: str) -> Requeue:
        """Write what a heartbeat, or its absence, changes; return when the next one is overdue."""
        self._awaited.discard(mailbox)
        target, renewed_s, now_s = self._target_of(mailbox), self._renewals.get(mailbox), time.time()
        if target is None:
            self._unlisted.discard(mailbox)
            return None
        if renewed_s is None and not self._has_read(mailbox):
            return UNREAD
        status = heartbeat_status(status_of(target), renewed_s, now_s)
        if status != status_of(target):
            await self._write(mailbox, target, status)
        elif mailbox in self._unlisted:
            await self._write_list(mailbox, status)
        if mailbox in self._unlisted:
            return UNLISTED
        left_s = renewed_s + SILENT_S - now_s if renewed_s is not None else 0.0
        if left_s <= 0:
            return None
        self._awaited.add(mailbox)
        return left_s

    def _has_read(self, mailbox: str) -> bool:
        """Whether the Leases on the shard of a mailbox were seen."""
        shard = self._shard_of(mailbox)
        informer = self._informers.get(shard) if shard is not None else None
        return informer is not None and informer.synced.is_set()

    async def _write(self, mailbox: str, target: Object, status: Object) -> None:
        cluster, _, name = key_of(target)
        inventory = self._client_of(cluster)
        if inventory is None or self._client_of(mailbox) is None:
            return
        is_healthy = is_true(status["conditions"], HEALTHY)
        if is_healthy != is_true(status_of(target).get("conditions") or (), HEALTHY):
            log.info("heartbeat", mailbox=mailbox, healthy=is_healthy)
        await self._write_list(mailbox, status)
        changed = {key: status.get(key) for key in (TIME, "conditions")}
        with suppress(NotFound):
            await inventory.patch(SYNC_TARGETS, name, {"status": changed}, subresource="status")

    async def _write_list(self, mailbox: str, status: Object) -> None:
        """Write the time into the list of a mailbox, or note that it is not there."""
        inside = self._client_of(mailbox)
        if inside is None:
            return
        try:
            await inside.patch(SYNCER_CONFIGS, THE_ONE, {"status": {TIME: status.get(TIME)}}, subresource="status")
        except NotFound:
            self._unlisted.add(mailbox)
        else:
            self._unlisted.discard(mailbox)


def heartbeat_status(status: Object, renewed_s: float | None, now_s: float) -> Object:
    """Return the status of a SyncTarget whose syncer was heard last at `renewed_s`; None: its Lease is not there.

    A syncer that was never heard says nothing. The time is brought up to date with the health, or when it is
    `REFRESH_S` old.
    """
    if renewed_s is None and TIME not in status:
        return status
    is_healthy = renewed_s is not None and now_s - renewed_s < SILENT_S
    conditions = [Condition(HEALTHY, TRUE), Condition(READY, TRUE)]
    if not is_healthy:
        text = f"no heartbeat of the syncer for {SILENT_S:.0f} seconds"
        conditions = [Condition(kind, FALSE, "ErrorHeartbeat", text, ERROR) for kind in (HEALTHY, READY)]
    found = with_conditions(status, times.now(), *conditions)
    written_s = times.parse_time(status.get(TIME, "")) or 0.0
    if renewed_s is not None and (found != status or renewed_s - written_s >= REFRESH_S):
        found = {**found, TIME: times.format_time(int(renewed_s))}
    return found
