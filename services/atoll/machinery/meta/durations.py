"""Durations as Go's `time` package reads them and as kubectl prints them.

Schemas check the format `duration` with this, rules and CEL convert texts to nanoseconds, tables print ages. Invariant:
nanoseconds are exact; a text that Go rejects gives None.
"""

from __future__ import annotations

import re

_SECOND = 1_000_000_000
_UNITS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": _SECOND,
    "m": 60 * _SECOND,
    "h": 3_600 * _SECOND,
}
_DURATION = re.compile(r"[-+]?(?:0|(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:ns|us|µs|μs|ms|s|m|h))+)")
_PART = re.compile(r"([0-9]*)\.?([0-9]*)(ns|us|µs|μs|ms|s|m|h)")
_MIN, _MAX = -(1 << 63), (1 << 63) - 1
#: Longest run of digits that is read: int() rejects texts above 4,300 digits.
_MAX_DIGITS = 4_000

#: Units of the format `duration` in words; longer words count by their first letters.
_WORD_UNITS = {**_UNITS, "hr": 3_600 * _SECOND, "d": 86_400 * _SECOND, "w": 604_800 * _SECOND, "wk": 604_800 * _SECOND}
_WORD_PREFIXES = (
    ("nano", 1),
    ("micro", 1_000),
    ("milli", 1_000_000),
    ("sec", _SECOND),
    ("min", 60 * _SECOND),
    ("hour", 3_600 * _SECOND),
    ("day", 86_400 * _SECOND),
    ("week", 604_800 * _SECOND),
)
_WORD_PART = re.compile(r"([0-9]+)\s*([A-Za-zµ]+)", re.ASCII)

_MINUTE, _HOUR, _DAY, _YEAR = 60, 3_600, 86_400, 31_536_000


def parse_duration(text: str) -> int | None:
    """Return the nanoseconds of a duration as Go's ParseDuration does (`1h30m`, `-1.5s`, `0`), or None.

    Fractions of a nanosecond are truncated. The result fits into 64 bits.
    """
    nanos = _nanoseconds(text)
    return nanos if nanos is not None and _MIN <= nanos <= _MAX else None


def parse_duration_format(text: str) -> int | None:
    """Return the nanoseconds of a text in the OpenAPI format `duration` of go-openapi, or None.

    The text has Go's form, or contains numbers with units in words (`10 seconds`), whose sum is returned. The result
    may exceed 64 bits.
    """
    nanos = _nanoseconds(text)
    if nanos is not None:
        return nanos
    total, is_duration = 0, False
    for amount, word in _WORD_PART.findall(text):
        unit = _word_unit(word.lower())
        is_duration = is_duration or unit > 0
        total += _integer(amount) * unit
    return total if is_duration else None


def _nanoseconds(text: str) -> int | None:
    """Return the nanoseconds of a text in Go's form, without a bound."""
    if _DURATION.fullmatch(text) is None:
        return None
    nanos = 0
    for whole, decimals, unit in _PART.findall(text):
        fraction = decimals[:_MAX_DIGITS]
        nanos += _integer(whole) * _UNITS[unit] + _integer(fraction) * _UNITS[unit] // 10 ** len(fraction)
    return -nanos if text[0] == "-" else nanos


def _integer(digits: str) -> int:
    """Return the value of digits, of the first _MAX_DIGITS where there are more: too large in any case."""
    return int(digits.lstrip("0")[:_MAX_DIGITS] or 0)


def _word_unit(word: str) -> int:
    return _WORD_UNITS.get(word) or next((nanos for start, nanos in _WORD_PREFIXES if word.startswith(start)), 0)


def human_duration(seconds: float) -> str:
    """Format a duration as kubectl prints ages, in two or three digits: `45s`, `2m3s`, `5h`, `12d`, `3y`.

    Down to -1 second counts as zero, since clocks differ; less is `<invalid>`.
    """
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 0:
        return "0s"
    if whole < 2 * _MINUTE:
        return f"{whole}s"
    if whole < 10 * _MINUTE:
        return _two(whole, _MINUTE, "m", 1, "s")
    if whole < 3 * _HOUR:
        return f"{whole // _MINUTE}m"
    if whole < 8 * _HOUR:
        return _two(whole, _HOUR, "h", _MINUTE, "m")
    if whole < 2 * _DAY:
        return f"{whole // _HOUR}h"
    if whole < 8 * _DAY:
        return _two(whole, _DAY, "d", _HOUR, "h")
    if whole < 2 * _YEAR:
        return f"{whole // _DAY}d"
    if whole < 8 * _YEAR:
        return _two(whole, _YEAR, "y", _DAY, "d")
    return f"{whole // _YEAR}y"


def _two(whole: int, large: int, large_unit: str, small: int, small_unit: str) -> str:
    """Format two units, the smaller one only if it is not zero."""
    rest = whole % large // small
    return f"{whole // large}{large_unit}" + (f"{rest}{small_unit}" if rest else "")
