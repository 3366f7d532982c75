"""The kinds of a cache server: all replicated kinds in their storage version, without create.

`rows` writes under their types, `content` serves them. Invariant: every row lies under the one identity CACHE, so that
the store takes no row for an object of its own: a replicated LogicalCluster creates no gate here.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from atoll.machinery.kcp.apis.root_exports import root_exports
from atoll.machinery.kcp.schema_files import bootstrap_file, definition
from atoll.machinery.kcp.sharding.stream_policy import REPLICATED, REPLICATED_IF_ANNOTATED
from atoll.machinery.kinds.custom import kinds_of_crd
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.kinds.registry import native_kind
from atoll.machinery.meta.names import CORE, ResourceType
from atoll.machinery.meta.objects import Object
from atoll.virtualworkspaces.framework import view_kind

#: The identity under which all rows of a cache server lie.
CACHE = "cache"
#: `rows` restores what a write changes or removes; an object without a source is not accepted.
VERBS = ("delete", "deletecollection", "get", "list", "patch", "update", "watch")
_ESTABLISHED: Object = {"conditions": [{"type": "Established", "status": "True"}]}


def cache_kinds() -> tuple[Kind, ...]:
    """Return every served kind in discovery order, without replicated names that have no definition."""
    names = sorted(REPLICATED | REPLICATED_IF_ANNOTATED)
    return tuple(view_kind(replace(kind, identity=CACHE), VERBS) for name in names for kind in _kinds(*name))


def _kinds(group: str, resource: str) -> Iterator[Kind]:
    native = native_kind(group, resource)
    if native is not None:
        yield native
        return
    try:
        crd = definition(f"{resource}.{group}")
    except FileNotFoundError:
        return
    for kind in kinds_of_crd({**crd, "status": _ESTABLISHED}, CORE):
        if kind.version == kind.storage_version:
            yield kind


def row_type(type: ResourceType) -> ResourceType:
    """Return the type of the row of a replicated object."""
    return ResourceType(type.group, type.resource, CACHE)


def exporter_of(type: ResourceType) -> str:
    """Return the APIExport in root that offers a replicated type; "" for types that every cluster serves itself."""
    if native_kind(type.group, type.resource) is not None or type.group_resource in bootstrap_file("exports")["system"]:
        return ""
    offers = bootstrap_file("exports")["exports"]
    return next((name for name in root_exports() if type.group_resource in offers[name]["resources"]), "")
