"""One resource, listed in pages and then watched: every object goes to a sink, none is kept.

`Mailbox` follows what goes down, `Edge` each kind that is synced. Invariants: after any interruption the sink has
been told of each object's last state or of its end; a watch that broke resumes from its revision, and only one whose
revision is gone (410), or not reached by a server that was restored, is listed again, page by page.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import structlog

from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import Resource
from atoll.machinery.edge.failures import UNAVAILABLE_CODES, Failure, refused
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import ApiError
from atoll.machinery.process.backoff import Backoff
from atoll.machinery.wire.pending_response import ClientError

log = structlog.get_logger()

PAGE = "250"
MAX_DELAY_S = 30.0
BACKOFF = Backoff(0.2, MAX_DELAY_S, least=0.75)

#: Namespace and name.
Key = tuple[str, str]


class Sink(Protocol):
    """Takes what a follower reads. Its methods must not block."""

    def changed(self, obj: Object) -> None:
        """An object is new or changed, or is only listed again."""

    def gone(self, obj: Object) -> None:
        """An object is gone; this is its last state."""

    def complete(self, keys: set[Key]) -> None:
        """A list was read whole: objects with other keys are gone."""

    def reached(self, revision: str) -> None:
        """All up to this revision was told."""


def key_of(obj: Object) -> Key:
    """Return the key of an object."""
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


class Follower:
    """`failure` is the reason why the state is not current, empty while it is."""

    def __init__(self, client: Client, resource: Resource, sink: Sink, **options: str) -> None:
        self._client, self._resource, self._sink, self._options = client, resource, sink, options
        self._revision, self._failures = "", 0
        self.failure = "not read yet"
        #: What the server refuses for good, as far as is known.
        self.refusal: Failure | None = None
        #: Called when the server turns out to be an older state of itself, before it is listed. None: it never is.
        self.restored: Callable[[], None] | None = None

    async def run(self) -> None:
        """Follow until cancelled; interruptions back off up to 30 s."""
        while True:
            wait_s = 0.0
            try:
                if self.failure and self.restored is not None and await self._is_passed():
                    self._revision = ""
                    self.restored()
                if not self._revision:
                    await self._list()
                await self._watch()
                reason = ""
            except ApiError as error:
                if error.code == 410:
                    self._revision = ""
                elif error.code not in UNAVAILABLE_CODES:
                    self._refused(refused("list", error))
                wait_s, reason = float(error.details.retry_after_s), error.message
            except (ClientError, TimeoutError, OSError) as error:
                reason = str(error) or type(error).__name__
            self.failure = reason
            delay_s = min(max(wait_s, BACKOFF.delay_s(self._failures)), MAX_DELAY_S)
            self._failures += 1
            if reason:
                log.info("watch interrupted", resource=self._resource.plural, reason=reason, again_s=round(delay_s, 3))
            await asyncio.sleep(delay_s)

    async def _is_passed(self) -> bool:
        """Whether more was told before the interruption than the server has now: a watch from there would be silent."""
        if not self._revision:
            return False
        page = await self._client.request("GET", self._resource.path(), {**self._options, "limit": "1"})
        return int(page["metadata"]["resourceVersion"]) < int(self._revision)

    def _refused(self, failure: Failure) -> None:
        """Take a refusal; the first of several stands for all, so that a report of it does not change."""
        before = self.refusal
        if before is None or (before.reason, before.message) != (failure.reason, failure.message):
            self.refusal = failure

    async def _list(self) -> None:
        keys: set[Key] = set()
        options = {**self._options, "limit": PAGE}
        while True:
            page = await self._client.page(self._resource.path(), options)
            lead = {"apiVersion": page["apiVersion"], "kind": str(page["kind"]).removesuffix("List")}
            # An empty list of metadata has null.
            for item in page["items"] or ():
                obj = item if "kind" in item else {**lead, **item}
                keys.add(key_of(obj))
                self._sink.changed(obj)
            token = page["metadata"].get("continue")
            if not token:
                break
            options["continue"] = token
        self._revision = page["metadata"]["resourceVersion"]
        # In this order: what is to be done because of the list has its revision.
        self._sink.reached(self._revision)
        self._sink.complete(keys)

    async def _watch(self) -> None:
        options = {**self._options, "resourceVersion": self._revision}
        async with self._client.watch(self._resource, **options) as events:
            self.failure, self.refusal = "", None
            async for event in events:
                self._failures = 0
                if event.type == "DELETED":
                    self._sink.gone(event.object)
                elif event.type != "BOOKMARK":
                    self._sink.changed(event.object)
                self._revision = event.object["metadata"]["resourceVersion"]
                self._sink.reached(self._revision)
