"""Timestamps and durations: their texts, and the accessors with time zones.

Part of the standard library; conversions call the parsers. Invariant: nanoseconds are exact, days are those of the
proleptic Gregorian calendar, and texts are those that Go's time package reads and writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from atoll.machinery.cel.errors import EvaluationError
from atoll.machinery.cel.functions import Function, Overload
from atoll.machinery.cel.types import DURATION, INT, STRING, TIMESTAMP
from atoll.machinery.cel.values import SECOND, Duration, Timestamp
from atoll.machinery.meta import durations

_TIMESTAMP: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d?\d):(\d\d):(\d\d)(?:[.,](\d+))?(?:Z|([+-])(\d\d):(\d\d))\Z", re.ASCII
)
_EPOCH: Final = date(1970, 1, 1).toordinal()
_MAX_ORDINAL: Final = date(9999, 12, 31).toordinal()


def parse_duration(text: str) -> Duration:
    """Parse a duration as Go's ParseDuration does (`1h30m`, `-1.5s`). Raises EvaluationError."""
    nanos = durations.parse_duration(text)
    if nanos is None:
        raise EvaluationError("type conversion error from 'string' to 'google.protobuf.Duration'")
    return Duration(nanos)


def duration_text(duration: Duration) -> str:
    """Return the seconds as Go prints a double without exponent, followed by `s`."""
    seconds = _seconds(duration.nanos)
    if seconds == int(seconds):
        return f"{int(seconds)}s"
    return f"{_plain(seconds)}s"


def _seconds(nanos: int) -> float:
    whole, rest = divmod(abs(nanos), SECOND)
    value = float(whole) + rest / SECOND
    return -value if nanos < 0 else value


def _plain(value: float) -> str:
    """Return the shortest digits of a double, without an exponent."""
    digits = repr(value)
    if "e" not in digits:
        return digits
    mantissa, _, power = digits.partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    return f"{sign}0.{'0' * (-int(power) - 1)}{whole}{fraction if fraction != '0' else ''}"


def parse_timestamp(text: str) -> Timestamp:
    """Read a timestamp of RFC 3339, with any number of fractional digits (nanoseconds count).

    Raises EvaluationError.
    """
    match = _TIMESTAMP.match(text)
    if match is None:
        raise EvaluationError("type conversion error from 'string' to 'google.protobuf.Timestamp'")
    year, month, day, hour, minute, second = (int(match[i]) for i in range(1, 7))
    try:
        # Go accepts the year 0; its moments are out of range unless an offset moves them into the year 1.
        days = date(year, month, day).toordinal() if year else date(4, month, day).toordinal() - 1461
    except ValueError:
        raise EvaluationError("type conversion error from 'string' to 'google.protobuf.Timestamp'") from None
    offset = (int(match[9]) * 3600 + int(match[10]) * 60) * (-1 if match[8] == "-" else 1) if match[8] else 0
    bad_offset = bool(match[8]) and (int(match[9]) > 24 or int(match[10]) > 59)
    if hour > 23 or minute > 59 or second > 59 or bad_offset:
        raise EvaluationError("type conversion error from 'string' to 'google.protobuf.Timestamp'")
    seconds = (days - _EPOCH) * 86400 + hour * 3600 + minute * 60 + second - offset
    if not -62135596800 <= seconds <= 253402300799:
        raise EvaluationError("timestamp overflow")
    fraction = (match[7] or "")[:9].ljust(9, "0")
    return Timestamp(seconds * SECOND + int(fraction), offset)


def timestamp_text(timestamp: Timestamp) -> str:
    """Return the timestamp of RFC 3339 in its own zone, without trailing zeros of the fraction."""
    seconds, nanos = divmod(timestamp.nanos, SECOND)
    days, rest = divmod(seconds + timestamp.offset_s, 86400)
    day = date.fromordinal(min(max(days + _EPOCH, 1), _MAX_ORDINAL))
    fraction = f".{nanos:09d}".rstrip("0") if nanos else ""
    clock = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{day.year:04d}-{day.month:02d}-{day.day:02d}T{clock}{fraction}{_offset_text(timestamp.offset_s)}"


def _offset_text(offset_s: int) -> str:
    if offset_s == 0:
        return "Z"
    minutes = abs(offset_s) // 60
    return f"{'-' if offset_s < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}"


