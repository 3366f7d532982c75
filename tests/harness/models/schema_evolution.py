"""Whether a later version of the events' contract breaks a reader of a released one, or refuses what it sends.

A reader ignores headers, fields, channels and values that it does not know, so anything may be added. What is there
stays: under its name, with its type, form and conditions, and no value of a list goes. A request may get fields that
may be absent; nothing more is required, and no bound is added. Each break is one line that names it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

#: Words that describe and do not bind.
_PROSE = frozenset({"description", "title", "$comment", "$id", "$schema", "examples"})


def breaks(released: dict[str, Any], later: dict[str, Any], at: str = "") -> list[str]:
    """What of a released document a later one breaks."""
    return list(_breaks(_resolved(released, released), _resolved(later, later), at))


def refusals(released: dict[str, Any], later: dict[str, Any]) -> list[str]:
    """What of a released form of requests a later one does not take."""
    return [*breaks(released, later), *_bounds(_resolved(released, released), _resolved(later, later), "")]


def _bounds(released: dict[str, Any], later: dict[str, Any], at: str) -> Iterator[str]:
    """What only the later form asks of a request."""
    for name, value in later.items():
        place = f"{at}/{name}"
        if name not in released:
            if name not in _PROSE and not at.endswith("/properties"):
                yield f"{place} is new"
        elif name == "required":
            yield from (f"{place} gained {each}" for each in value if each not in released[name])
        elif isinstance(value, dict) and isinstance(released[name], dict):
            yield from _bounds(released[name], value, place)


def _breaks(released: Any, later: Any, at: str) -> Iterator[str]:
    if not (isinstance(released, dict) and isinstance(later, dict)):
        if released != later:
            yield f"{at} changed"
        return
    for name, value in released.items():
        place = f"{at}/{name}"
        if name in _PROSE or (name == "version" and at == "/info"):
            continue
        if name not in later:
            yield f"{place} is gone"
        elif name in ("enum", "required"):
            yield from (f"{place} lost {each}" for each in value if each not in later[name])
        elif name == "oneOf" and len(value) <= len(later[name]):
            for number, (form, later_form) in enumerate(zip(value, later[name], strict=False)):
                yield from _breaks(form, later_form, f"{place}/{number}")
        else:
            yield from _breaks(value, later[name], place)


def _resolved(node: Any, root: dict[str, Any]) -> Any:
    """A document with its own references in place, so that moving a definition changes nothing."""
    if isinstance(node, list):
        return [_resolved(each, root) for each in node]
    if not isinstance(node, dict):
        return node
    target = node.get("$ref", "")
    if target.startswith("#/$defs/"):
        rest = {name: value for name, value in node.items() if name != "$ref"}
        return _resolved({**root["$defs"][target.rsplit("/", 1)[1]], **rest}, root)
    return {name: _resolved(value, root) for name, value in node.items() if name != "$defs"}
