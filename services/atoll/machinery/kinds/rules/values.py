"""Conversion of JSON values to CEL values where they differ: numbers, bytes, times, sets, maps in lists, nulls.

`decl_types` selects one of these for each part of a schema; compiled rules call it when they select the part.
Invariant: the conversion of a converted value is the value itself, so conversion may happen early.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from datetime import date as day
from datetime import datetime
from functools import cache
from typing import Any

from atoll.machinery.cel.equality import equal
from atoll.machinery.cel.errors import EvaluationError
from atoll.machinery.cel.values import SECOND, Duration, Timestamp
from atoll.machinery.meta.durations import parse_duration_format

Convert = Callable[[Any], Any]
_EPOCH = day(1970, 1, 1).toordinal()


def number(value: Any) -> Any:
    """Return a double, also for a whole number, which JSON may write without a fraction."""
    return float(value) if type(value) is int else value


def decoded(value: Any) -> Any:
    """Return the bytes of a base64 string."""
    if type(value) is not str:
        return value
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise EvaluationError(f"Invalid byte formatted string {value}: {error}") from error


@cache
def _pattern(text: str) -> re.Pattern[str]:
    """Compile a pattern on first use: few servers need one."""
    return re.compile(text, re.ASCII)


_DATE_TIME = r"(\d{4})-(\d{2})-(\d{2})[Tt](\d{2}):(\d{2}):(\d{2})(?:[.,](\d+))?([Zz]|[+-]\d{2}:?\d{2})?\Z"


def date_time(value: Any) -> Any:
    """Return the moment of an RFC 3339 text."""
    if type(value) is not str:
        return value
    match = _pattern(_DATE_TIME).match(value)
    if match is None:
        raise EvaluationError(f"Invalid date-time formatted string {value}")
    try:
        moment = datetime(int(match[1]), int(match[2]), int(match[3]), int(match[4]), int(match[5]), int(match[6]))
    except ValueError as error:
        raise EvaluationError(f"Invalid date-time formatted string {value}: {error}") from error
    seconds = (moment.toordinal() - _EPOCH) * 86400 + moment.hour * 3600 + moment.minute * 60 + moment.second
    return Timestamp((seconds - _offset_s(match[8])) * SECOND + int((match[7] or "0").ljust(9, "0")[:9]))


def _offset_s(zone: str | None) -> int:
    if zone is None or zone in "Zz":
        return 0
    digits = zone[1:].replace(":", "")
    offset = int(digits[:2]) * 3600 + int(digits[2:]) * 60
    return -offset if zone[0] == "-" else offset


def date(value: Any) -> Any:
    """Return midnight of a date in UTC."""
    if type(value) is not str:
        return value
    try:
        return Timestamp((day.fromisoformat(value).toordinal() - _EPOCH) * 86400 * SECOND)
    except ValueError as error:
        raise EvaluationError(f"Invalid date formatted string {value}: {error}") from error


def duration(value: Any) -> Any:
    """Return a duration in Go's form (`1h30m`), or in words (`10 seconds`)."""
    if type(value) is not str:
        return value
    nanos = parse_duration_format(value)
    if nanos is None:
        raise EvaluationError(f"Invalid duration {value}: unable to parse {value} as duration")
    return Duration(nanos)


def without_nulls(value: Any) -> Any:
    """Return a struct without its null fields: rules see a null field as absent."""
    if type(value) is dict and None in value.values():
        return {key: item for key, item in value.items() if item is not None}
    return value


def of_entries(convert: Convert | None) -> Convert | None:
    """Return the conversion of a map, given that of its values."""
    if convert is None:
        return None

    def entries(value: Any) -> Any:
        if type(value) is not dict:
            return value
        return {key: item if item is None else convert(item) for key, item in value.items()}

    return entries


def of_items(convert: Convert | None, list_type: Any, keys: tuple[str, ...]) -> Convert | None:
    """Return the conversion of a list, given its type and the conversion of its items."""
    wrap: Convert | None = None
    if list_type == "set":
        wrap = SetList
    elif list_type == "map" and keys:
        wrap = lambda items: MapList(items, keys)  # noqa: E731 - one line for each form
    if convert is None:
        return None if wrap is None else (lambda value: wrap(value) if type(value) is list else value)

    def items(value: Any) -> Any:
        if type(value) is not list:
            return value
        converted = [item if item is None else convert(item) for item in value]
        return converted if wrap is None else wrap(converted)

    return items


class SetList(list[Any]):
    """A list of type set: it compares in any order, and `+` is a union."""

    __slots__ = ()

    def cel_equals(self, other: Any) -> bool:
        """Report whether another list has the same items in any order."""
        if len(other) != len(self):
            return False
        mine, others = set(map(_mark, self)), set(map(_mark, other))
        return mine == others

    def __add__(self, other: list[Any]) -> SetList:
        marks = set(map(_mark, self))
        union = SetList(self)
        for item in other:
            if (mark := _mark(item)) not in marks:
                marks.add(mark)
                union.append(item)
        return union


class MapList(list[Any]):
    """A list of type map: keys identify the items; `+` replaces the items with equal keys."""

    __slots__ = ("_keys",)

    def __init__(self, items: list[Any], keys: tuple[str, ...]) -> None:
        super().__init__(items)
        self._keys = keys

    def _key(self, item: Any) -> Any:
        if type(item) is not dict:
            return None
        return tuple(_mark(item.get(key)) for key in self._keys)

    def cel_equals(self, other: Any) -> bool:
        """Report whether another list has the same items under the same keys in any order."""
        if len(other) != len(self):
            return False
        mine = {self._key(item): item for item in self}
        others = {self._key(item): item for item in other}
        return mine.keys() == others.keys() and all(equal(item, others[key]) for key, item in mine.items())

    def __add__(self, other: list[Any]) -> MapList:
        found = MapList(self, self._keys)
        places = {self._key(item): index for index, item in enumerate(self)}
        for item in other:
            at = places.get(self._key(item))
            if at is None:
                found.append(item)
            else:
                found[at] = item
        return found


def _mark(value: Any) -> Any:
    """Return a hashable key that is equal for equal items; true differs from 1, but 1.0 does not."""
    if type(value) is bool:
        return (bool, value)
    if isinstance(value, list):
        return (list, tuple(map(_mark, value)))
    if isinstance(value, dict):
        return (dict, frozenset((key, _mark(item)) for key, item in value.items()))
    return value
