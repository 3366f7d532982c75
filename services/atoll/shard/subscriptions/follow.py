"""FOLLOW: the changes of one subscription as JSON documents, over the connection that asked for them.

    documents  RESYNC if changes before the beginning are missing, every change once and in order, a BOOKMARK when all
               that was there has been sent and then every ten seconds, CLOSED if the right is lost

One cursor over the log for each resource, merged by revision: no consumer, nothing on NATS, and nothing kept once the
client left. An identity's documents of other shards come between (`remote_follow`). `view` begins it once all
that is asked for was granted. A slow client costs a position, not a queue.
Invariant: before changes are sent, what decided about them is checked up to the last of them; a right that may be lost
is decided again first, and nothing is sent without it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, closing
from typing import Any, NamedTuple

from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.serving.open_watches import OpenWatches, StillAllowed
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.storage.contract import Change, Cursor, RevisionCompacted, Scope, Store, StoreIdentity
from atoll.machinery.stream.events import NO_HOLE, Event, Operation
from atoll.machinery.stream.subjects import CHANGES
from atoll.machinery.stream.tenants.structured_events import (
    BOOKMARK,
    CLOSED,
    RESYNC,
    Origin,
    encode_change,
    encode_control,
)
from atoll.machinery.wire.exchange import Exchange
from atoll.shard.subscriptions.access_check import AccessDecision
from atoll.shard.subscriptions.follow_request import SERVER_SENT_EVENTS, FollowRequest, Start
from atoll.shard.subscriptions.limits import CHECK_S
from atoll.shard.subscriptions.remote_follow import OtherShardsEvents, OtherShardsParts, is_part

BOOKMARK_S = 10.0
READ_LIMIT = 500
#: Changes that wait for slower cursors of the same request, at most as many as one read of each brings.
_MAX_PENDING = 8 * READ_LIMIT
_DRAIN_BYTES = 1 << 20
_OPERATIONS = {operation.value: operation for operation in Operation}


class Followed(NamedTuple):
    """What every process of a shard has to serve it: the store, its open watches, the kind that those are told, and
    how other shards are asked."""

    store: Store
    watches: OpenWatches
    kind: Kind
    remote: OtherShardsEvents | None = None


class Follow:
    """One answer. `decide` answers the question at the latest state; `ends_s` is when it ends at the latest, in Unix
    seconds."""

    def __init__(
        self,
        followed: Followed,
        request: FollowRequest,
        decision: AccessDecision,
        decide: Callable[[], Awaitable[AccessDecision]],
        ends_s: float,
    ) -> None:
        self._followed, self._request, self._decision, self._decided = followed, request, decision, decide
        identity = followed.store.identity
        self._identity: StoreIdentity = identity
        self._origin = Origin(identity.shard, identity.shard_uid, identity.lineage)
        self._cluster = request.question.cluster
        self._scope_cluster = "" if request.question.identity else self._cluster
        self._full = {each.type for each in decision.selected if each.full}
        self._news = asyncio.Event()
        self._in_doubt, self._ended = False, False
        self._ends_s, self._check_at_s = ends_s, time.time() + CHECK_S
        self._parts = self._of_other_shards()
        #: Every change at or below it was sent, and where to go on after the last document of this shard.
        self._sent, self._mark = 0, ""

    def _of_other_shards(self) -> OtherShardsParts | None:
        remote, question = self._followed.remote, self._request.question
        if remote is None or not question.identity or is_part(question):
            return None
        return remote.parts(self._request, self._decision, self._news.set)

    # --- `open_watches.Watch`

    def end(self, at: int = 0) -> None:
        """The workspace is closed for watches, or may be."""
        self._doubt()

    def holds(self, view: View) -> bool:
        """`StillAllowed.holds`: decided before anything more is sent."""
        self._doubt()
        return True

    def _doubt(self) -> None:
        self._in_doubt = True
        self._news.set()

    def finish(self) -> None:
        """End cleanly: the process stops, or the time is over."""
        self._ended = True
        self._news.set()

    # --- serving

    async def run(self, exchange: Exchange) -> None:
        """Serve to the end, and finish the exchange. Raises ConnectionResetError."""
        exchange.on_drain(self.finish)
        self._register()
        try:
            revision = self._sent = self._begin(exchange, self._request.start)
            self._mark = self._mark or self._origin.mark(revision)
            while not await self._follow(exchange, revision):
                revision = self._sent
            exchange.finish()
        finally:
            self._followed.watches.drop(self._cluster, self)
            if self._parts is not None:
                await self._parts.close()

    def _register(self) -> None:
        still = StillAllowed(self.holds, self._decision.sources, foreign=True)
        self._followed.watches.add(self._cluster, self._followed.kind, self, still)

    def _begin(self, exchange: Exchange, start: Start) -> int:
        """Return the revision to begin after; send a RESYNC for a mark of another history."""
        now = self._revision()
        if not start.marks:
            return min(start.moment(), now) if start.ago_s else now
        for uid, lineage, revision in start.marks:
            if (uid, lineage) == (self._identity.shard_uid, self._identity.lineage) and revision <= now:
                return revision
        self._resync(exchange, now, "the mark is of another shard or of another history")
        return now

    def _revision(self) -> int:
        with self._followed.store.snapshot() as snapshot:
            return snapshot.revision

    def _resync(self, exchange: Exchange, revision: int, reason: str) -> None:
        self._sent = revision
        self._tell(exchange, RESYNC, revision, reason=reason)

    async def _follow(self, exchange: Exchange, revision: int) -> bool:
        """Send what comes after a revision; return False to go on after what was sent, as history went."""
        with ExitStack() as stack:
            try:
                cursors = [stack.enter_context(closing(cursor)) for cursor in self._cursors(revision)]
                return await self._merge(exchange, cursors)
            except RevisionCompacted as error:
                there = error.oldest - 1
                if there <= max(revision, self._sent):
                    there = self._revision()
                self._resync(exchange, there, "the log does not reach back as far")
                return False

    def _cursors(self, revision: int) -> list[Cursor]:
        scopes = [Scope(each.type, self._scope_cluster) for each in self._decision.selected]
        return [self._followed.store.cursor(scope, revision) for scope in scopes]

    async def _merge(self, exchange: Exchange, cursors: Sequence[Cursor]) -> bool:
        """Send changes of all cursors in order, until the end."""
        waiting, pending = _Waits(cursors, self._news), list[Change]()
        bookmark_at_s = 0.0
        try:
            while not exchange.closed:
                self._news.clear()
                ending = self._ended or time.time() >= self._ends_s
                more = _read(cursors, pending)
                horizon = min(cursor.position for cursor in cursors)
                ready = [change for change in pending if change.revision <= horizon]
                pending = [change for change in pending if change.revision > horizon]
                if not await self._is_allowed(exchange, horizon):
                    return True
                await self._send(exchange, sorted(ready, key=lambda change: change.revision))
                self._sent = max(self._sent, horizon)
                await self._send_parts(exchange)
                if more:
                    await asyncio.sleep(0)
                    continue
                if ending or time.monotonic() >= bookmark_at_s:
                    if self._parts is not None:
                        self._parts.look()
                    self._tell(exchange, BOOKMARK, self._sent)
                    bookmark_at_s = time.monotonic() + BOOKMARK_S
                if ending:
                    return True
                await exchange.drain()
                until_s = min(self._check_at_s, self._ends_s) - time.time()
                await waiting.for_news(max(0.0, min(until_s, bookmark_at_s - time.monotonic())))
        finally:
            await waiting.close()
        return True

    async def _is_allowed(self, exchange: Exchange, revision: int) -> bool:
        """Whether changes up to a revision may be sent; tells the client if not."""
        self._followed.watches.check_up_to(revision)
        if not self._in_doubt and time.time() < self._check_at_s:
            return True
        self._in_doubt, self._check_at_s = False, time.time() + CHECK_S
        before, now = self._decision, await self._decided()
        if now.state == "Active" and (now.selected, now.refused) == (before.selected, before.refused):
            if now.sources != before.sources:
                self._followed.watches.drop(self._cluster, self)
                self._decision = now
                self._register()
            return True
        state = "Revoked" if now.state == "Active" else now.state
        reason = now.reason or "; ".join(each.message for each in now.refused) or "what was asked for has changed"
        self._tell(exchange, CLOSED, self._sent, state=state, reason=reason)
        return False

    async def _send(self, exchange: Exchange, changes: Sequence[Change]) -> None:
        size = 0
        for change in changes:
            if change.revision <= self._sent:
                continue
            document = self._document(change)
            self._write(exchange, document, self._origin.mark(change.revision))
            size += len(document)
            if size > _DRAIN_BYTES:
                await exchange.drain()
                size = 0
        if changes:
            await exchange.drain()

    async def _send_parts(self, exchange: Exchange) -> None:
        """Send what came of other shards; what decides about it was checked a moment ago."""
        if self._parts is None:
            return
        for document in self._parts.take():
            self._write(exchange, document)
        await exchange.drain()

    def _document(self, change: Change) -> bytes:
        identity = self._identity
        event = Event(
            kind=CHANGES,
            operation=_OPERATIONS[change.operation],
            shard=identity.shard,
            shard_uid=identity.shard_uid,
            lineage=identity.lineage,
            epoch=identity.epoch,
            revision=change.revision,
            previous=change.previous_of_type,
            key=change.key,
            payload=change.after,
            sealed=change.sealed,
            hole=NO_HOLE,
            crc=change.crc,
        )
        before = change.before if self._request.previous and change.before is not None else b""
        return encode_change(event, full=change.key.type in self._full, before=before)

    def _tell(self, exchange: Exchange, operation: str, revision: int, *, state: str = "", reason: str = "") -> None:
        document = encode_control(self._origin, operation, revision, state=state, reason=reason)
        self._write(exchange, document, self._origin.mark(revision, operation))

    def _write(self, exchange: Exchange, document: bytes, mark: str = "") -> None:
        """Send a document, of this shard with its `id`. A client goes on after what it had of all shards."""
        self._mark = mark or self._mark
        if self._request.media_type == SERVER_SENT_EVENTS:
            marks = (self._mark, *self._parts.marks) if self._parts is not None else (self._mark,)
            exchange.write(b"id: %s\ndata: %s\n\n" % (",".join(marks).encode(), document))
        else:
            exchange.write(document + b"\n")


def _read(cursors: Sequence[Cursor], pending: list[Change]) -> bool:
    """Read from all cursors, of those that are ahead only while little is pending; return whether there is more."""
    more, behind = False, min(cursor.position for cursor in cursors)
    for cursor in cursors:
        if len(pending) < _MAX_PENDING or cursor.position == behind:
            found = cursor.read(READ_LIMIT)
            pending += found
            more = more or len(found) >= READ_LIMIT
        else:
            more = True
    return more


class _Waits:
    """The waits of several cursors, and for an event."""

    def __init__(self, cursors: Sequence[Cursor], news: asyncio.Event) -> None:
        self._cursors, self._news = cursors, news
        self._tasks: list[asyncio.Task[Any]] = []

    async def for_news(self, timeout_s: float) -> None:
        """Return when any of them has news, or after the time."""
        self._tasks = [asyncio.create_task(self._news.wait())]
        self._tasks += [asyncio.ensure_future(cursor.wait()) for cursor in self._cursors]
        await asyncio.wait(self._tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        await self.close()

    async def close(self) -> None:
        """End the waits."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
