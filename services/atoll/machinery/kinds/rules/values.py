"""JSON values as CEL values, where the two differ: numbers, bytes, times, sets, maps in lists, nulls.

`declared` picks one of these for each part of a schema, and compiled rules call it when they reach the part. Invariant:
a converted value converts to itself, so that one conversion may be made early.
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
    """A double, also of a whole number, which JSON may write without a fraction."""
    return float(value) if type(value) is int else value


def decoded(value: Any) -> Any:
    """The bytes of a string in base64."""
    if type(value) is not str:
        return value
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise EvaluationError(f"Invalid byte formatted string {value}: {error}") from error


@cache
def _pattern(text: str) -> re.Pattern[str]:
    """A pattern, compiled when first asked for: few servers ever need one."""
    return re.compile(text, re.ASCII)


_DATE_TIME = r"(\d{4})-(\d{2})-(\d{2})[Tt](\d{2}):(\d{2}):(\d{2})(?:[.,](\d+))?([Zz]|[+-]\d{2}:?\d{2})?\Z"


def date_time(value: Any) -> Any:
    """A moment of an RFC 3339 text."""
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
    """Midnight, in UTC, of a date."""
    if type(value) is not str:
        return value
    try:
        return Timestamp((day.fromisoformat(value).toordinal() - _EPOCH) * 86400 * SECOND)
    except ValueError as error:
        raise EvaluationError(f"Invalid date formatted string {value}: {error}") from error


def duration(value: Any) -> Any:
    """A span of time in Go's form (`1h30m`), or in words (`10 seconds`)."""
    if type(value) is not str:
        return value
    nanos = parse_duration_format(value)
    if nanos is None:
        raise EvaluationError(f"Invalid duration {value}: unable to parse {value} as duration")
    return Duration(nanos)


def without_nulls(value: Any) -> Any:
    """A struct with nullable fields: to rules a null field is one that is not there."""
    if type(value) is dict and None in value.values():
        return {key: item for key, item in value.items() if item is not None}
    return value


def of_entries(convert: Convert | None) -> Convert | None:
    """The conversion of a map by that of its values."""
    if convert is None:
        return None

    def entries(value: Any) -> Any:
        if type(value) is not dict:
            return value
        return {key: item if item is None else convert(item) for key, item in value.items()}

    return entries


def of_items(convert: Convert | None, list_type: Any, keys: tuple[str, ...]) -> Convert | None:
    """The conversion of a list by its type and that of its items."""
    made: Convert | None = None
    if list_type == "set":
        made = SetList
    elif list_type == "map" and keys:
        made = lambda items: MapList(items, keys)  # noqa: E731 - one line for each form
    if convert is None:
        return None if made is None else (lambda value: made(value) if type(value) is list else value)

    def items(value: Any) -> Any:
        if type(value) is not list:
            return value
        found = [item if item is None else convert(item) for item in value]
        return found if made is None else made(found)

    return items


class SetList(list[Any]):
    """A list of type set: its order does not count, and `+` is a union."""

    __slots__ = ()

    def cel_equals(self, other: Any) -> bool:
        """Whether another list has the same items, in whatever order."""
        if len(other) != len(self):
            return False
        mine, others = set(map(_mark, self)), set(map(_mark, other))
        return mine == others

    def __add__(self, other: list[Any]) -> SetList:
        known = set(map(_mark, self))
        found = SetList(self)
        for item in other:
            if (mark := _mark(item)) not in known:
                known.add(mark)
                found.append(item)
        return found


class MapList(list[Any]):
    """A list of type map: items are told apart by their keys; `+` replaces the items of equal keys."""

    __slots__ = ("_keys",)

    def __init__(self, items: list[Any], keys: tuple[str, ...]) -> None:
        super().__init__(items)
        self._keys = keys

    def _key(self, item: Any) -> Any:
        if type(item) is not dict:
            return None
        return tuple(_mark(item.get(key)) for key in self._keys)

    def cel_equals(self, other: Any) -> bool:
        """Whether another list has the same items for the same keys, in whatever order."""
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
    """Something hashable that is equal for equal items; true is not 1, but 1.0 is."""
    if type(value) is bool:
        return (bool, value)
    if isinstance(value, list):
        return (list, tuple(map(_mark, value)))
    if isinstance(value, dict):
        return (dict, frozenset((key, _mark(item)) for key, item in value.items()))
    return value
