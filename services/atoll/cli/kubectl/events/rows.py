"""The row of a change: when, what was done to which object, by whom, and which fields differ.

`command` prints them. The log knows no user, so "by whom" is the field manager of what changed. Invariant: a row is one
line, of bounded length, whatever an object holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from atoll.machinery.meta.objects import Object
from atoll.machinery.stream.tenants.structured_events import StructuredEvent

HEAD = ("TIME", "OPERATION", "KIND", "NAME", "BY", "CHANGES")
UNKNOWN = "-"
#: Fields that every change touches.
_ALWAYS = frozenset({"managedFields", "resourceVersion", "generation"})
_MAX_VALUE, _MAX_FIELDS = 40, 8
_ABSENT = object()


def row(event: StructuredEvent, kind: str) -> tuple[str, ...]:
    """The columns of HEAD for a change. `kind` is the kind of the event's resource."""
    key, after, before = event.key, event.object, event.before
    assert key is not None, "a change is about an object"
    name = f"{key.namespace}/{key.name}" if key.namespace else key.name
    when = f"{event.time[:19]}Z"
    return when, event.atolloperation, kind, name, by_whom(event, before, after), differences(before, after)


def by_whom(event: StructuredEvent, before: Object | None, after: Object | None) -> str:
    """The field managers of a change. A deletion leaves none, and a thin event tells none."""
    if after is None or event.atolloperation == "DELETED":
        return UNKNOWN
    entries = _entries(after)
    if before is not None:
        known = _entries(before)
        entries = [each for each in entries if each not in known]
    elif event.atolloperation != "ADDED":
        entries = [each for each in entries if str(each.get("time", ""))[:19] == event.time[:19]]
    names = (_manager(each) for each in entries)
    return ",".join(dict.fromkeys(names)) or UNKNOWN


def differences(before: Object | None, after: Object | None) -> str:
    """The fields that differ, with their values, as far as a line has room."""
    if before is None or after is None:
        return UNKNOWN
    found = list(_differences(before, after, ""))
    shown = "  ".join(found[:_MAX_FIELDS])
    return (shown + f"  and {len(found) - _MAX_FIELDS} more" * (len(found) > _MAX_FIELDS)) or UNKNOWN


def _entries(obj: Object) -> list[Object]:
    return obj["metadata"].get("managedFields") or []


def _manager(entry: Object) -> str:
    name, subresource = str(entry.get("manager") or UNKNOWN), entry.get("subresource")
    return _one_line(f"{name}/{subresource}" if subresource else name)


def _differences(before: Any, after: Any, path: str) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted({*before, *after}):
            if path == ".metadata" and name in _ALWAYS:
                continue
            lead = f"{path}.{name}" if "." not in name else f"{path}[{name}]"
            yield from _differences(before.get(name, _ABSENT), after.get(name, _ABSENT), lead)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _differences(old, new, f"{path}[{number}]")
    elif before is not after and before != after:
        yield _one_line(f"{path.removeprefix('.')}: {_value(before)} -> {_value(after)}", len(path) + 2 * _MAX_VALUE)


def _value(value: Any) -> str:
    if value is _ABSENT:
        return "(none)"
    return _one_line(msgspec.json.encode(value).decode())


def _one_line(text: str, most: int = _MAX_VALUE) -> str:
    printable = "".join(each if each.isprintable() else " " for each in text)
    return printable if len(printable) <= most else f"{printable[: most - 3]}..."
