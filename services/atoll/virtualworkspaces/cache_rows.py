"""The replicated objects of a shard, read as a cache server would have them.

`cache` reads through it on a shard, which needs no copies. Invariant: an object of a `system:` cluster,
and one that is not replicated (any more), is not shown; nothing of an object changes but the annotations of its source.
"""

from __future__ import annotations

from atoll.machinery.apiserver.filtered_rows import MappedRows, Rows
from atoll.machinery.kcp.sharding.stream_policy import KcpStreamPolicy
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, annotations_of, decode, encode_json
from atoll.machinery.meta.wellknown import CLUSTER, ORIGIN_SHARD, ORIGINAL_REVISION, ORIGINAL_UID

#: All shards.
WILDCARD = "*"
_POLICY = KcpStreamPolicy()


def with_source(obj: Object, shard: str, revision: str) -> Object:
    """Return an object with the annotations of its source: shard, revision there, and uid."""
    metadata = obj["metadata"]
    source = {ORIGIN_SHARD: shard, ORIGINAL_REVISION: revision, ORIGINAL_UID: metadata.get("uid", "")}
    return {**obj, "metadata": {**metadata, "annotations": {**(metadata.get("annotations") or {}), **source}}}


def replicated_rows(store: Rows, shard: str, named: str) -> MappedRows:
    """Return the objects that `shard` replicates, for a request that names `named`: nothing for another shard."""

    def show(type: ResourceType, value: bytes) -> bytes | None:
        if named not in {shard, WILDCARD}:
            return None
        obj = decode(value)
        metadata = obj["metadata"]
        if not _POLICY.replicated(ObjectKey(type, annotations_of(obj)[CLUSTER], "", metadata["name"]), value):
            return None
        return encode_json(with_source(obj, shard, metadata["resourceVersion"]))

    return MappedRows(store, show)
