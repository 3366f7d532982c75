"""LMDB keys: typed tuples to bytes and back, and the prefix ranges that reads may scan.

Writer, snapshots, lists and cursors build every key here. An object's key is

    type number (4 bytes, big endian) | cluster | 00 | namespace | 00 | name

so that one prefix serves a cluster, a namespace, or (type alone) a wildcard request. Invariant: the encoding is
injective and total (any text gives a key of at most 390 bytes), and a prefix always ends at a separator, so no range
can reach into another cluster, namespace or type. No part contains NUL.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

import msgspec

from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.storage.contract import Position, Scope

MAX_CLUSTER_BYTES = 64
MAX_NAMESPACE_BYTES = 63
MAX_NAME_BYTES = 255
#: Readable bytes of a too long name, in front of its hash.
NAME_LEAD_BYTES = 200

_SHORT_LEAD_BYTES = 30
_DIGEST_BYTES = 16
_ESCAPE = b"\x01"
_TYPE = struct.Struct(">I")
_REVISION = struct.Struct(">Q")
#: Size of the type number at the begin of an object key.
TYPE_BYTES = _TYPE.size
#: Size of the revision at the end of a `log` or `versions` key.
REVISION_BYTES = _REVISION.size
#: Sorts behind every row that extends a key by NUL (revisions start with a zero byte until the year 2548).
BEHIND = b"\x01"


class KeyParts(msgspec.Struct, frozen=True):
    """The parts of an object key. `hashed`: a part is not the true text; read it from the value."""

    type_number: int
    cluster: str
    namespace: str
    name: str
    hashed: bool


def _part(text: str, limit: int, lead: int) -> bytes:
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= limit and _ESCAPE not in data and b"\0" not in data:
        return data
    return data[:lead].replace(b"\0", _ESCAPE) + _ESCAPE + hashlib.sha256(data).digest().replace(b"\0", _ESCAPE)


def cluster_part(cluster: str) -> bytes:
    """Return a cluster name as keys hold it, without separator."""
    return _part(cluster, MAX_CLUSTER_BYTES, _SHORT_LEAD_BYTES)


def relative_key(cluster: str, namespace: str, name: str) -> bytes:
    """Return an object's key without its type."""
    return object_key(0, cluster, namespace, name)[_TYPE.size :]


def object_key(type_number: int, cluster: str, namespace: str, name: str) -> bytes:
    """The key of one object in `objects`, and the stem of its `versions` rows."""
    short = len(cluster) <= MAX_CLUSTER_BYTES and len(namespace) <= MAX_NAMESPACE_BYTES
    stem = (_stem if short else _stem.__wrapped__)(type_number, cluster, namespace)
    if len(name) <= MAX_NAME_BYTES and name.isascii() and "\0" not in name and "\1" not in name:
        return stem + name.encode()
    return stem + _part(name, MAX_NAME_BYTES, NAME_LEAD_BYTES)


@lru_cache(maxsize=4096)
def _stem(type_number: int, cluster: str, namespace: str) -> bytes:
    """Return what the keys of a type in one namespace begin with. Cached for short names, 300 bytes each."""
    parts = (
        _part(cluster, MAX_CLUSTER_BYTES, _SHORT_LEAD_BYTES),
        _part(namespace, MAX_NAMESPACE_BYTES, _SHORT_LEAD_BYTES),
    )
    return _TYPE.pack(type_number) + b"\0".join((*parts, b""))


def position_key(type_number: int, position: Position) -> bytes:
    """Return the object key of a list position."""
    return object_key(type_number, position.cluster, position.namespace, position.name)


def scope_prefix(type_number: int, scope: Scope) -> bytes:
    """Return the prefix of all object keys of a scope."""
    prefix = _TYPE.pack(type_number)
    if not scope.cluster:
        return prefix
    prefix += cluster_part(scope.cluster) + b"\0"
    if not scope.namespace:
        return prefix
    return prefix + _part(scope.namespace, MAX_NAMESPACE_BYTES, _SHORT_LEAD_BYTES) + b"\0"


def type_number_of(key: bytes) -> int:
    """Return the type number of an object key."""
    number: int = _TYPE.unpack_from(key)[0]
    return number


