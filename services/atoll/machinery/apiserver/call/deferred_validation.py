"""Validation within planning, with a time limit; past the limit it is deferred to a thread beside the event loop.

`writing.commit` validates inline first: nearly all validation takes microseconds. Invariant: a rule never holds the
loop or a snapshot for longer than INLINE_S.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from atoll.machinery.kinds.kind import ValidationResult

#: Time limit of validation within planning.
INLINE_S = 0.004

Pause = Callable[[], None]


class _TooSlow(Exception):
    """Validation took longer than INLINE_S."""


def validate_inline(validate: Callable[[Pause], ValidationResult]) -> ValidationResult | None:
    """Return the result, or None past INLINE_S; the caller then runs `validate` again beside the loop."""
    end_s = time.monotonic() + INLINE_S

    def pause() -> None:
        if time.monotonic() > end_s:
            raise _TooSlow

    try:
        return validate(pause)
    except _TooSlow:
        return None
