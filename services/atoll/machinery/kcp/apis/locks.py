"""The lock annotation of a LogicalCluster: which binding or definition holds which group-resource.

Bindings take their locks in the submit that binds, definitions in the one that accepts their names; the clean-up
controller keeps the rest in step. All of them write the LogicalCluster at the revision they read, so that two of them
can never both take one. The form is kcp's, which other components of kcp's world read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.wellknown import LOCKS


class Lock(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who holds a group-resource: a binding by name (`n`), or a CustomResourceDefinition (`c`).

    `e`, an RFC 3339 time, is when the lock of a definition that was never created falls away.
    """

    n: str = ""
    c: bool = False
    e: str = ""

    def is_held_against(self, binding: str, now: str) -> bool:
        """Whether it keeps a binding out. Times are RFC 3339 texts in UTC, which sort as they follow each other."""
        if self.c:
            return not self.e or self.e > now
        return self.n not in {"", binding}


Locks = Mapping[str, Lock]
_decoder = msgspec.json.Decoder(dict[str, Lock])


def read_locks(cluster: Object) -> dict[str, Lock] | None:
    """The locks of a LogicalCluster; None where they were never written, or cannot be read."""
    text = (cluster["metadata"].get("annotations") or {}).get(LOCKS)
    if text is None:
        return None
    try:
        return _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return None


def lock_annotation(locks: Locks) -> str:
    """Value of the annotation: JSON with sorted keys."""
    return msgspec.json.encode(dict(locks), order="sorted").decode()


def with_locks(cluster: Object, locks: Locks) -> Object:
    """The LogicalCluster with these locks."""
    metadata = cluster["metadata"]
    annotations = {**(metadata.get("annotations") or {}), LOCKS: lock_annotation(locks)}
    return {**cluster, "metadata": {**metadata, "annotations": annotations}}


def without_binding(locks: Locks, name: str) -> dict[str, Lock]:
    """What is left when a binding goes."""
    return {key: lock for key, lock in locks.items() if lock.n != name}


def in_step(locks: Locks, bound: Mapping[str, Iterable[str]], definitions: Iterable[str], now: str) -> dict[str, Lock]:
    """The locks as they should be.

    `bound` are the group-resources of each binding there is, `definitions` those of the cluster's own CRDs. Entries of
    what is gone fall away, entries that lack are added where nobody else has them, and a definition that exists holds
    its lock without end.
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


def expiries(locks: Locks) -> list[str]:
    """When locks of definitions that do not exist fall away."""
    return sorted(lock.e for lock in locks.values() if lock.c and lock.e)
