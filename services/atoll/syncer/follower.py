"""One resource, listed in pages and then watched: every object goes to a sink, none is kept.

`Mailbox` follows what goes down, `Edge` each kind that is synced. Invariants: after any interruption the sink has
been told of each object's last state or of its end; a watch that broke resumes from its revision, and only one whose
revision is gone (410), or not reached by a server that was restored, is listed again, page by page. A list that broke
goes on behind its last page, also at a later revision; it is then whole once a watch from its first page has caught up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set
from typing import Protocol

import msgspec
import structlog

from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import Resource, WatchEvent
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

    def complete(self, keys: Set[Key]) -> None:
        """A list was read whole: objects with other keys are gone."""

    def reached(self, revision: str) -> None:
        """All up to this revision was told."""


def key_of(obj: Object) -> Key:
    """Return the key of an object."""
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


class _Listing(msgspec.Struct):
    """A list that is not whole yet: its keys, the token of its next page, the revisions of its first and last page."""

    #: Each with the revision that its last state, or its end, was told of.
    keys: dict[Key, int] = {}
    token: str = ""
    first: int = 0
    last: int = 0

    def takes(self, event: WatchEvent) -> bool:
        """Take an event from behind the first page; whether it is news of its object."""
        if event.type == "BOOKMARK":
            return True
        key, revision = key_of(event.object), int(event.object["metadata"]["resourceVersion"])
        # One at the revision of a page may stem from the change behind it, as items that a SyncerConfig shows or hides.
        if revision < self.keys.get(key, 0):
            return False
        self.keys[key] = revision
        return True


class Follower:
    """`failure` is the reason why the state is not current, empty while it is."""

    def __init__(self, client: Client, resource: Resource, sink: Sink, **options: str) -> None:
        self._client, self._resource, self._sink, self._options = client, resource, sink, options
        self._revision, self._failures = "", 0
        self._listing: _Listing | None = None
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
                    self._reset()
                    self.restored()
                if not self._revision:
                    await self._list()
                await self._watch()
                reason = "" if self._listing is None else "the list is not whole yet"
            except ApiError as error:
                if error.continue_token and self._listing is not None:
                    # It is too old to go on at its revision.
                    self._listing.token = error.continue_token
                elif error.code not in UNAVAILABLE_CODES:
                    self._ended(error)
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
        reached = int(self._revision or (self._listing.last if self._listing is not None else 0))
        if not reached:
            return False
        page = await self._client.request("GET", self._resource.path(), {**self._options, "limit": "1"})
        return int(page["metadata"]["resourceVersion"]) < reached

    def _reset(self) -> None:
        self._revision, self._listing = "", None

    def _ended(self, error: ApiError) -> None:
        """Take an answer that nothing goes on behind: a revision that is gone, a token that is no good, a refusal."""
        if error.code == 410 or not self._revision:
            self._reset()
        if error.code != 410:
            self._refused(refused("list", error))

    def _refused(self, failure: Failure) -> None:
        """Take a refusal; the first of several stands for all, so that a report of it does not change."""
        before = self.refusal
        if before is None or (before.reason, before.message) != (failure.reason, failure.message):
            self.refusal = failure

    async def _list(self) -> None:
        listing = self._listing = self._listing or _Listing()
        options = {**self._options, "limit": PAGE}
        while True:
            page = await self._client.page(
                self._resource.path(), {**options, "continue": listing.token} if listing.token else options
            )
            listing.last = int(page["metadata"]["resourceVersion"] or 0)
            listing.first = listing.first or listing.last
            lead = {"apiVersion": page["apiVersion"], "kind": str(page["kind"]).removesuffix("List")}
            # An empty list of metadata has null.
            for item in page["items"] or ():
                obj = item if "kind" in item else {**lead, **item}
                listing.keys[key_of(obj)] = listing.last
                self._sink.changed(obj)
            listing.token = page["metadata"].get("continue", "")
            if not listing.token:
                break
        self._revision = str(listing.first)
        self._reached()

    def _reached(self) -> None:
        """Tell the revision, once all up to it was told."""
        listing = self._listing
        if listing is not None and int(self._revision) < listing.last:
            return
        # In this order: what is to be done because of a list has its revision.
        self._sink.reached(self._revision)
        if listing is not None:
            self._listing = None
            self._sink.complete(listing.keys.keys())

    async def _watch(self) -> None:
        options = {**self._options, "resourceVersion": self._revision}
        async with self._client.watch(self._resource, **options) as events:
            self.refusal = None
            if self._listing is None:
                self.failure = ""
            async for event in events:
                self._failures = 0
                if self._listing is None or self._listing.takes(event):
                    self._tell(event)
                self._revision = event.object["metadata"]["resourceVersion"]
                self._reached()
                if self._listing is None:
                    self.failure = ""

    def _tell(self, event: WatchEvent) -> None:
        if event.type == "DELETED":
            self._sink.gone(event.object)
        elif event.type != "BOOKMARK":
            self._sink.changed(event.object)
