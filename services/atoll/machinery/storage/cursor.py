"""The interfaces of cursors: positions in the log of a store, or of what a view shows of it.

`rest.watch` follows any; the store's own (`watching.cursors`) may also be waited for together, as `FeedCursor` does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from atoll.machinery.storage.contract import Change


class Cursor(Protocol):
    """A watch: a position in the log. Costs a number and a wake-up registration; close it."""

    @property
    def position(self) -> int:
        """Every change at or below it was read."""

    def read(self, limit: int = 500) -> Sequence[Change]:
        """Return the next changes in scope, in order, each once, and advance; cursors may share the sequence. Fewer
        than `limit`: all up to `position` were returned. Raise RevisionCompacted if compaction passed it."""

    async def wait(self, serve: Callable[[], bool] | None = None) -> None:
        """Return at a change in scope since the last read, or on `nudge`. `serve` goes first; true keeps waiting."""

    def nudge(self) -> None:
        """Make a pending `wait` return, even without a change."""

    def close(self) -> None: ...


class LogCursor(Cursor, Protocol):
    """A cursor of the store itself, of which many are waited for at once without a task each."""

    def attend(self, waiter: asyncio.Future[None]) -> bool:
        """Have `waiter` end where `wait` would return, until `leave`; false if that is now."""

    def leave(self) -> None:
        """End nothing any more. Idempotent."""
