"""The reading half of a store, the same in the writer's process and in an API worker.

`LmdbStore` and `WorkerStore` derive from it and add `submit`. Each read opens its own short transaction on the
environment of this process; wake-ups come from the hub. Invariant: nothing here writes.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

from atoll.machinery.storage.contract import (
    EVERYTHING,
    Change,
    Interest,
    LogEntry,
    Page,
    Position,
    Scope,
    StoreIdentity,
)
from atoll.machinery.storage.environment.databases import Environment
from atoll.machinery.storage.options import StoreOptions
from atoll.machinery.storage.reading.lists import Bounds, Lists
from atoll.machinery.storage.reading.log_reader import LogReader
from atoll.machinery.storage.reading.records import Alarm, Records
from atoll.machinery.storage.reading.snapshot import LmdbSnapshot
from atoll.machinery.storage.sealing import Sealer
from atoll.machinery.storage.watching.cursors import Cursors, LmdbCursor
from atoll.machinery.storage.watching.hub import Hub

_SLICE_BYTES = 1 << 20


class StoreReader:
    """Snapshots, pages, cursors and the log of one environment."""

    def __init__(
        self, options: StoreOptions, environment: Environment, alarm: Alarm, now_us: Callable[[], int]
    ) -> None:
        self.options = options
        self._environment = environment
        sealer = Sealer(Path(options.key_file)) if options.key_file else None
        with environment.reading() as txn:
            last, applied = environment.last(txn), environment.applied(txn)
            self._void_end = max((void.first_new for void in environment.voids(txn)), default=0)
            sealed = frozenset(options.sealed_types).union(environment.sealed_types(txn))
        self._records = Records(environment, sealer, alarm, sealed)
        self._records.total_object_limit = options.total_object_limit
        #: Opens a snapshot, which begins with `with`. Every request and look-up does: no call of ours stands between.
        self.snapshot: Callable[[], LmdbSnapshot] = partial(LmdbSnapshot, self._records, environment)
        self._history = LogReader(self._records)
        self._lists = Lists(self._records, now_us, options.list_window_s)
        self.hub = Hub(last, options.ring_bytes, applied)
        self._cursors = Cursors(self._records, self._history, self.hub)
        self._identity = environment.identity()

    @property
    def identity(self) -> StoreIdentity:
        return self._identity

    @property
    def list_window_s(self) -> int:
        return self.options.list_window_s

    @property
    def compacted(self) -> int:
        """The highest revision dropped from the log, 0 if none was."""
        with self._environment.env.begin() as txn:
            return self._environment.compacted(txn)

    def page(
        self,
        scope: Scope,
        *,
        at: int = 0,
        after: Position | None = None,
        limit: int = 0,
        size_bytes: int = _SLICE_BYTES,
        label: tuple[str, str] | None = None,
    ) -> Page:
        if label is not None and not label[0].startswith(self.options.system_label_prefixes):
            label = None
        return self._lists.page(scope, at, after, Bounds(limit, size_bytes), label)

    def cursor(self, scope: Scope, revision: int, interest: Interest = EVERYTHING) -> LmdbCursor:
        return self._cursors.open(scope, revision, interest)

    def tail(self, revision: int, limit: int = 500) -> list[LogEntry]:
        # Within a void or below what was compacted nothing may be answered, and the ring knows of neither.
        with self._environment.env.begin() as txn:
            answered = revision >= self._void_end and revision >= self._environment.compacted(txn)
        recent = self.hub.ring.entries(revision, limit) if answered else None
        # A commit in the thread is in the file a moment before it is in the ring: what is there is given.
        return recent or self._history.tail(revision, limit)

    def change(self, revision: int) -> Change | None:
        return self._history.change_at(revision)

    def committed(self, revision: int) -> Coroutine[Any, Any, int]:
        return self.hub.wait_above(revision)

    async def replicated(self, count: int) -> int:
        return await self.hub.wait_applied_above(count)

    def get_mark(self, name: str) -> bytes | None:
        """Return the position saved under a name, None without one."""
        with self._environment.reading() as txn:
            return txn.get(name.encode(), db=self._environment.marks)

    def reload_keys(self) -> None:
        """Read a changed key file. Raise KeyFileInvalid."""
        if self._records.sealer is not None:
            self._records.sealer.reload()
