"""Watch cursors: a position in the log and a wake-up registration.

A watch handler reads, writes the result to its client, and waits; the hub wakes it when a commit changes its scope.
Recent changes come from the ring in memory, older ones from the log. Invariant: a cursor is registered before its first
read; it returns the log of its scope in order, each change once; its position never passes what it read. Cursors with
the same scope and position share one reading of the ring between two commits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from atoll.machinery.storage.contract import EVERYTHING, Change, Interest, RevisionCompacted, Scope
from atoll.machinery.storage.encoding import keys
from atoll.machinery.storage.encoding.rows import unpack_counter, unpack_head
from atoll.machinery.storage.environment.type_table import NO_TYPE
from atoll.machinery.storage.reading.log_reader import LogReader
from atoll.machinery.storage.reading.records import Records
from atoll.machinery.storage.watching.hub import Hub

if TYPE_CHECKING:
    from atoll.machinery.storage.environment.lmdb_types import Txn


#: Log rows of one read, before it returns to the loop.
SCAN_ROWS = 1000
#: Ring rows of one read; they cost a tenth.
_RING_ROWS = 10_000
#: Links of a chain, or rows of a prefix, that may be followed instead of the log.
_DETOUR_ROWS = 2000
#: Watches served in one loop turn, so that requests are served in between: 128 events take some ms of TLS.
_SERVED_A_TURN = 128


class Cursors:
    """Makes cursors over one environment and hub."""

    def __init__(self, records: Records, history: LogReader, hub: Hub) -> None:
        self.records, self.environment, self.history, self.hub = records, records.environment, history, hub
        #: Cursors to serve in the next loop turn, after what an earlier commit woke.
        self.queue: deque[LmdbCursor] = deque()

    def open(self, scope: Scope, revision: int, interest: Interest = EVERYTHING) -> LmdbCursor:
        """`contract.Store.cursor`."""
        cursor = LmdbCursor(self, scope, revision, interest)
        try:
            cursor.resume()
        except BaseException:
            cursor.close()
            raise
        return cursor

    def serve(self) -> None:
        """Serve queued cursors without their tasks, which go on where that is not possible."""
        queue, floor = self.queue, self.hub.ring.floor
        for _ in range(min(len(queue), _SERVED_A_TURN)):
            cursor = queue.popleft()
            cursor.queued = False
            serve, waiter = cursor.serve, cursor.waiter
            if serve is None or waiter is None or waiter.done():
                continue
            error = None
            try:
                if cursor.position >= floor and serve():
                    continue
            except Exception as raised:
                error = raised
            # Serving may have ended the task: a write can lose the client.
            if waiter.done():
                continue
            if error is not None:
                waiter.set_exception(error)
            else:
                waiter.set_result(None)
        if queue:
            asyncio.get_running_loop().call_soon(self.serve)


class LmdbCursor:
    """One watch. Belongs to the event loop of its hub."""

    __slots__ = (
        "_cursors",
        "_detour",
        "_hub",
        "_interest",
        "_pending",
        "_scope",
        "position",
        "queued",
        "serve",
        "waiter",
    )

    def __init__(self, cursors: Cursors, scope: Scope, revision: int, interest: Interest) -> None:
        self._cursors, self._hub, self._scope, self._interest = cursors, cursors.hub, scope, interest
        self.position = revision
        self._pending = True
        self._detour = True
        #: Of a pending `wait`.
        self.waiter: asyncio.Future[None] | None = None
        self.serve: Callable[[], bool] | None = None
        self.queued = False
        self._hub.register(scope, self, interest)

    # --- wake-up

    def wake(self, nothing_before: int) -> None:
        """A commit changed the scope. `mark` and `nudge` in one call, as each event takes it for each watch."""
        if not self._pending:
            self._pending = True
            self.position = max(self.position, nothing_before)
        waiter = self.waiter
        if waiter is None or self.queued:
            return
        queue = self._cursors.queue
        if queue and self.serve is not None and not waiter.done():
            queue.append(self)
            self.queued = True
        else:
            self.nudge()

    def mark(self, nothing_before: int) -> None:
        """A commit changed the scope; the hub calls `nudge` later."""
        if not self._pending:
            self.position = max(self.position, nothing_before)
            self._pending = True

    def nudge(self) -> None:
        """`contract.Cursor.nudge`."""
        waiter = self.waiter
        if waiter is None or self.queued or waiter.done():
            return
        if self.serve is None:
            waiter.set_result(None)
            return
        queue = self._cursors.queue
        if not queue:
            # In a turn of its own: tasks that an earlier commit woke, as those that end watches, run before.
            asyncio.get_running_loop().call_soon(self._cursors.serve)
        queue.append(self)
        self.queued = True

    async def wait(self, serve: Callable[[], bool] | None = None) -> None:
        """`contract.Cursor.wait`; always yield to the loop."""
        if self._pending:
            await asyncio.sleep(0)
            return
        self.waiter = asyncio.get_running_loop().create_future()
        self.serve = serve
        try:
            await self.waiter
        finally:
            self.waiter = self.serve = None

    def attend(self, waiter: asyncio.Future[None]) -> bool:
        """`contract.LogCursor.attend`."""
        if not self._pending:
            self.waiter = waiter
        return not self._pending

    def leave(self) -> None:
        """`contract.LogCursor.leave`."""
        self.waiter = None

    def close(self) -> None:
        """Unregister. Idempotent."""
        self._hub.unregister(self._scope, self, self._interest)

    # --- reading

    def resume(self) -> None:
        """Check the revision to continue from. Raise RevisionCompacted."""
        environment = self._cursors.environment
        with environment.reading() as txn:
            environment.require_not_void(txn, self.position)
            last = self._scope_last(txn)
            if last is not None and last <= self.position:
                self.position = max(self.position, environment.last(txn))
            elif self.position < (compacted := environment.compacted(txn)):
                raise RevisionCompacted(self.position, compacted)

    def _scope_last(self, txn: Txn) -> int | None:
        number = self._cursors.environment.type_table.number(txn, self._scope.type)
        if number == NO_TYPE:
            return None
        key = keys.cluster_row_key(self._scope.cluster, number)
        row = txn.get(key, db=self._cursors.environment.clusters)
        return unpack_counter(row).last if row is not None else None

    def read(self, limit: int = 500) -> Sequence[Change]:
        """`contract.Cursor.read`."""
        if not self._pending:
            self.position = max(self.position, self._hub.last)
            return ()
        shared = self._hub.readings.get((self._scope, self._interest.name, self.position, limit))
        if shared is not None:
            found, self.position, self._pending = shared
            return found
        if self.position >= self._hub.ring.floor:
            reading = self._scope, self._interest.name, self.position, limit
            found = tuple(self._read_ring(limit))
            self._hub.readings[reading] = found, self.position, self._pending
            return found
        return self._read_log(limit)

    def _read_ring(self, limit: int) -> list[Change]:
        scope = self._scope
        found: list[Change] = []
        type, cluster, namespace, name = scope.type, scope.cluster, scope.namespace, self._interest.name
        changes = self._hub.ring.above(self.position, _RING_ROWS)
        for change in changes:
            if len(found) >= limit:
                return found
            self.position = change.revision
            key = change.key
            if key.type != type or (cluster and key.cluster != cluster):
                continue
            if (not namespace or key.namespace == namespace) and (not name or key.name == name):
                found.append(change)
        if len(changes) >= _RING_ROWS:
            return found
        self.position = max(self.position, self._hub.last)
        self._pending = False
        return found

    def _read_log(self, limit: int) -> list[Change]:
        environment, history = self._cursors.environment, self._cursors.history
        with environment.reading() as txn:
            end = environment.last(txn)
            if self.position < (compacted := environment.compacted(txn)):
                last = self._scope_last(txn)
                if last is None or last > self.position:
                    raise RevisionCompacted(self.position, compacted)
                self.position = end
                return []
            revisions, reached = self._matching(txn, limit, end)
            found = []
            for revision in revisions:
                entry = self._cursors.records.entry(txn, revision)
                assert entry is not None
                found.append(history.change(txn, revision, entry))
        self.position = reached
        self._pending = reached < end
        return found

    def _matching(self, txn: Txn, limit: int, end: int) -> tuple[list[int], int]:
        """Return at most `limit` revisions in scope above the position, and how far the log was read."""
        prefix = self._prefix(txn)
        found, reached = self._scan(txn, prefix, limit)
        if reached is None:
            return found, end
        if len(found) >= limit or not self._detour:
            return found, reached
        detour = self._by_detour(txn, prefix)
        if detour is None:
            # The scope itself changes often: from now on reading the log is cheaper.
            self._detour = False
            return found, reached
        return detour[:limit], end if len(detour) <= limit else detour[limit - 1]

    def _prefix(self, txn: Txn) -> bytes:
        number = self._cursors.environment.type_table.number(txn, self._scope.type)
        return keys.scope_prefix(number, self._scope)

    def _scan(self, txn: Txn, prefix: bytes, limit: int) -> tuple[list[int], int | None]:
        """Read some rows of the log. The second result is how far, None if to the end."""
        found: list[int] = []
        reached = self.position
        for scanned, (revision, raw) in enumerate(self._cursors.history.rows(txn, self.position)):
            if scanned >= SCAN_ROWS or len(found) >= limit:
                return found, reached
            if keys.in_scope(unpack_head(raw).key, self._scope, prefix):
                found.append(revision)
            reached = revision
        return found, None

    def _by_detour(self, txn: Txn, prefix: bytes) -> list[int] | None:
        """Return revisions in scope without reading the log between them; None if that is no shorter."""
        history, scope = self._cursors.history, self._scope
        if scope.cluster and not scope.namespace:
            return history.chain(txn, scope, self.position, _DETOUR_ROWS)
        if scope.namespace and not scope.cluster:
            return None
        return history.versions_above(txn, prefix, self.position, _DETOUR_ROWS)
