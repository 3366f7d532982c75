"""A loop whose time passes only while it has nothing to do: waits of minutes take none.

with asyncio.Runner(loop_factory=lambda: loop) as runner:
    runner.run(...)                                                # its clock is `loop.time`
"""

from __future__ import annotations

import asyncio
import selectors
from typing import Any


class JumpingLoop(asyncio.SelectorEventLoop):
    """`now_s` is the time; whoever adds to it held the loop for so long."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        jumping = self

        class Selector(selectors.SelectSelector):
            def select(self, timeout: float | None = None) -> Any:
                jumping.now_s += timeout or 0.0
                return super().select(0)

        super().__init__(Selector())

    def time(self) -> float:
        return self.now_s
