"""How much an evaluation may still cost, and when it has to let others run.

Made by whoever evaluates rules, shared by all programs of one object; compiled loops look at it. Invariant:
`spent` never falls, and no evaluation runs on for more than a few thousand units of work between two looks at
the clock.
"""

from __future__ import annotations

from collections.abc import Callable


class Budget:
    """A limit for one call and one for all calls that share the budget.

    `limit` bounds the sum of the run-time costs of all evaluations (None: unbounded), `call_limit` each
    evaluation on its own. `pause`, if given, is called from inside of an evaluation about every `stride` units
    of work; it may block, and it ends the evaluation by raising.
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
        """What is left of `limit`; None when unbounded."""
        return None if self.limit is None else max(self.limit - self.spent, 0)
