"""WATCH: a cursor over the log, written to one client at its own pace.

Order of a stream: the current state as ADDED events if requested, one annotated bookmark, then every later change
exactly once. A bookmark carries the position that the cursor has read to, and is written like an event, so that it
never overtakes one. A slow client costs a position, not a queue. The events of a commit are sent in the wake-up itself;
the task of a watch goes on only for bookmarks, its end, slow clients and much to send.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.call.call import Call
from atoll.machinery.apiserver.call.in_slices import in_slices
from atoll.machinery.apiserver.call.negotiation import JSON, PROTOBUF
from atoll.machinery.apiserver.call.options import ListOptions, list_options
from atoll.machinery.apiserver.catalog import tables
from atoll.machinery.apiserver.catalog.selection import Selection, selection
from atoll.machinery.apiserver.filtered_rows.row_filter import Rows
from atoll.machinery.apiserver.rest import frames
from atoll.machinery.apiserver.rest.list import Convert
from atoll.machinery.meta.objects import encode_json, with_revision
from atoll.machinery.meta.status import ApiError, NotAcceptable
from atoll.machinery.storage.contract import Change, Cursor, Interest, Operation, RevisionCompacted, Scope
from atoll.machinery.wire.exchange import Exchange, Headers

BOOKMARK_INTERVAL_S = 60.0
BOOKMARK_LEAD_S = 2.0
MIN_TIMEOUT_S, MAX_TIMEOUT_S = 1800, 3600
#: Upper bound of timeoutSeconds: ending early is legal, and a watch must not outlive its certificate by years.
LONGEST_S = 7 * 24 * 3600
READ_LIMIT = 500
#: The event loop rounds timers to milliseconds: one may fire that much before its time.
_TIMER_STEP_S = 0.001
#: Bytes written at most before waiting for the client.
_DRAIN_BYTES = 1 << 20


class WatchRequest(msgspec.Struct, frozen=True):
    """A validated watch. `initial`: send the current state first; `mark`: and a bookmark at its end."""

    scope: Scope
    options: ListOptions
    chosen: Selection
    initial: bool
    mark: bool

    @property
    def timeout_s(self) -> float:
        asked = self.options.timeout_s
        return float(min(asked, LONGEST_S)) if asked else random.uniform(MIN_TIMEOUT_S, MAX_TIMEOUT_S)


def checked(call: Call) -> WatchRequest:
    """Validate a watch's options. Raises BadRequest, Invalid, NotAcceptable."""
    options = list_options(call.info.query, watch=True)
    if call.info.name and not options.field_selector:
        options = msgspec.structs.replace(options, field_selector=f"metadata.name={call.info.name}")
    if call.form.media_type not in {JSON, PROTOBUF}:
        raise NotAcceptable(f"only the following media types are accepted: {JSON}")
    legacy = options.initial_events is None and options.resource_version <= 0
    initial = legacy or bool(options.initial_events)
    return WatchRequest(
        call.scope,
        options,
        selection(call.kind, options, call.restrictions.labels),
        initial,
        initial and options.bookmarks,
    )


