"""The kinds of a cache server: all replicated kinds in their storage version, without create.

`rows` writes under their types, `server` serves them. Invariant: every row lies under the one identity CACHE, so that
the store takes no row for an object of its own: a replicated LogicalCluster creates no gate here.
"""

from __future__ import annotations

from msgspec.structs import replace

from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.names import ResourceType
from atoll.virtualworkspaces.cache_kinds import replicated_kinds

#: The identity under which all rows of a cache server lie.
CACHE = "cache"
SHARDS = ResourceType("core.kcp.io", "shards", CACHE)
#: `rows` restores what a write changes or removes; an object without a source is not accepted.
VERBS = ("delete", "deletecollection", "get", "list", "patch", "update", "watch")


def cache_kinds() -> tuple[Kind, ...]:
    """Return every served kind in discovery order."""
    return tuple(replace(kind, identity=CACHE, verbs=VERBS) for kind in replicated_kinds())


def row_type(type: ResourceType) -> ResourceType:
    """Return the type of the row of a replicated object."""
    return ResourceType(type.group, type.resource, CACHE)
