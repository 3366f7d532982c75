"""What a ResourceQuota limits, and what a LogicalCluster allows in all, from the objects' JSON.

The writer derives the rows of limits from it, fsck the same rows again, and the status controller the names in use.
An entry of `spec.hard` that counts objects names a kind in one of two ways: `count/<resource>[.<group>]`, or the plain
name of one of a few core kinds. Others are about what objects of a kind use (`kinds.kubernetes.usage`). A quota with
scopes limits kinds that have them. Invariant: pure and total; a malformed object limits nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import msgspec

from atoll.machinery.kinds.kubernetes.usage.charge import Amount, Scope
from atoll.machinery.kinds.kubernetes.usage.evaluators import SCOPES, GroupResource, evaluated_kind
from atoll.machinery.meta import quantity, wellknown
from atoll.machinery.meta.partial import Partial

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
#: Ends of names of resources that are bytes.
_BYTES = ("memory", "storage")


class _QuotaMetadata(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    namespace: str = ""
    annotations: dict[str, str] | None = None


class _Requirement(msgspec.Struct, frozen=True, gc=False):
    scopeName: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class _Selector(msgspec.Struct, frozen=True, gc=False):
    matchExpressions: list[_Requirement] | None = None


class _Spec(msgspec.Struct, frozen=True, gc=False):
    hard: dict[str, str | int | float] | None = None
    scopes: list[str] | None = None
    scopeSelector: _Selector | None = None


class _Quota(Partial[_QuotaMetadata], frozen=True, gc=False):
    spec: _Spec = _Spec()


class _TotalAnnotation(msgspec.Struct, frozen=True, gc=False):
    limit: str | None = msgspec.field(default=None, name=wellknown.MAX_TOTAL_OBJECTS)


class _ClusterMetadata(msgspec.Struct, frozen=True, gc=False):
    annotations: _TotalAnnotation | None = None


class QuotaLimits(msgspec.Struct, frozen=True, gc=False):
    """What a quota limits in `namespace` ("": in the whole cluster): of each kind the names in `spec.hard` and values.

    Names of the same kind limit it independently. Only objects in all `scopes` are limited.
    """

    quota: str
    namespace: str
    hard: dict[GroupResource, tuple[tuple[str, Amount], ...]]
    scopes: tuple[Scope, ...] = ()


_quota = msgspec.json.Decoder(_Quota)
_cluster = msgspec.json.Decoder(Partial[_ClusterMetadata])


def limits_of(value: bytes) -> QuotaLimits:
    """Return what a ResourceQuota limits."""
    try:
        quota = _quota.decode(value)
    except msgspec.DecodeError:
        return QuotaLimits("", "", {})
    scopes = tuple(_scopes(quota.spec))
    hard: dict[GroupResource, tuple[tuple[str, Amount], ...]] = {}
    for kind, name, allowed in _entries(quota.spec.hard or {}):
        if all(scope.name in SCOPES.get(kind, ()) for scope in scopes):
            hard[kind] = (*hard.get(kind, ()), (name, allowed))
    return QuotaLimits(quota.metadata.name, _namespace(quota.metadata), hard, scopes)


def limited_kind(name: str) -> GroupResource | None:
    """Return the kind that an entry of `spec.hard` limits; None if it limits none."""
    return counted_kind(name) or evaluated_kind(name)


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


def text(resource: str, amount: Amount) -> str:
    """Return the quantity of an amount: of bytes the shorter text of both families of suffixes."""
    decimal = quantity.format_quantity(Decimal(amount))
    if not resource.endswith(_BYTES) and "hugepages-" not in resource:
        return decimal
    binary = quantity.format_quantity(Decimal(amount), quantity.BINARY)
    return binary if len(binary) <= len(decimal) else decimal


def _entries(hard: dict[str, str | int | float]) -> Iterator[tuple[GroupResource, str, Amount]]:
    for name, value in sorted(hard.items()):
        kind = limited_kind(name)
        if kind is None:
            continue
        try:
            allowed: Amount = max(Decimal(), quantity.amount(value))
        except ValueError:
            continue
        yield kind, name, int(allowed) if counted_kind(name) else allowed


def _scopes(spec: _Spec) -> Iterator[Scope]:
    for name in spec.scopes or ():
        yield Scope(name)
    for requirement in (spec.scopeSelector or _Selector()).matchExpressions or ():
        yield Scope(requirement.scopeName, requirement.operator, requirement.values or ())


def _namespace(metadata: _QuotaMetadata) -> str:
    """Return the namespace that a quota limits, "" for a cluster-wide one."""
    wide = (metadata.annotations or {}).get(wellknown.CLUSTER_SCOPED_QUOTA) in _TRUE
    return "" if wide and metadata.namespace == ADMIN_NAMESPACE else metadata.namespace
