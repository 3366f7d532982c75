"""What a ResourceQuota limits, and what a LogicalCluster allows in all, from the objects' JSON.

The writer derives the rows of limits from it, fsck the same rows again, and the status controller the names in use.
An entry of `spec.hard` that counts objects names a kind in one of two ways: `count/<resource>[.<group>]`, or the plain
name of one of a few core kinds. Entries about anything else (compute resources, storage) and quotas with scopes, which
select Pods, limit nothing here. Invariant: pure and total; a malformed object limits nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from atoll.machinery.meta import quantity, wellknown
from atoll.machinery.meta.partial import Partial

#: By group and plural.
GroupResource = tuple[str, str]

#: Namespace whose quotas may be cluster-wide.
ADMIN_NAMESPACE = "admin"
_COUNT = "count/"
_CORE = frozenset(
    {"configmaps", "persistentvolumeclaims", "pods", "replicationcontrollers", "resourcequotas", "secrets", "services"}
)
#: Kubernetes charges them to no quota.
_UNCOUNTED = frozenset({("", "events"), ("events.k8s.io", "events")})
#: What Go reads as true.
_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_MAX = (1 << 63) - 1


class _QuotaMetadata(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    namespace: str = ""
    annotations: dict[str, str] | None = None


class _Spec(msgspec.Struct, frozen=True, gc=False):
    hard: dict[str, str | int | float] | None = None
    scopes: list[str] | None = None
    scopeSelector: msgspec.Raw = msgspec.Raw()


class _Quota(Partial[_QuotaMetadata], frozen=True, gc=False):
    spec: _Spec = _Spec()


class _TotalAnnotation(msgspec.Struct, frozen=True, gc=False):
    limit: str | None = msgspec.field(default=None, name=wellknown.MAX_TOTAL_OBJECTS)


class _ClusterMetadata(msgspec.Struct, frozen=True, gc=False):
    annotations: _TotalAnnotation | None = None


class QuotaLimits(msgspec.Struct, frozen=True, gc=False):
    """What a quota limits in `namespace` ("": in the whole cluster): of each kind the names in `spec.hard` and values.

    Names of the same kind limit it independently.
    """

    quota: str
    namespace: str
    hard: dict[GroupResource, tuple[tuple[str, int], ...]]


_quota = msgspec.json.Decoder(_Quota)
_cluster = msgspec.json.Decoder(Partial[_ClusterMetadata])


def limits_of(value: bytes) -> QuotaLimits:
    """Return what a ResourceQuota limits."""
    try:
        quota = _quota.decode(value)
    except msgspec.DecodeError:
        return QuotaLimits("", "", {})
    hard: dict[GroupResource, tuple[tuple[str, int], ...]] = {}
    if not quota.spec.scopes and bytes(quota.spec.scopeSelector) in {b"", b"null"}:
        for kind, name, allowed in _entries(quota.spec.hard or {}):
            hard[kind] = (*hard.get(kind, ()), (name, allowed))
    return QuotaLimits(quota.metadata.name, _scope(quota.metadata), hard)


def counted_kind(name: str) -> GroupResource | None:
    """Return the kind whose objects an entry of `spec.hard` counts; None if it counts none."""
    if name.startswith(_COUNT):
        resource, _, group = name.removeprefix(_COUNT).partition(".")
        kind = (group, resource)
        return None if kind in _UNCOUNTED else kind
    return ("", name) if name in _CORE else None


def total_limit(value: bytes | None) -> int:
    """Return what the annotation of a LogicalCluster allows: 0 is any number, -1 that it says nothing."""
    try:
        annotations = _cluster.decode(value).metadata.annotations if value is not None else None
        return max(0, int(annotations.limit)) if annotations is not None and annotations.limit is not None else -1
    except ValueError:
        return -1


def _entries(hard: dict[str, str | int | float]) -> Iterator[tuple[GroupResource, str, int]]:
    for name, value in sorted(hard.items()):
        kind = counted_kind(name)
        if kind is None:
            continue
        try:
            yield kind, name, max(0, min(int(quantity.parse(value)), _MAX))
        except ValueError:
            continue


def _scope(metadata: _QuotaMetadata) -> str:
    """Return the namespace that a quota limits, "" for a cluster-wide one."""
    wide = (metadata.annotations or {}).get(wellknown.CLUSTER_SCOPED_QUOTA) in _TRUE
    return "" if wide and metadata.namespace == ADMIN_NAMESPACE else metadata.namespace
