"""Copies of what a ClusterCachedResource selects, as rows that other shards follow and keep.

The provider's shard writes them beside the objects (`controllers.exports.cached_copies`), under a type for each name of
a ClusterCachedResource; a shard with consumers keeps the replicas, and rows of its own made of these
(`controllers.exports.kept_copies`), which `virtualworkspaces.copied_rows` shows. A row holds the object's JSON as text,
so that nothing which searches the bytes of stored objects takes the object's metadata for the row's. A set of copies
ends in a marker, whose name no object has. Pure. Invariant: a row of a shard's own differs from its replica in its
place and its revision alone.
"""

from __future__ import annotations

import msgspec

from atoll.machinery.meta import wellknown
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, annotations_of, decode, encode, encode_json
from atoll.machinery.meta.types import COPIES_GROUP, WHOLE_COPIES, copies_of

#: Where a shard keeps rows of its own of other shards' copies. No system cluster is replicated.
KEPT = "system:copies"
#: The name of the row that is written when all copies of a set are there.
MARKER = "/"


class CopySet(msgspec.Struct, frozen=True):
    """The copies of one ClusterCachedResource: the logical cluster and the name of that."""

    cluster: str
    name: str

    @property
    def type(self) -> ResourceType:
        """The type of the copies."""
        return copies_of(self.name)

    def key(self, name: str) -> ObjectKey:
        """The key of the copy of an object, on the provider's shard and of its replicas."""
        return ObjectKey(self.type, self.cluster, "", name)

    def kept_key(self, name: str) -> ObjectKey:
        """The key of a shard's own row, in a namespace called like the provider's cluster."""
        return ObjectKey(self.type, KEPT, self.cluster, name)

    @property
    def whole(self) -> ObjectKey:
        """The row that says of which ClusterCachedResource a shard keeps all copies."""
        return ObjectKey(WHOLE_COPIES, KEPT, self.cluster, self.name)


class _Spec(msgspec.Struct, frozen=True):
    uid: str = ""


class _Row(msgspec.Struct, frozen=True):
    spec: _Spec


_decoder = msgspec.json.Decoder(_Row)


def copy_of(key: ObjectKey, obj: Object) -> Object:
    """Return the row of an object. The revision that it has on its shard is left out."""
    metadata = {name: value for name, value in obj["metadata"].items() if name != "resourceVersion"}
    return _row(key, {"object": encode_json({**obj, "metadata": metadata}).decode()})


def marker_of(key: ObjectKey, uid: str) -> Object:
    """Return the marker of a set: the uid of its ClusterCachedResource; "": its copies are not all there."""
    return _row(key, {"uid": uid})


def _row(key: ObjectKey, spec: Object) -> Object:
    metadata: Object = {"name": key.name, "annotations": {wellknown.CLUSTER: key.cluster}}
    if key.namespace:
        metadata["namespace"] = key.namespace
    return {"apiVersion": f"{COPIES_GROUP}/v1", "kind": "Copy", "metadata": metadata, "spec": spec}


def kept_row(key: ObjectKey, replica: bytes) -> tuple[bytes, int]:
    """Return a shard's own row of a replica, as stored bytes with the offset of its revision."""
    return encode(_row(key, decode(replica)["spec"]))


def uid_of(value: bytes) -> str:
    """Return the uid in a marker."""
    return _decoder.decode(value).spec.uid


def original(value: bytes, cluster: str) -> bytes:
    """Return the object of a row, in another logical cluster and with the row's revision."""
    row = decode(value)
    obj = decode(row["spec"]["object"].encode())
    metadata, revision = obj["metadata"], row["metadata"]["resourceVersion"]
    annotations = {**annotations_of(obj), wellknown.CLUSTER: cluster}
    return encode_json({**obj, "metadata": {**metadata, "annotations": annotations, "resourceVersion": revision}})
