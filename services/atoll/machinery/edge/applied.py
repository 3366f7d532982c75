"""Whether a configuration is in force, so that an apply of it would change nothing.

Whoever keeps copies by server-side apply asks `is_in_force` before each write. Invariant: a False costs a request that
the server finds to be a no-op; a True is never wrong, since it needs the manager's own fields to be exactly those of
the configuration, with the same values. A server rewrites some values (`0.5` to `500m`), and then a record says that
this configuration gave that object.
"""

from __future__ import annotations

import hashlib
from itertools import pairwise
from typing import Any

import msgspec

from atoll.machinery.meta.equality import same
from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.patch.fieldset import SELF, FieldSet
from atoll.machinery.patch.path_elements import FIELD, KEY, VALUE, value_element

_IDENTITY = ("name", "namespace", "uid", "resourceVersion")


class ApplyRecord(msgspec.Struct, frozen=True, gc=False):
    """The configuration that was applied last, and the object that the server answered, as digests."""

    configuration: str
    answer: str


def digest(value: Any) -> str:
    """Return a digest of any JSON value, whatever the order of its keys."""
    return digest_of_encoded(encode_json(value))


def digest_of_encoded(value: bytes) -> str:
    """Return the digest of a value that `encode_json` wrote."""
    return hashlib.sha256(value).hexdigest()[:32]


def record_of(configuration: Object, answer: Object, manager: str) -> ApplyRecord:
    """Return the record of an apply. Of the answer only what this manager owns counts."""
    return ApplyRecord(digest(configuration), _fingerprint(answer, manager))


def is_in_force(
    configuration: Object, live: Object, manager: str, record: ApplyRecord | None = None, subresource: str = ""
) -> bool:
    """Whether the live object is what an apply of the configuration by this manager would leave."""
    if record is not None and record == ApplyRecord(digest(configuration), _fingerprint(live, manager)):
        return True
    body, entry = _body(configuration), _entry(live, manager, subresource)
    if not entry:
        return not body
    return bool(entry["apiVersion"] == configuration["apiVersion"]) and _holds(body, live, entry.get("fieldsV1") or {})


def _entry(live: Object, manager: str, subresource: str = "") -> Object:
    for entry in live["metadata"].get("managedFields") or ():
        key = (entry.get("manager"), entry.get("operation"), entry.get("subresource") or "")
        if key == (manager, "Apply", subresource):
            found: Object = entry
            return found
    return {}


def _fingerprint(live: Object, manager: str) -> str:
    """Return a digest of the fields that a manager owns and of their values, whatever others own beside them."""
    fields = _entry(live, manager).get("fieldsV1") or {}
    return digest([fields, _owned(live, fields)])


def _owned(value: Any, fields: FieldSet) -> Any:
    """Return the part of a value that these fields are."""
    parts = {element: node for element, node in fields.items() if element != SELF}
    if isinstance(value, dict) and parts:
        return {name: _owned(each, parts[FIELD + name]) for name, each in value.items() if FIELD + name in parts}
    if not isinstance(value, list) or not parts:
        return value
    found = []
    for item in value:
        for element, node in parts.items():
            if (
                element.startswith(KEY)
                and isinstance(item, dict)
                and _has(item, msgspec.json.decode(element[len(KEY) :]))
            ):
                found.append(_owned(item, node))
        if value_element(item) in parts:
            found.append(item)
    return found


def _body(configuration: Object) -> Object:
    """Return the fields of a configuration that its manager owns."""
    body = {name: value for name, value in configuration.items() if name not in ("apiVersion", "kind")}
    metadata = {name: value for name, value in body["metadata"].items() if name not in _IDENTITY}
    return {**body, "metadata": metadata} if metadata else {k: v for k, v in body.items() if k != "metadata"}


def _holds(value: Any, live: Any, fields: FieldSet) -> bool:
    """Whether a value is there and its fields are these, no more and no fewer. Without parts it is compared as one."""
    parts = {element: node for element, node in fields.items() if element != SELF}
    if not parts:
        # The wire shows some lists without items as null.
        return same(value, live) or (value == [] and live is None)
    if isinstance(value, dict) and isinstance(live, dict):
        # A keyed list without items has no owner. One that is not empty may be another's, or atomic and edited: whether
        # an apply changes it, a record or the server says.
        owned = {name: each for name, each in value.items() if each != [] or FIELD + name in parts or live.get(name)}
        if {FIELD + name for name in owned} != set(parts) or not value.keys() <= live.keys():
            return False
        return all(_holds(each, live[name], parts[FIELD + name]) for name, each in owned.items())
    if not isinstance(value, list) or not isinstance(live, list) or len(value) != len(parts):
        return False
    if all(element.startswith(VALUE) for element in parts):
        places = [live.index(each) if value_element(each) in parts and each in live else -1 for each in value]
    else:
        places = [_place(each, live, parts) for each in value]
    # An apply also brings items into its own order.
    return places[0] >= 0 and all(before < after for before, after in pairwise(places))


def _place(item: Any, live: list[Any], parts: FieldSet) -> int:
    """Return where an item of a keyed list is, -1 if it is not; keys that are left to their defaults are not in it."""
    if not isinstance(item, dict):
        return -1
    for element, node in parts.items():
        keys = msgspec.json.decode(element[len(KEY) :]) if element.startswith(KEY) else {}
        if not keys or not _has(item, keys):
            continue
        for place, each in enumerate(live):
            if isinstance(each, dict) and _has(each, keys):
                return place if _holds(item, each, node) else -1
    return -1


def _has(item: Object, keys: Object) -> bool:
    """Whether an item has these keys; one that it lacks has its default."""
    return all(same(item.get(name, value), value) for name, value in keys.items())
