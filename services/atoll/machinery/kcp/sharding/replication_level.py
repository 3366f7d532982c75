"""The replication level: annotation `replication.atoll.dev/level` of APIExports, and the level derived from it.

Replicated objects go to every shard, as in kcp, unless their export has level `organization` (only workspaces below the
first two components of its path find it) or `region` (only shards in the region of its shard store it). Admission gives
exports without level the operator's default, validates the annotation and sets the derived level (`DERIVED`) on objects
that belong to an export; followers call `may_hold` before they store an object; look-ups of exports call `is_within`.
Invariant: an unknown level is treated as the narrowest, `region`.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from atoll.machinery.meta import rawscan
from atoll.machinery.meta.objects import Object, annotations_of
from atoll.machinery.meta.partial import Partial, SomeAnnotations

#: Set by the author of an export, or of a schema that must not be replicated before an export names it.
LEVEL = "replication.atoll.dev/level"
#: Set by the system on schemas, conversions, endpoint slices and RBAC objects of exports with a level.
DERIVED = "internal.atoll.dev/level"
GLOBAL, ORGANIZATION, REGION = "global", "organization", "region"
LEVELS = (GLOBAL, ORGANIZATION, REGION)

_MARKS = (rawscan.text(LEVEL), rawscan.text(DERIVED))
#: Number of path components that name an organization: its parent and its own name.
_COMPONENTS = 2


class _Annotations(msgspec.Struct, frozen=True, gc=False):
    level: str = msgspec.field(default="", name=LEVEL)
    derived: str = msgspec.field(default="", name=DERIVED)


_decoder = msgspec.json.Decoder(Partial[SomeAnnotations[_Annotations]])


def level_of(obj: Object) -> str:
    """Return the level set by an object's author; empty if it is replicated to every shard."""
    level = str(annotations_of(obj).get(LEVEL) or "")
    if level in ("", GLOBAL):
        return ""
    return level if level in LEVELS else REGION


def may_hold(value: bytes, origin_region: str, own_region: str) -> bool:
    """Whether a shard of `own_region` may store an object (JSON) of a shard of `origin_region`.

    A shard without a region label is in no region: objects of level `region` then stay on their own shard.
    """
    if not any(mark in value for mark in _MARKS):
        return True
    annotations = _decoder.decode(value).metadata.annotations or _Annotations()
    if all(level in ("", GLOBAL, ORGANIZATION) for level in (annotations.level, annotations.derived)):
        return True
    return bool(origin_region) and origin_region == own_region


def organization(path: str) -> str:
    """Return the organization of a workspace path: `root:acme` for `root:acme:web`; the home below a home workspace."""
    return ":".join(path.split(":")[:_COMPONENTS])


def is_within(path: str, of: str) -> bool:
    """Whether a workspace path is that of the organization `of` or below it."""
    return path == of or path.startswith(of + ":")


def widest_level(levels: Iterable[str]) -> str:
    """Return the level of an object that belongs to several exports: their common level, else empty (every shard)."""
    found = set(levels)
    return found.pop() if len(found) == 1 else ""


def with_derived_level(obj: Object, level: str) -> Object:
    """Return the object with this derived level, without one if empty; the same object if nothing changes."""
    metadata = obj["metadata"]
    annotations = dict(annotations_of(obj))
    if annotations.get(DERIVED, "") == level:
        return obj
    annotations.pop(DERIVED, None)
    if level:
        annotations[DERIVED] = level
    return {**obj, "metadata": {**metadata, "annotations": annotations}}
