"""Which webhooks and policies act on the writes of a kind in a logical cluster.

Those are the configurations of the object's own cluster and, for a bound kind, those of the workspace whose export it
is bound from, found by its identity; they are read from replicas if that workspace is on another shard. Own ones act
first. Invariant: the answer is that of the view: caches are keyed by the last changes of the types, read in the view.
With nothing configured on the shard a look-up costs one read of these. Bounded; not thread-safe, one per event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from atoll.machinery.apiserver.admission.configured.equivalents import equivalents
from atoll.machinery.apiserver.admission.configured.matching import Criteria, is_exempt
from atoll.machinery.apiserver.admission.configured.questions import Webhook
from atoll.machinery.apiserver.admission.policies.policy import Binding, BoundPolicy, Policy
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.catalog.catalogs import Catalogs
from atoll.machinery.apiserver.catalog.export_index import bound_resources
from atoll.machinery.apiserver.catalog.revision_cache import RevisionCache
from atoll.machinery.apiserver.federation.federated_view import federated
from atoll.machinery.kinds.checks import items
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import wellknown
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.names import CORE, LOCAL, ResourceType
from atoll.machinery.meta.objects import Object, annotations_of
from atoll.machinery.meta.types import (
    ADMISSION_CONFIGURATIONS,
    API_BINDINGS,
    MUTATING_POLICIES,
    MUTATING_POLICY_BINDINGS,
    MUTATING_WEBHOOKS,
    VALIDATING_POLICIES,
    VALIDATING_POLICY_BINDINGS,
    VALIDATING_WEBHOOKS,
)
from atoll.machinery.storage.contract import GateState, Scope
from atoll.machinery.storage.pages import each_revision

#: Bounds of the caches: stored configurations, policies and bindings; kinds in clusters.
MAX_ROWS, MAX_KINDS = 8192, 8192
_UNBOUND = (CORE, LOCAL)
_GOING = (GateState.DELETING, GateState.CLOSED)

T = TypeVar("T")


class PlacedWebhook(msgspec.Struct, frozen=True):
    """A mutating webhook with its position among all of the request's clusters."""

    webhook: Webhook
    place: int


class Acting(msgspec.Struct, frozen=True):
    """What may act on writes of one kind in one cluster, each part in order. At least one part is not empty."""

    mutating_policies: tuple[BoundPolicy, ...]
    mutating_webhooks: tuple[PlacedWebhook, ...]
    validating_policies: tuple[BoundPolicy, ...]
    validating_webhooks: tuple[Webhook, ...]
    #: The other versions of the kind.
    equivalents: tuple[Kind, ...]

    def covers(self, operation: str) -> bool:
        """Whether something may act on an operation (CREATE, UPDATE, DELETE) of the kind."""
        return any(criteria.covers(operation) for criteria in self._criteria())

    def _criteria(self) -> Iterator[Criteria]:
        yield from (each.webhook.criteria for each in self.mutating_webhooks)
        yield from (each.criteria for each in self.validating_webhooks)
        yield from (each.policy.criteria for each in (*self.mutating_policies, *self.validating_policies))


class _OfCluster(msgspec.Struct, frozen=True):
    """All that is configured in one cluster; `lasts` are the last changes of its types."""

    lasts: tuple[int, ...]
    mutating_policies: tuple[BoundPolicy, ...]
    mutating_webhooks: tuple[Webhook, ...]
    validating_policies: tuple[BoundPolicy, ...]
    validating_webhooks: tuple[Webhook, ...]


class _Cached(msgspec.Struct):
    """What acts on a kind, as derived from these clusters. `stamp` is the one at which that was last verified."""

    stamp: Hashable
    sources: tuple[_OfCluster, ...]
    acting: Acting | None


