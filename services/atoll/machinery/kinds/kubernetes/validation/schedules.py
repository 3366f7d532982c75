"""Schedules in cron's five fields, and names of time zones."""

from __future__ import annotations

import re
import zoneinfo

from atoll.machinery.kinds.kubernetes.validation.rules import Errors
from atoll.machinery.schema.fielderrors import invalid, quote

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
#: Lowest and highest number of each field, and the names of numbers.
_FIELDS: tuple[tuple[int, int, dict[str, int]], ...] = (
    (0, 59, {}),
    (0, 23, {}),
    (1, 31, {}),
    (1, 12, {name: index + 1 for index, name in enumerate(_MONTHS)}),
    (0, 6, {name: index for index, name in enumerate(_DAYS)}),
)
_MACROS = frozenset({"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"})
_DURATION = re.compile(
    r"[+-]?(?:0|(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|μs|ms|s|m|h)(?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))*)\Z",
    re.ASCII,
)
_NUMBER = re.compile(r"[0-9]{1,9}\Z")
_ZONE_PART = re.compile(r"[A-Za-z._0-9+-]{1,14}\Z")
_MAX_SIZE = 1024


def schedule_problem(schedule: str) -> str:
    """Return what is wrong with a schedule; empty if nothing is."""
    text = schedule[:_MAX_SIZE]
    if text.startswith(("TZ=", "CRON_TZ=")):
        zone, _, text = text.partition(" ")
        if not is_zone(zone.partition("=")[2]):
            return f"provided bad location {zone.partition('=')[2]}: unknown time zone {zone.partition('=')[2]}"
        text = text.strip()
    if text.startswith("@"):
        return _macro_problem(text)
    fields = text.split()
    if len(fields) != len(_FIELDS):
        shown = "[" + " ".join(fields) + "]"
        return f"expected exactly {len(_FIELDS)} fields, found {len(fields)}: {shown}"
    problems = (
        _part_problem(part, *allowed)
        for field, allowed in zip(fields, _FIELDS, strict=True)
        for part in field.split(",")
    )
    return next(filter(None, problems), "")


def _macro_problem(text: str) -> str:
    if text in _MACROS:
        return ""
    if text.startswith("@every "):
        duration = text.removeprefix("@every ")
        found = _DURATION.match(duration)
        return "" if found else f"failed to parse duration {text}: time: invalid duration {quote(duration)}"
    return f"unrecognized descriptor: {text}"


def _part_problem(part: str, low: int, high: int, names: dict[str, int]) -> str:
    """Check `*`, `a`, `a-b`, each with `/step` behind."""
    span, slash, step_text = part.partition("/")
    if "/" in step_text:
        return f"too many slashes: {part}"
    first, dash, last = span.partition("-")
    if "-" in last:
        return f"too many hyphens: {part}"
    if first in ("*", "?"):
        start, end = low, high
    else:
        numbers = [_number(each, names) for each in ((first, last) if dash else (first,))]
        if None in numbers:
            wrong = (first, last)[numbers.index(None)]
            return f"failed to parse int from {wrong}: strconv.Atoi: parsing {quote(wrong)}: invalid syntax"
        start, end = (each or 0 for each in (numbers[0], numbers[-1]))
        if slash and not dash:
            end = high
    step = _number(step_text, {}) if slash else 1
    if step is None:
        return f"failed to parse int from {step_text}: strconv.Atoi: parsing {quote(step_text)}: invalid syntax"
    if start < low:
        return f"beginning of range ({start}) below minimum ({low}): {part}"
    if end > high:
        return f"end of range ({end}) above maximum ({high}): {part}"
    if start > end:
        return f"beginning of range ({start}) beyond end of range ({end}): {part}"
    return f"step of range should be a positive number: {part}" if step == 0 else ""


def _number(text: str, names: dict[str, int]) -> int | None:
    return names.get(text.lower(), int(text) if _NUMBER.match(text) else None)


def is_zone(name: str) -> bool:
    """Report whether there is a time zone of that name."""
    if name in ("", "UTC", "Local"):
        return True
    try:
        return zoneinfo.ZoneInfo(name) is not None
    except (OSError, ValueError):
        # An unknown key is an OSError's cousin: ZoneInfoNotFoundError is a KeyError.
        return False
    except KeyError:
        return False


def zone_errors(zone: str, field: str) -> Errors:
    """Check the time zone of a schedule."""
    if not zone:
        yield invalid(field, zone, "timeZone must be nil or non-empty string")
        return
    parts = zone.split("/")
    if any(part in (".", "..") or part.startswith("-") or not _ZONE_PART.match(part) for part in parts):
        yield invalid(field, zone, f"unknown time zone {zone}")
    elif zone.lower() == "local":
        detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        yield invalid(field, zone, detail)
    elif not is_zone(zone):
        yield invalid(field, zone, f"unknown time zone {zone}")
