"""The lock annotation of a LogicalCluster: which binding or CRD holds which group-resource.

Bindings take their locks in the transaction that binds, CRDs in the one that accepts their names; the lock controller
repairs the rest. Each writes the LogicalCluster at the revision it read, so that two writers never take the same lock.
The format is kcp's; other kcp components read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from atoll.machinery.meta.objects import Object, annotations_of
from atoll.machinery.meta.wellknown import LOCKS


class Lock(msgspec.Struct, frozen=True, omit_defaults=True):
    """The holder of a group-resource: a binding by name (`n`), or a CustomResourceDefinition (`c`).

    `e`, an RFC 3339 time, is the expiry of the lock of a CRD that does not exist yet.
    """

    n: str = ""
    c: bool = False
    e: str = ""

    def is_held_against(self, binding: str, now: str) -> bool:
        """Return whether the lock excludes a binding. Times are RFC 3339 in UTC, which compare as text."""
        if self.c:
            return not self.e or self.e > now
        return self.n not in {"", binding}


Locks = Mapping[str, Lock]
_decoder = msgspec.json.Decoder(dict[str, Lock])


def read_locks(cluster: Object) -> dict[str, Lock] | None:
    """Return the locks of a LogicalCluster; None where the annotation is absent or invalid."""
    text = annotations_of(cluster).get(LOCKS)
    if text is None:
        return None
    try:
        return _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return None


def lock_annotation(locks: Locks) -> str:
    """Return the value of the annotation: JSON with sorted keys."""
    return msgspec.json.encode(dict(locks), order="sorted").decode()


def with_locks(cluster: Object, locks: Locks) -> Object:
    """Return the LogicalCluster with these locks."""
    metadata = cluster["metadata"]
    annotations = {**annotations_of(cluster), LOCKS: lock_annotation(locks)}
    return {**cluster, "metadata": {**metadata, "annotations": annotations}}


def without_binding(locks: Locks, name: str) -> dict[str, Lock]:
    """Return the locks without those of a binding."""
    return {key: lock for key, lock in locks.items() if lock.n != name}


def in_step(locks: Locks, bound: Mapping[str, Iterable[str]], definitions: Iterable[str], now: str) -> dict[str, Lock]:
    """Return the desired locks.

    `bound` maps each binding to its group-resources, `definitions` are those of the cluster's own CRDs. Locks of absent
    holders are removed, missing locks are added where they are free, and the lock of an existing CRD does not expire.
    """
    own = set(definitions)
    kept: dict[str, Lock] = {}
    for key, lock in locks.items():
        if lock.c and key in own:
            kept[key] = Lock(c=True)
        elif (lock.c and lock.e > now) or (not lock.c and lock.n in bound):
            kept[key] = lock
    for name, resources in bound.items():
        for key in resources:
            kept.setdefault(key, Lock(n=name))
    for key in own:
        kept.setdefault(key, Lock(c=True))
    return kept


class _Metadata(msgspec.Struct, rename="camel"):
    annotations: dict[str, str] = {}
    finalizers: list[str] = []
    deletion_timestamp: str = ""


class _LogicalCluster(msgspec.Struct):
    """All that a LogicalCluster says, but its labels and what the system writes at each write."""

    metadata: _Metadata
    spec: msgspec.Raw = msgspec.Raw()
    status: msgspec.Raw = msgspec.Raw()


_stored = msgspec.json.Decoder(_LogicalCluster).decode


def only_adds_locks(before: bytes, after: bytes) -> bool:
    """Return whether a write of a stored LogicalCluster changed nothing but locks, and kept each that there was.

    It lets no binding be bound that was refused.
    """
    old, new = _stored(before), _stored(after)
    held, holds = old.metadata.annotations.pop(LOCKS, ""), new.metadata.annotations.pop(LOCKS, "")
    if old != new:
        return False
    try:
        return _decoder.decode(held).items() <= _decoder.decode(holds).items()
    except (msgspec.DecodeError, UnicodeError):
        return False


def expiries(locks: Locks) -> list[str]:
    """Return the expiry times of locks whose CRD does not exist."""
    return sorted(lock.e for lock in locks.values() if lock.c and lock.e)
