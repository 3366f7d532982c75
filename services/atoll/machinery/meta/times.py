"""Timestamps as Kubernetes writes them, RFC 3339 in UTC, and ages such as `2m3s`.

Verb handlers set timestamps with these, tables print ages, the protobuf decoder formats seconds. Times are seconds
since 1970 as float or as (seconds, nanoseconds); a malformed text gives None.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from atoll.machinery.meta.durations import human_duration

#: RFC 3339 as Go parses it: a `T`, a zone, any number of fraction digits.
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)\Z", re.ASCII)

_MINUTE, _HOUR = 60, 3_600
# The years 1 to 9999, which have four digits.
_FIRST, _LAST = -62_135_596_800, 253_402_300_799
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@lru_cache(maxsize=1)
def _second(seconds: int) -> str:
    return format_time(seconds)


def now() -> str:
    """Return the current time as `2006-01-02T15:04:05Z`, as in metadata. Formatted once a second."""
    return _second(int(time.time()))


def now_micro() -> str:
    """Return the current time as `2006-01-02T15:04:05.000000Z`, as in Leases and Events."""
    nanoseconds = time.time_ns()
    return format_micro_time(nanoseconds // 1_000_000_000, nanoseconds % 1_000_000_000)


def format_time(seconds: int) -> str:
    """Format seconds since 1970 as `2006-01-02T15:04:05Z`. Raises ValueError outside the years 1 to 9999."""
    if not _FIRST <= seconds <= _LAST:
        raise ValueError(f"{seconds} seconds lie outside the years 1 to 9999")
    moment = _EPOCH + timedelta(seconds=seconds)
    return f"{moment.year:04d}-{moment.month:02d}-{moment.day:02d}T{moment:%H:%M:%S}Z"


def later(moment: str, seconds: int) -> str:
    """Return a time of `format_time` some seconds later, within the years 1 to 9999; a malformed one as it is."""
    start = parse_time(moment)
    return moment if start is None else format_time(min(max(int(start) + seconds, _FIRST), _LAST))


def format_micro_time(seconds: int, nanoseconds: int = 0) -> str:
    """Like `format_time` with six digits of the second; nanoseconds are truncated, not rounded."""
    if not 0 <= nanoseconds < 1_000_000_000:
        raise ValueError(f"{nanoseconds} nanoseconds are no part of a second")
    return f"{format_time(seconds)[:-1]}.{nanoseconds // 1000:06d}Z"


def parse_time(text: str) -> float | None:
    """Parse an RFC 3339 text to seconds since 1970; None for any other text."""
    match = _MOMENT.match(text)
    if match is None:
        return None
    date, clock, fraction, zone = match.groups()
    try:
        moment = datetime.fromisoformat(f"{date}T{clock}+00:00")
    except ValueError:
        return None
    seconds = (moment - _EPOCH).total_seconds() - _offset_s(zone)
    return seconds + float(fraction or 0)


def _offset_s(zone: str) -> int:
    if zone == "Z":
        return 0
    sign = -1 if zone[0] == "-" else 1
    return sign * (int(zone[1:3]) * _HOUR + int(zone[4:6]) * _MINUTE)


def age(timestamp: object, now_s: float) -> str:
    """Format the age of an RFC 3339 timestamp, `<unknown>` where there is none."""
    then = parse_time(timestamp) if isinstance(timestamp, str) else None
    return "<unknown>" if then is None else human_duration(now_s - then)