@lru_cache(maxsize=256)
def _zone(name: str) -> tzinfo:
    """Return a time zone by IANA name or by offset (`-02:00`). Raises EvaluationError in Go's words."""
    if ":" in name:
        hours, _, minutes = name.partition(":")
        try:
            total = int(hours) * 60 + (-int(minutes) if name[0] == "-" else int(minutes))
            return timezone(timedelta(minutes=total))
        except ValueError:
            bad = hours if not re.fullmatch(r"[+-]?[0-9]+", hours) else minutes
            raise EvaluationError(f'strconv.Atoi: parsing "{bad}": invalid syntax') from None
    if name in ("", "UTC"):
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise EvaluationError(f"unknown time zone {name}") from None


def _local(timestamp: Timestamp, zone: str) -> tuple[int, int]:
    """Return the days since the year 1 and the nanoseconds of that day, in a zone.

    Days may exceed Python's calendar.
    """
    seconds = timestamp.nanos // SECOND
    offset = 0
    if zone != "UTC":
        of = _zone(zone)
        clamped = min(max(seconds, -62135510400), 253402214400)
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=clamped)
        delta = moment.astimezone(of).utcoffset()
        offset = int(delta.total_seconds()) if delta is not None else 0
    days, rest = divmod(timestamp.nanos + offset * SECOND, 86400 * SECOND)
    return days + _EPOCH, rest


def _date(timestamp: Timestamp, zone: str) -> date:
    return date.fromordinal(min(max(_local(timestamp, zone)[0], 1), _MAX_ORDINAL))


def _of_day(unit: int, modulus: int) -> Callable[..., int]:
    return lambda timestamp, zone="UTC": _local(timestamp, zone)[1] // unit % modulus


def _year(timestamp: Timestamp, zone: str = "UTC") -> int:
    return _date(timestamp, zone).year


def _month(timestamp: Timestamp, zone: str = "UTC") -> int:
    return _date(timestamp, zone).month - 1


def _day_of_year(timestamp: Timestamp, zone: str = "UTC") -> int:
    return _date(timestamp, zone).timetuple().tm_yday - 1


def _day_of_month(timestamp: Timestamp, zone: str = "UTC") -> int:
    return _date(timestamp, zone).day - 1


def _day(timestamp: Timestamp, zone: str = "UTC") -> int:
    return _date(timestamp, zone).day


def _day_of_week(timestamp: Timestamp, zone: str = "UTC") -> int:
    return _local(timestamp, zone)[0] % 7


def _whole(unit: int) -> Callable[[Duration], int]:
    """Return the accessor of whole units; Go truncates towards zero."""
    return lambda duration: abs(duration.nanos) // unit * (-1 if duration.nanos < 0 else 1)


def _accessor(name: str, id: str, call: Callable[..., int], zoned: str = "", unit: int = 0) -> Function:
    zoned = zoned or f"timestamp_to_{id}_with_tz"
    overloads = [
        Overload(f"timestamp_to_{id}", (TIMESTAMP,), INT, call, member=True),
        Overload(zoned, (TIMESTAMP, STRING), INT, call, member=True),
    ]
    if unit:
        overloads.append(Overload(f"duration_to_{id}", (DURATION,), INT, _whole(unit), member=True))
    return Function(name, tuple(overloads))


FUNCTIONS: tuple[Any, ...] = (
    _accessor("getFullYear", "year", _year),
    _accessor("getMonth", "month", _month),
    _accessor("getDayOfYear", "day_of_year", _day_of_year),
    _accessor("getDayOfMonth", "day_of_month", _day_of_month),
    _accessor("getDate", "day_of_month_1_based", _day),
    _accessor("getDayOfWeek", "day_of_week", _day_of_week),
    _accessor("getHours", "hours", _of_day(3600 * SECOND, 24), unit=3600 * SECOND),
    _accessor("getMinutes", "minutes", _of_day(60 * SECOND, 60), unit=60 * SECOND),
    _accessor("getSeconds", "seconds", _of_day(SECOND, 60), zoned="timestamp_to_seconds_tz", unit=SECOND),
    _accessor("getMilliseconds", "milliseconds", _of_day(1_000_000, 1000), unit=1_000_000),
)
