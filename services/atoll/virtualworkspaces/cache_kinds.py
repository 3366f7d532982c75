"""The kinds of replicated objects in their storage version, read only.

The cache view of a shard and the cache server serve them, each under identities of its own. Invariant: any workspace
may export kinds of these names; only those of root's exports are replicated.
"""

from __future__ import annotations

from collections.abc import Iterator

from atoll.machinery.kcp.schema_files import bootstrap_file, definition
from atoll.machinery.kcp.sharding.stream_policy import REPLICATED, REPLICATED_IF_ANNOTATED
from atoll.machinery.kinds.custom import kinds_of_crd
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.kinds.registry import native_kind
from atoll.machinery.meta.names import CORE, ResourceType
from atoll.machinery.meta.objects import Object
from atoll.virtualworkspaces.framework import view_kind

_ESTABLISHED: Object = {"conditions": [{"type": "Established", "status": "True"}]}


def replicated_kinds() -> Iterator[Kind]:
    """Yield every replicated kind in discovery order, without replicated names that have no definition."""
    for name in sorted(REPLICATED | REPLICATED_IF_ANNOTATED):
        for kind in _kinds(*name):
            yield view_kind(kind)


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


def exporter_of(type: ResourceType) -> str:
    """Return the APIExport in root that offers a replicated type; "" for types that every cluster serves itself."""
    if native_kind(type.group, type.resource) is not None or type.group_resource in bootstrap_file("exports")["system"]:
        return ""
    offers = bootstrap_file("exports")["exports"]
    return next((name for name, offer in offers.items() if type.group_resource in offer["resources"]), "")
