"""Bounds on what one call may make, and breathing in calls that take long.

Used by functions whose work is not in proportion to their price (Kubernetes charges a replacement by its input,
and the sum of two lists nothing): upstream has no bound there but its memory. Invariant: no call makes more than
MAX_ITEMS items or MAX_TEXT code points, and no loop here runs for long without asking whether to pause.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from atoll.machinery.cel.errors import BudgetExceeded

#: Twice what Kubernetes' limit of a call lets a list cost that is charged by its items.
MAX_ITEMS: Final = 2_000_000
#: More than five times the largest request body.
MAX_TEXT: Final = 16_000_000
#: Turns of a loop between two questions.
_STRIDE: Final = 255

_here = threading.local()


def replace_pause(pause: Callable[[], None] | None) -> Callable[[], None] | None:
    """Let the functions that are called from here on pause so; what they did before is for the caller to set again.
    Evaluations on other threads have their own."""
    before = getattr(_here, "pause", None)
    _here.pause = pause
    return before


def yield_to_loop() -> None:
    """Pause if the evaluation around wants it."""
    pause = getattr(_here, "pause", None)
    if pause is not None:
        pause()


def with_yields(items: Iterable[Any]) -> Iterator[Any]:
    """The items, with a breath every few hundred."""
    for count, item in enumerate(items):
        if count & _STRIDE == _STRIDE:
            yield_to_loop()
        yield item


def check_text(size: int) -> None:
    """Refuse to make a text of this many code points. Raises BudgetExceeded."""
    if size > MAX_TEXT:
        raise BudgetExceeded


def check_items(count: int) -> None:
    """Refuse to make a list of this many items. Raises BudgetExceeded."""
    if count > MAX_ITEMS:
        raise BudgetExceeded
