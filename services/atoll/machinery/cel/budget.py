"""The cost that an evaluation may still spend, and the pauses in which it lets other work run.

Callers that evaluate rules make one for all programs of an object; compiled loops check it. Invariant: `spent` never
falls, and no evaluation runs for more than a few thousand units of work between two pauses.
"""

from __future__ import annotations

from collections.abc import Callable


class Budget:
    """A limit for each evaluation and one for the sum of all evaluations that share the budget.

    `limit` bounds the sum of the run-time costs (None: unbounded), `call_limit` each evaluation by itself. `pause`, if
    set, is called from inside an evaluation about every `stride` units of work; it may block, and it ends the
    evaluation by raising.
    """

    __slots__ = ("call_limit", "limit", "pause", "spent", "stride")

    def __init__(
        self,
        limit: int | None = None,
        call_limit: int | None = None,
        pause: Callable[[], None] | None = None,
        stride: int = 2_000,
    ) -> None:
        self.limit = limit
        self.call_limit = call_limit
        self.pause = pause
        self.stride = stride
        self.spent = 0

    @property
    def remaining(self) -> int | None:
        """The part of `limit` not yet spent; None if unbounded."""
        return None if self.limit is None else max(self.limit - self.spent, 0)