class Watch:
    """One watch being served. `run` ends when the client leaves, at the timeout, or when the history is compacted."""

    #: Called with the last revision read before its events are sent; may call `end`.
    recheck: Callable[[int], None] | None = None
    #: When it ends at the latest, in Unix seconds, unless 0.
    expires_s = 0.0

    def __init__(
        self, call: Call, store: Rows, request: WatchRequest, cache: frames.FrameCache, convert: Convert | None = None
    ) -> None:
        """`convert` converts stored objects to the call's version; the kind is then the bare one."""
        self._convert = convert
        self._call, self._store, self._request, self._cache = call, store, request, cache
        include = ""
        if call.form.transform == "Table":
            include = tables.include_object(call.info.query.get("includeObject", ""))
        kind = call.kind
        self._form = frames.FrameForm(kind.api_version, kind.plural, kind.identity, call.form, include, kind.mark)
        self._form_number = cache.number(self._form)
        self._encode = frames.object_encoder(kind, self._form)
        self._needs_columns = call.form.transform == "Table"
        #: Frames take long to make: the task makes them, beside the loop.
        self._is_binary = call.form.media_type == PROTOBUF
        self._line = partial(frames.framed, call.form) if self._is_binary else frames.line
        self._selects_all = request.chosen.is_everything
        self._ended = False
        #: Events above it are not sent, unless 0.
        self._last = 0
        self._due = 0.0
        self._cursor: Cursor | None = None
        #: Read during a wake-up, and left to the task.
        self._unsent: Sequence[Change] = ()

    async def run(self, exchange: Exchange) -> None:
        """Serve to the end, and finish the exchange."""
        lasts_s = self._request.timeout_s
        if self.expires_s:
            lasts_s = min(lasts_s, self.expires_s - time.time())
        deadline = asyncio.get_running_loop().time() + lasts_s
        try:
            revision = await self._initial(exchange)
            cursor = self._store.cursor(self._request.scope, revision, self._interest())
        except RevisionCompacted as error:
            self._fail(exchange, errors.watch_too_old(error))
            return
        try:
            await self._follow(exchange, cursor, deadline)
            exchange.finish()
        except RevisionCompacted as error:
            self._fail(exchange, errors.watch_too_old(error))
        finally:
            cursor.close()

    def _fail(self, exchange: Exchange, error: ApiError) -> None:
        exchange.write(frames.framed(self._call.form, frames.ERROR, encode_json(error.status())))
        exchange.finish()

    def _interest(self) -> Interest:
        """Return what wakes this watch. A conversion may change labels, so stored ones do not count then."""
        chosen = self._request.chosen
        return chosen.interest if self._convert is None else Interest(name=chosen.name)

    async def _initial(self, exchange: Exchange) -> int:
        """Send the current state if requested; return the revision that events continue from."""
        request = self._request
        if not request.initial:
            if request.options.resource_version > 0:
                return request.options.resource_version
            with self._store.snapshot() as snapshot:
                return snapshot.revision
        revision, after = 0, None
        while True:
            page = self._store.page(request.scope, at=revision, after=after)
            revision, after = page.revision, page.after
            await self._send_state(exchange, page.values if self._convert is None else await self._convert(page.values))
            await exchange.drain()
            if after is None:
                break
            await asyncio.sleep(0)
        if request.mark:
            self._write(exchange, frames.bookmark(self._call.kind, self._form, revision, initial_end=True))
        return revision

    async def _send_state(self, exchange: Exchange, values: list[bytes]) -> None:
        for frame in await in_slices(lambda: self._state(values)) if self._is_binary else self._state(values):
            self._write(exchange, frame)

    def _state(self, values: list[bytes]) -> list[bytes]:
        chosen, encode, line = self._request.chosen, self._encode, self._line
        return [line(frames.ADDED, encode(value)) for value in values if chosen.is_everything or chosen.matches(value)]

    def _write(self, exchange: Exchange, frame: bytes) -> None:
        if self._needs_columns:
            frame, self._needs_columns = frames.with_columns(self._call.kind, frame), False
        exchange.write(frame)

    async def _follow(self, exchange: Exchange, cursor: Cursor, deadline: float) -> None:
        """Send events until the end. One timer, for bookmarks and the end, nudges the cursor; nothing else waits."""
        loop = asyncio.get_running_loop()
        self._cursor = cursor
        bookmarks = self._request.options.bookmarks
        self._due = next_due(loop.time(), deadline, bookmarks=bookmarks)
        timer = call_not_before(loop, self._due, cursor.nudge)
        serve = partial(self._serve, exchange, cursor, loop) if self._convert is None else None
        try:
            while not exchange.closed:
                # Checked before the read, so that changes before the end are sent, the last deletions included.
                ending = self._ended
                left, self._unsent = self._unsent, ()
                changes = left or cursor.read(READ_LIMIT)
                if self.recheck is not None:
                    changes = self._allowed(changes, self.recheck)
                await self._send_changes(exchange, changes if self._convert is None else await self._converted(changes))
                if left or len(changes) >= READ_LIMIT:
                    continue
                if ending:
                    return
                if self._ended:
                    # Ended during a write, when there was no wait to nudge.
                    continue
                if loop.time() >= self._due:
                    if loop.time() >= deadline:
                        return
                    self._write(exchange, frames.bookmark(self._call.kind, self._form, cursor.position))
                    self._due = next_due(loop.time(), deadline, bookmarks=bookmarks)
                    timer = call_not_before(loop, self._due, cursor.nudge)
                # What was sent is not kept until the next change, which may come after hours.
                changes = ()
                await cursor.wait(serve)
        finally:
            timer.cancel()

    def end(self, at: int = 0) -> None:
        """End the stream cleanly from outside (drain, a removed kind), without events above revision `at` unless 0."""
        self._ended = True
        self._last = self._last or at
        if self._cursor is not None:
            self._cursor.nudge()

    def _allowed(self, changes: Sequence[Change], recheck: Callable[[int], None]) -> Sequence[Change]:
        """Return the changes that the watch may still send."""
        if changes:
            recheck(changes[-1].revision)
        if self._last:
            return [change for change in changes if change.revision <= self._last]
        return changes

    def _serve(self, exchange: Exchange, cursor: Cursor, loop: asyncio.AbstractEventLoop) -> bool:
        """Send the changes of a commit; false if the task must go on."""
        if self._ended or self._needs_columns or self._is_binary or loop.time() >= self._due:
            return False
        changes = cursor.read(READ_LIMIT)
        if not changes:
            return False
        if self.recheck is not None:
            changes = self._allowed(changes, self.recheck)
            if self._ended:
                self._unsent = changes
                return False
        shared = self._cache.joined.get((id(changes), self._form_number)) if self._selects_all else None
        joined = shared[1] if shared is not None else self._joined(changes)
        if joined is None or (joined and not exchange.write_now(joined)):
            self._unsent = changes
            return False
        return True

    def _joined(self, changes: Sequence[Change]) -> bytes | None:
        """Return the frames of changes, b"" if none is selected, None if they are too large to send at once."""
        if len(changes) >= READ_LIMIT or sum(len(change.after) for change in changes) > _DRAIN_BYTES:
            return None
        joined = b"".join(map(self._frame, changes))
        if self._selects_all:
            self._cache.add_joined(changes, self._form_number, joined)
        return joined

    def _frame(self, change: Change) -> bytes:
        """Return the frame of a change under this watch's selectors, b"" if it is none."""
        kind = _OPERATIONS[change.operation] if self._selects_all else self._transition(change)
        if not kind:
            return b""
        found = self._cache.find(change.revision, kind, self._form_number)
        return found or self._cache.add(change.revision, kind, self._form_number, self._encoded(change, kind))

    async def _binary_frame(self, change: Change) -> bytes:
        """Like `_frame`, but made beside the loop."""
        kind = _OPERATIONS[change.operation] if self._selects_all else self._transition(change)
        found = self._cache.find(change.revision, kind, self._form_number) if kind else b""
        if found is None:
            made = await in_slices(lambda: self._encoded(change, kind))
            found = self._cache.add(change.revision, kind, self._form_number, made)
        return found

    async def _send_changes(self, exchange: Exchange, changes: Sequence[Change]) -> None:
        size = 0
        for change in changes:
            if frame := await self._binary_frame(change) if self._is_binary else self._frame(change):
                self._write(exchange, frame)
                size += len(frame)
                if size > _DRAIN_BYTES:
                    await exchange.drain()
                    size = 0
        await exchange.drain()

    def _encoded(self, change: Change, kind: str) -> bytes:
        """Return the frame of a change; the first watcher makes it."""
        value = change.after
        if kind == frames.DELETED and change.operation is not Operation.DELETED:
            # The object left the selection: as in Kubernetes, send the selected image at the revision of the change.
            value = with_revision(change.before or change.after, change.revision)
        return self._line(kind, self._encode(value))

    async def _converted(self, changes: Sequence[Change]) -> Sequence[Change]:
        """Convert the images of changes to the request's version; only selectors read the earlier images."""
        assert self._convert is not None
        wanted = [] if self._request.chosen.is_everything else [each.before for each in changes if each.before]
        values = list(dict.fromkeys([*(each.after for each in changes), *wanted]))
        known = dict(zip(values, await self._convert(values), strict=True)) if values else {}
        return [
            msgspec.structs.replace(each, after=known[each.after], before=known.get(each.before or b"", each.before))
            for each in changes
        ]

    def _transition(self, change: Change) -> str:
        """Return the event type of a change under this watch's selectors, from the images before and after."""
        chosen = self._request.chosen
        before = change.before is not None and chosen.matches(change.before)
        after = change.operation is not Operation.DELETED and chosen.matches(change.after)
        if after:
            return frames.MODIFIED if before else frames.ADDED
        return frames.DELETED if before else ""


def call_not_before(loop: asyncio.AbstractEventLoop, moment: float, call: Callable[[], object]) -> asyncio.TimerHandle:
    """Schedule a call that finds `loop.time()` at `moment` or after it: nothing wakes a watch again that came early."""
    return loop.call_at(moment + _TIMER_STEP_S, call)


def next_due(now: float, deadline: float, *, bookmarks: bool) -> float:
    """Return the next time to wake: for a bookmark each minute and shortly before the end, or for the end."""
    lead = deadline - BOOKMARK_LEAD_S
    if not bookmarks or now >= lead:
        return deadline
    return min(now + BOOKMARK_INTERVAL_S, lead)


_OPERATIONS = {
    Operation.ADDED: frames.ADDED,
    Operation.MODIFIED: frames.MODIFIED,
    Operation.DELETED: frames.DELETED,
    Operation.MOVED: frames.MODIFIED,
}


def headers() -> Headers:
    """Return the reply headers of a stream."""
    return (("content-type", JSON),)
