"""Bounds on the results of one call, and cooperative pauses inside long calls.

Functions use it if their work is out of proportion to their price (Kubernetes charges a replacement by its input, and
the sum of two lists nothing); upstream is bounded there by its memory alone. Invariant: no call makes more than
MAX_ITEMS items or MAX_TEXT code points, and no loop runs for long without a call of `yield_to_loop`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from atoll.machinery.cel.errors import BudgetExceeded

#: Twice the items of a list whose price by the item reaches Kubernetes' limit of a call.
MAX_ITEMS: Final = 2_000_000
#: More than five times the largest request body.
MAX_TEXT: Final = 16_000_000
#: Iterations between two pauses.
_STRIDE: Final = 255

_thread = threading.local()


def replace_pause(pause: Callable[[], None] | None) -> Callable[[], None] | None:
    """Set the pause of the evaluation on this thread and return the previous one, which the caller restores.

    None disables pauses. Each thread has its own.
    """
    before = getattr(_thread, "pause", None)
    _thread.pause = pause
    return before


def yield_to_loop() -> None:
    """Call the pause of the current evaluation, if it has one."""
    pause = getattr(_thread, "pause", None)
    if pause is not None:
        pause()


def with_yields(items: Iterable[Any]) -> Iterator[Any]:
    """Iterate over the items with a pause every few hundred."""
    for count, item in enumerate(items):
        if count & _STRIDE == _STRIDE:
            yield_to_loop()
        yield item


def check_text(size: int) -> None:
    """Check the size in code points of a text before it is made. Raises BudgetExceeded above the limit."""
    if size > MAX_TEXT:
        raise BudgetExceeded


def check_items(count: int) -> None:
    """Check the length of a list that is being made. Raises BudgetExceeded above the limit."""
    if count > MAX_ITEMS:
        raise BudgetExceeded