class Registry:
    """Looks up what acts on a kind."""

    def __init__(self, catalogs: Catalogs) -> None:
        self._catalogs = catalogs
        self._stamp: Hashable = None
        self._lasts: tuple[int, ...] = ()
        self._is_empty = True
        self._acting: LruCache[Hashable, _Cached] = LruCache(MAX_KINDS)
        self._clusters: LruCache[str, _OfCluster] = LruCache(MAX_KINDS)
        self._providers: LruCache[Hashable, tuple[int, str]] = LruCache(MAX_KINDS)
        self._rows: dict[ResourceType, RevisionCache[Any]] = {
            type: RevisionCache(read, MAX_ROWS) for type, read in _READERS.items()
        }

    def acting(self, view: View, cluster: str, kind: Kind) -> Acting | None:
        """Return what may act on writes of a kind in a cluster; None if nothing does.

        Configurations of a cluster that is being deleted do not act on its own content.
        """
        stamp = view.stamp(ADMISSION_CONFIGURATIONS)
        if stamp != self._stamp:
            self._follow(view, stamp)
        if self._is_empty or is_exempt(kind):
            return None
        own = view.gate(cluster).state not in _GOING
        bindings = 0 if kind.identity in _UNBOUND else view.last(API_BINDINGS, cluster)
        key = (cluster, own, bindings, kind.type, kind.api_version, kind.mark)
        cached = self._acting.get(key)
        if cached is not None and cached.stamp == stamp:
            return cached.acting
        sources = tuple(self._of_cluster(view, each) for each in self._sources(view, cluster, kind, own=own))
        if cached is None or cached.sources != sources:
            cached = _Cached(stamp, sources, self._made(view, cluster, kind, sources))
            self._acting.put(key, cached)
        cached.stamp = stamp
        return cached.acting

    def _follow(self, view: View, stamp: Hashable) -> None:
        """Find out whether anything at all is configured."""
        wide = federated(view)
        lasts = tuple(wide.last(type, "") for type in ADMISSION_CONFIGURATIONS)
        if lasts != self._lasts:
            present = zip(ADMISSION_CONFIGURATIONS, lasts, strict=True)
            self._is_empty = not any(last and wide.scan(Scope(type), None, 1) for type, last in present)
        self._stamp, self._lasts = stamp, lasts

    def _sources(self, view: View, cluster: str, kind: Kind, *, own: bool) -> Iterator[str]:
        """Yield the clusters whose configurations act: its own, and that of the export of a bound kind."""
        if own:
            yield cluster
        provider = self._provider(view, cluster, kind)
        if provider and provider != cluster:
            yield provider

    def _provider(self, view: View, cluster: str, kind: Kind) -> str:
        """Return the cluster of the export that a kind is bound from; empty for kinds that are not bound."""
        if kind.identity in _UNBOUND:
            return ""
        key, last = (cluster, kind.type), view.last(API_BINDINGS, cluster)
        found = self._providers.get(key)
        if found is None or found[0] != last:
            wanted = kind.group, kind.plural, kind.identity
            bound = (
                each for each in bound_resources(view, cluster) if (each.group, each.resource, each.identity) == wanted
            )
            found = last, next((each.cluster for each in bound), "")
            self._providers.put(key, found)
        return found[1]

    def _of_cluster(self, view: View, cluster: str) -> _OfCluster:
        wide = federated(view)
        lasts = tuple(wide.last(type, cluster) for type in ADMISSION_CONFIGURATIONS)
        found = self._clusters.get(cluster)
        if found is None or found.lasts != lasts:
            found = _OfCluster(
                lasts=lasts,
                mutating_policies=self._policies(wide, cluster, MUTATING_POLICIES, MUTATING_POLICY_BINDINGS),
                mutating_webhooks=self._webhooks(wide, cluster, MUTATING_WEBHOOKS),
                validating_policies=self._policies(wide, cluster, VALIDATING_POLICIES, VALIDATING_POLICY_BINDINGS),
                validating_webhooks=self._webhooks(wide, cluster, VALIDATING_WEBHOOKS),
            )
            self._clusters.put(cluster, found)
        return found

    def _webhooks(self, view: View, cluster: str, type: ResourceType) -> tuple[Webhook, ...]:
        """Return the webhooks of a cluster in the order of the names of their configurations."""
        return tuple(webhook for found in self._read(view, cluster, type) for webhook in found)

    def _policies(
        self, view: View, cluster: str, policies: ResourceType, bindings: ResourceType
    ) -> tuple[BoundPolicy, ...]:
        """Return the policies of a cluster that have bindings, by name."""
        bound: dict[str, list[Binding]] = {}
        for binding in self._read(view, cluster, bindings):
            bound.setdefault(binding.policy, []).append(binding)
        found: Iterable[Policy] = self._read(view, cluster, policies) if bound else ()
        return tuple(BoundPolicy(each, tuple(bound[each.name])) for each in found if each.name in bound)

    def _read(self, view: View, cluster: str, type: ResourceType) -> Iterator[Any]:
        rows = self._rows[type]
        return (rows.of(view, key, revision) for key, revision in each_revision(view, Scope(type, cluster)))

    def _made(self, view: View, cluster: str, kind: Kind, sources: Sequence[_OfCluster]) -> Acting | None:
        others = equivalents(self._catalogs.of(view, cluster), kind)

        def concerned(criteria: Criteria) -> bool:
            return criteria.concerns(kind, others)

        mutating = enumerate(_joined(sources, lambda each: each.mutating_webhooks))
        found = Acting(
            mutating_policies=_concerned(concerned, _joined(sources, lambda each: each.mutating_policies)),
            mutating_webhooks=tuple(PlacedWebhook(each, at) for at, each in mutating if concerned(each.criteria)),
            validating_policies=_concerned(concerned, _joined(sources, lambda each: each.validating_policies)),
            validating_webhooks=tuple(
                each for each in _joined(sources, lambda each: each.validating_webhooks) if concerned(each.criteria)
            ),
            equivalents=others,
        )
        parts = (*found.mutating_policies, *found.validating_policies, *found.mutating_webhooks)
        return found if parts or found.validating_webhooks else None


def _joined(sources: Sequence[_OfCluster], part: Callable[[_OfCluster], tuple[T, ...]]) -> tuple[T, ...]:
    return tuple(each for source in sources for each in part(source))


def _concerned(concerned: Callable[[Criteria], bool], policies: Sequence[BoundPolicy]) -> tuple[BoundPolicy, ...]:
    return tuple(each for each in policies if concerned(each.policy.criteria))


def _cluster(obj: Object) -> str:
    return annotations_of(obj)[wellknown.CLUSTER]


def _webhooks_of(obj: Object, *, mutating: bool) -> tuple[Webhook, ...]:
    metadata = obj["metadata"]
    return tuple(
        Webhook(
            name=entry["name"],
            mutating=mutating,
            cluster=_cluster(obj),
            configuration=metadata["name"],
            uid=metadata["uid"],
            generation=metadata.get("generation", 0),
            index=index,
            criteria=Criteria.of_webhook(entry),
            stored=entry,
        )
        for index, entry in enumerate(items(obj, "webhooks"))
    )


_READERS: dict[ResourceType, Callable[[Object], Any]] = {
    MUTATING_WEBHOOKS: lambda obj: _webhooks_of(obj, mutating=True),
    VALIDATING_WEBHOOKS: lambda obj: _webhooks_of(obj, mutating=False),
    MUTATING_POLICIES: lambda obj: Policy.of(obj, _cluster(obj)),
    VALIDATING_POLICIES: lambda obj: Policy.of(obj, _cluster(obj)),
    MUTATING_POLICY_BINDINGS: Binding.of,
    VALIDATING_POLICY_BINDINGS: Binding.of,
}