def split(key: bytes) -> KeyParts:
    """Return the parts of an object key. Raise ValueError for other bytes."""
    cluster, namespace, name = key[4:].split(b"\0")
    return KeyParts(
        type_number_of(key),
        cluster.decode("utf-8", "replace"),
        namespace.decode("utf-8", "replace"),
        name.decode("utf-8", "replace"),
        _ESCAPE in key[4:],
    )


def object_named(type: ResourceType, key: bytes) -> ObjectKey | None:
    """Return the typed key of an object of a type; None if a part is not the true text."""
    cluster, namespace, name = key[TYPE_BYTES:].split(b"\0")
    if _ESCAPE in key[TYPE_BYTES:]:
        return None
    return ObjectKey(type, cluster.decode(), namespace.decode(), name.decode())


def in_scope(key: bytes, scope: Scope, prefix: bytes) -> bool:
    """Return whether an object key lies in a scope; `prefix` is the scope's, or shorter for a namespace of all
    clusters.
    """
    if not key.startswith(prefix):
        return False
    return bool(scope.cluster) or not scope.namespace or key[4:].split(b"\0")[1] == namespace_part(scope.namespace)


def namespace_part(namespace: str) -> bytes:
    """Return a namespace as keys hold it."""
    return _part(namespace, MAX_NAMESPACE_BYTES, _SHORT_LEAD_BYTES)


#: Key of a `log` row, from its revision.
revision_key: Callable[[int], bytes] = _REVISION.pack


def revision_of_key(key: bytes) -> int:
    """Return the revision of a `log` or `versions` key."""
    revision: int = _REVISION.unpack_from(key, len(key) - REVISION_BYTES)[0]
    return revision


@lru_cache(maxsize=4096)
def cluster_row_key(cluster: str, type_number: int) -> bytes:
    """Key of a counter row; cluster "" is the wildcard row of a type, type 0 the cluster's gate."""
    return cluster_part(cluster) + b"\0" + _TYPE.pack(type_number)


def cluster_row_keys(cluster: str, type_numbers: Iterable[int]) -> Iterator[bytes]:
    """Return the keys of several rows of one cluster, as `cluster_row_key` does of one."""
    return map((cluster_part(cluster) + b"\0").__add__, map(_TYPE.pack, type_numbers))


def owner_prefix(cluster: str, uid: str) -> bytes:
    """Return the prefix of one owner's `owners` rows; the dependent's object key follows."""
    return cluster_part(cluster) + b"\0" + _digest(uid.encode())


def cluster_bytes(key: bytes) -> bytes:
    """Return the cluster of an object key, as `cluster_part` encodes it."""
    return key[4 : key.index(b"\0", 4)]


def dependent_of(row: bytes) -> bytes:
    """Return the dependent's object key from an `owners` row."""
    return row[row.index(b"\0") + 1 + _DIGEST_BYTES :]


def label_prefix(label: str, value: str) -> bytes:
    """Return the prefix of one pair's `labels` rows; the object key follows."""
    return _digest(label.encode() + b"\0" + value.encode())


def origin_prefix(origin: str) -> bytes:
    """Return the prefix of one origin's `replicas` rows; the object key follows."""
    return _part(origin, MAX_NAMESPACE_BYTES, _SHORT_LEAD_BYTES) + b"\0"


@lru_cache(maxsize=4096)
def limit_prefix(cluster: str, namespace: str, kind: tuple[str, str]) -> bytes:
    """Return the prefix of the `limits` rows about a kind (group, plural) in a namespace ("": in the whole cluster)."""
    return b"\0".join((cluster_part(cluster), namespace_part(namespace), _digest("\0".join(kind).encode())))


def limit_key(cluster: str, namespace: str, kind: tuple[str, str], quota: str) -> bytes:
    """Key of the `limits` row of one quota."""
    return limit_prefix(cluster, namespace, kind) + _part(quota, MAX_NAME_BYTES, NAME_LEAD_BYTES)


def expiry_key(moment_us: int, key: bytes) -> bytes:
    """Key of an `expiry` hint: when (microseconds since 1970) and what."""
    return _REVISION.pack(moment_us) + key


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()
