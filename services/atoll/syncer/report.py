"""What the center is told: the status of SyncerConfig `the-one`, and Events on what was adopted.

Invariant: a status that did not change is not written, so a quiet syncer writes nothing but its Lease. One that finds
another edge cluster at work for its mailbox writes a condition alone, which the other takes away now and then: it is
there again as long as there are two.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping
from importlib import metadata
from typing import Any, Protocol

import structlog

from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import Resource
from atoll.machinery.edge.failures import Failure, error_rows
from atoll.machinery.edge.names import SYNCER, THE_ONE, ObjectRef
from atoll.machinery.meta import times
from atoll.machinery.meta.conditions import FALSE, TRUE, Condition, is_true, remove, set_condition
from atoll.machinery.meta.objects import Object, conditions_of, status_of
from atoll.machinery.meta.status import ApiError
from atoll.machinery.process.backoff import Backoff
from atoll.machinery.wire.pending_response import ClientError
from atoll.syncer.mailbox import CONFIGS, Mailbox

log = structlog.get_logger()

EVENTS = Resource("", "v1", "events")
INTERVAL_S = 1.0
DUPLICATE, DUPLICATE_S = "DuplicateEdge", 600.0
_BACKOFF = Backoff(1.0, 30.0)
_OWN = ("appliedRevision", "edgeUID", "syncerVersion", "errors", "conditions")


class Progress(Protocol):
    """What there is to report."""

    @property
    def applied(self) -> int: ...
    @property
    def failures(self) -> Mapping[ObjectRef, Failure]: ...
    @property
    def may_report(self) -> bool: ...
    @property
    def rival(self) -> str: ...


class Report:
    """Writes the status whenever it differs; `is_writer` says whether this process may."""

    def __init__(self, client: Client, mailbox: Mailbox, progress: Progress, edge_uid: str) -> None:
        self._client, self._mailbox, self._progress, self._edge_uid = client, mailbox, progress, edge_uid
        self._version = metadata.version("atoll")
        #: What there was to report when nothing of it was new.
        self._reported: tuple[Object, int, int, Mapping[ObjectRef, Failure]] | None = None
        #: When the condition about another edge cluster was seen first.
        self._duplicate_at_s: float | None = None

    async def run(self) -> None:
        """Report until cancelled."""
        failures = 0
        while True:
            try:
                await self._write()
                failures, delay_s = 0, INTERVAL_S
            except (ApiError, ClientError, TimeoutError, OSError) as error:
                delay_s, failures = _BACKOFF.delay_s(failures), failures + 1
                log.info("status not reported", reason=str(error) or type(error).__name__)
            await asyncio.sleep(delay_s)

    async def adopted(self, ref: ObjectRef, obj: Object) -> None:
        """Tell that an object at the edge was there before. Best effort, as for all Events."""
        now = times.now()
        regarding = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": ref.name}
        if ref.namespace:
            regarding["namespace"] = ref.namespace
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{ref.name[:200]}.{secrets.token_hex(8)}", "namespace": ref.namespace or "default"},
            "involvedObject": regarding,
            "type": "Normal",
            "reason": "Adopted",
            "message": "The object was at the edge before; it is synced from now on, and stays when it is withdrawn.",
            "source": {"component": SYNCER},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            await self._client.create(EVENTS, event)
        except (ApiError, ClientError, TimeoutError) as error:
            log.info("event not written", reason=str(error) or type(error).__name__)

    async def _write(self) -> None:
        config = self._mailbox.the_one()
        if config is None or not self._mailbox.is_complete:
            return
        if not self._progress.may_report:
            await self._write_duplicate(config)
            return
        progress, before = self._progress, status_of(config)
        seen = config, progress.applied, self._mailbox.last_change, progress.failures
        if self._reported is not None and config is self._reported[0] and seen[1:] == self._reported[1:]:
            return
        status = self._status(config)
        if self._is_covered(before.get("appliedRevision"), status["appliedRevision"]):
            said = {**status, "appliedRevision": before["appliedRevision"]}
        else:
            said = status
        if all(before.get(name) == said[name] for name in _OWN if said[name] or before.get(name)):
            # What another edge cluster said of itself goes after a time.
            self._reported = None if is_true(conditions_of(config), DUPLICATE) else seen
            return
        answer = await self._client.patch(CONFIGS, THE_ONE, {"status": status}, subresource="status")
        self._mailbox.keep_config(answer)

    async def _write_duplicate(self, config: Object) -> None:
        """Tell that the syncer of another edge cluster holds the Lease, if one does and that is not told."""
        before, rival = conditions_of(config), self._progress.rival
        if not rival or is_true(before, DUPLICATE):
            return
        text = f"edge cluster {self._edge_uid} is registered too, and does nothing: {rival} works for the SyncTarget"
        told = Condition(DUPLICATE, TRUE, "AnotherEdgeCluster", text)
        status = {"conditions": set_condition(before, told, times.now())}
        self._mailbox.keep_config(await self._client.patch(CONFIGS, THE_ONE, {"status": status}, subresource="status"))

    def _conditions(self, config: Object) -> list[Object]:
        """Return the conditions to go on from: what another edge cluster says of itself goes after a while."""
        found = list(conditions_of(config))
        if not is_true(found, DUPLICATE):
            self._duplicate_at_s = None
            return found
        now_s = time.monotonic()
        self._duplicate_at_s = now_s if self._duplicate_at_s is None else self._duplicate_at_s
        is_old = now_s - self._duplicate_at_s >= DUPLICATE_S
        return remove(found, DUPLICATE) if is_old else found

    def _is_covered(self, before: Any, now: str) -> bool:
        """Whether what was reported covers all changes: each report has a revision too, which tells nothing new."""
        last = self._mailbox.last_change
        return str(before).isdecimal() and min(int(before), int(now)) >= last

    def _status(self, config: Object) -> Object:
        errors = error_rows(self._progress.failures)
        message = f"{len(self._progress.failures)} fail, such as {_named(errors[0])}" if errors else ""
        synced = Condition("Synced", FALSE if errors else TRUE, "Failing" if errors else "Synced", message)
        return {
            "appliedRevision": str(self._progress.applied),
            "edgeUID": self._edge_uid,
            "syncerVersion": self._version,
            "errors": errors,
            "conditions": set_condition(self._conditions(config), synced, times.now()),
        }


def _named(row: Object) -> str:
    """Return what a row of errors is about: an object, or all of a kind."""
    return str(row["name"] or row["resource"])
