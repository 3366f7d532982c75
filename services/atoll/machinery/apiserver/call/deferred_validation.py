"""Validation that may take long: inside of planning for as long as INLINE_S, otherwise beside the event loop.

`writing.commit` asks here first. Nearly all verdicts take microseconds. Invariant: planning never holds the loop, nor a
snapshot, for longer than INLINE_S because of a rule.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from atoll.machinery.kinds.kind import Verdict

#: How long a verdict may take inside of planning.
INLINE_S = 0.004

Pause = Callable[[], None]


class _TooSlow(Exception):
    """Validation took longer than INLINE_S."""


def validate_inline(validate: Callable[[Pause], Verdict]) -> Verdict | None:
    """Return the verdict, or None if it takes longer than INLINE_S; `validate` is then run again beside the loop."""
    end_s = time.monotonic() + INLINE_S

    def pause() -> None:
        if time.monotonic() > end_s:
            raise _TooSlow

    try:
        return validate(pause)
    except _TooSlow:
        return None
