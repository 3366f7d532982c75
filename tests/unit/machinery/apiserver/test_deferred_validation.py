"""Validation during planning: a quick one finishes at once, a slow one is deferred."""

from __future__ import annotations

import time
from typing import Any

import pytest

from atoll.machinery.apiserver.call.deferred_validation import INLINE_S, validate_inline
from atoll.machinery.kinds.kind import ValidationResult

FOUND = ValidationResult([], ["found"])


def slow(pause: Any) -> ValidationResult:
    end = time.monotonic() + 2 * INLINE_S
    while time.monotonic() < end:
        pause()
    # A process that is suspended inside the loop is late as well.
    pause()
    return FOUND


def test_a_quick_verdict_comes_at_once() -> None:
    assert validate_inline(lambda pause: FOUND) == FOUND


def test_a_slow_verdict_is_left_for_later() -> None:
    assert validate_inline(slow) is None


def test_an_error_of_validation_is_not_taken_for_slowness() -> None:
    def broken(pause: Any) -> ValidationResult:
        raise ValueError

    with pytest.raises(ValueError):
        validate_inline(broken)
