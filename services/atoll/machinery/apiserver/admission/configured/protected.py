"""What configured admission may not do to an object: change who it is and what the system reads, or make it too large.

Mutating webhooks and mutating policies share it. Own plug-ins and the bounds of a request's body came before them, so
nobody would correct such a change afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from atoll.machinery.apiserver.call.call import MAX_BODY
from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.schema.decoding.document import MAX_DEPTH, is_too_deep

_IDENTITY = ("name", "generateName", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "resourceVersion")
#: Labels and annotations below these domains are the system's.
_DOMAINS = ("kcp.io", "atoll.dev")


class TooLarge(Exception):
    """A changed object is larger or deeper than a client may send it."""


def encoded(obj: Object) -> bytes:
    """Return the JSON of a changed object. Raises TooLarge."""
    if is_too_deep(obj, MAX_DEPTH):
        raise TooLarge(f"nested the object deeper than {MAX_DEPTH} levels")
    value = encode_json(obj)
    if len(value) > MAX_BODY:
        raise TooLarge(f"made the object larger than {MAX_BODY} bytes")
    return value


def protected_change(before: Object, after: object) -> str:
    """Return the path of a protected field in which `after` differs from `before`; empty if there is none."""
    return next(_changes(before, after), "")


def _changes(before: Object, after: object) -> Iterator[str]:
    if not isinstance(after, dict) or not isinstance(after.get("metadata"), dict):
        yield "metadata"
        return
    yield from (name for name in ("apiVersion", "kind") if after.get(name) != before.get(name))
    then, now = before["metadata"], after["metadata"]
    yield from (f"metadata.{name}" for name in _IDENTITY if now.get(name) != then.get(name))
    for name in ("labels", "annotations"):
        yield from (f"metadata.{name}[{key}]" for key in _system_keys(then.get(name), now.get(name)))


def _system_keys(then: Any, now: Any) -> Iterator[str]:
    old, new = (each if isinstance(each, Mapping) else {} for each in (then, now))
    for key in {**old, **new}:
        if old.get(key) != new.get(key) and is_system_key(str(key)):
            yield key


def is_system_key(key: str) -> bool:
    """Return whether a label or annotation is one of the system's."""
    domain, slash, _ = key.partition("/")
    return bool(slash) and any(domain == each or domain.endswith(f".{each}") for each in _DOMAINS)
