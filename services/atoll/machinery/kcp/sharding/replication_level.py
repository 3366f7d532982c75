"""How far what is replicated goes: the annotation `replication.atoll.dev/level` of APIExports, and what follows of it.

Everything replicated goes everywhere, as in kcp, unless its export says `organization` (it is found by workspaces
below the second component of its path alone) or `region` (it is stored by shards with the region of its own shard
alone). Admission checks the annotation and notes on what belongs to an export how far it goes with it (`DERIVED`),
followers ask `may_hold` before they store anything, look-ups of exports ask `is_within`. Invariant: a value that nobody
understands is taken for the narrowest.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from atoll.machinery.meta.objects import Object

#: What the author of an export says, or of a schema that is to stay even before an export names it.
LEVEL = "replication.atoll.dev/level"
#: What the system notes on schemas, conversions, endpoint slices and RBAC objects of narrowed exports.
DERIVED = "internal.atoll.dev/level"
ORGANIZATION, REGION = "organization", "region"
LEVELS = (ORGANIZATION, REGION)

_MARKS = (LEVEL.encode(), DERIVED.encode())
#: Components of a path that name an organization: where it hangs, and its own name.
_COMPONENTS = 2


class _Annotations(msgspec.Struct, frozen=True, gc=False):
    level: str = msgspec.field(default="", name=LEVEL)
    derived: str = msgspec.field(default="", name=DERIVED)


class _Metadata(msgspec.Struct, frozen=True, gc=False):
    annotations: _Annotations | None = None


class _Annotated(msgspec.Struct, frozen=True, gc=False):
    metadata: _Metadata


_decoder = msgspec.json.Decoder(_Annotated)


def level_of(obj: Object) -> str:
    """The level that an object's author asks for; empty where it may go everywhere."""
    level = str((obj["metadata"].get("annotations") or {}).get(LEVEL) or "")
    return level if level in ("", *LEVELS) else REGION


def may_hold(value: bytes, origin_region: str, own_region: str) -> bool:
    """Whether a shard of `own_region` may store an object (JSON) of a shard of `origin_region`.

    Without a region nobody is in one: what is to stay in its region then stays on its shard.
    """
    if not any(mark in value for mark in _MARKS):
        return True
    annotations = _decoder.decode(value).metadata.annotations or _Annotations()
    if all(level in ("", ORGANIZATION) for level in (annotations.level, annotations.derived)):
        return True
    return bool(origin_region) and origin_region == own_region


def organization(path: str) -> str:
    """The organization of a workspace path: `root:acme` of `root:acme:web`, a home of what is below it."""
    return ":".join(path.split(":")[:_COMPONENTS])


def is_within(path: str, of: str) -> bool:
    """Whether a workspace path is that of an organization or below it."""
    return path == of or path.startswith(of + ":")


def widest_level(levels: Iterable[str]) -> str:
    """How far goes what belongs to exports of several levels: no narrower than any of them; empty without one."""
    found = set(levels)
    return found.pop() if len(found) == 1 else ""


def with_derived_level(obj: Object, level: str) -> Object:
    """An object with the system's note on how far it goes, or without one; itself where nothing changes."""
    metadata = obj["metadata"]
    annotations = dict(metadata.get("annotations") or {})
    if annotations.get(DERIVED, "") == level:
        return obj
    annotations.pop(DERIVED, None)
    if level:
        annotations[DERIVED] = level
    return {**obj, "metadata": {**metadata, "annotations": annotations}}
