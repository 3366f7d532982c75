"""Which webhooks and policies act on the writes of a kind in a logical cluster.

Those are the configurations of the object's own cluster and, for a bound kind, those of the workspace whose export it
is bound from, found by its identity; they are read from replicas if that workspace is on another shard. Own ones act
first. Invariant: the answer is that of the view: what is cached holds the last changes of the types, read in the view.
With nothing configured on the shard a look-up costs one read of these. Bounded in bytes; not thread-safe, one per event
loop.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

import msgspec

from atoll.machinery.apiserver.admission.configured.configurations import (
    ENTRY_BYTES,
    PLACE_BYTES,
    ClusterConfiguration,
    Configurations,
    parts_of,
)
from atoll.machinery.apiserver.admission.configured.equivalents import equivalents
from atoll.machinery.apiserver.admission.configured.matching import Criteria, is_exempt
from atoll.machinery.apiserver.admission.configured.questions import Webhook, WebhookEntry
from atoll.machinery.apiserver.admission.policies.policy import Binding, BoundPolicy, Policy
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.catalog.catalogs import Catalogs
from atoll.machinery.apiserver.catalog.export_index import bound_resources
from atoll.machinery.apiserver.federation.federated_view import federated
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.names import CORE, LOCAL, ResourceType
from atoll.machinery.meta.shared_lru import SharedLru
from atoll.machinery.meta.types import ADMISSION_CONFIGURATIONS, API_BINDINGS
from atoll.machinery.storage.contract import GateState, Scope

#: Bytes of what is configured in clusters, and as many of what acts on kinds.
MAX_BYTES = 24 << 20
_UNBOUND = (CORE, LOCAL)
_GOING = (GateState.DELETING, GateState.CLOSED)

T = TypeVar("T")
#: What acts on a kind is found by its cluster, its type and its version.
_Place = tuple[str, ResourceType, str]


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

    @property
    def own_bytes(self) -> int:
        count = len(self.mutating_policies) + len(self.validating_policies)
        return PLACE_BYTES * (count + len(self.mutating_webhooks) + len(self.validating_webhooks))

    def parts(self) -> Iterator[Policy | Binding | WebhookEntry]:
        """Yield what it shares with other kinds and clusters."""
        yield from parts_of((*self.mutating_policies, *self.validating_policies))
        yield from (each.webhook.entry for each in self.mutating_webhooks)
        yield from (each.entry for each in self.validating_webhooks)


class _Cached(msgspec.Struct):
    """What acts on a kind, as of this state of its definition and its cluster, and of these clusters' last changes.

    `stamp` is the one at which that was last verified, `provider` the cluster of the kind's export; empty without one.
    """

    stamp: Hashable
    state: tuple[object, ...]
    provider: str
    lasts: tuple[tuple[int, ...], ...]
    acting: Acting | None

    @property
    def own_bytes(self) -> int:
        return ENTRY_BYTES + (self.acting.own_bytes if self.acting is not None else 0)

    def parts(self) -> Iterator[Policy | Binding | WebhookEntry]:
        return self.acting.parts() if self.acting is not None else iter(())


class Registry:
    """Looks up what acts on a kind."""

    def __init__(self, catalogs: Catalogs, max_bytes: int = MAX_BYTES) -> None:
        self._catalogs, self._configurations = catalogs, Configurations()
        self._stamp: Hashable = None
        self._lasts: tuple[int, ...] = ()
        #: Whether nothing was configured in any cluster at the last look-up.
        self.is_empty = True
        self._acting: SharedLru[_Place, _Cached] = SharedLru(max_bytes)
        self._clusters: SharedLru[str, ClusterConfiguration] = SharedLru(max_bytes)

    @property
    def size_bytes(self) -> int:
        """The bytes of what is cached, as weighed."""
        return self._acting.size_bytes + self._clusters.size_bytes

    def may_act(self, view: View, cluster: str, types: Iterable[ResourceType]) -> bool:
        """Return whether something may act on some types in a cluster, as far as that is said without their kinds."""
        stamp = view.stamp(ADMISSION_CONFIGURATIONS)
        if stamp != self._stamp:
            self._follow(view, stamp)
        if self.is_empty:
            return False
        return any(type.identity not in _UNBOUND for type in types) or any(self._of_cluster(view, cluster).lasts)

    def acting(self, view: View, cluster: str, kind: Kind) -> Acting | None:
        """Return what may act on writes of a kind in a cluster; None if nothing does.

        Configurations of a cluster that is being deleted do not act on its own content.
        """
        stamp = view.stamp(ADMISSION_CONFIGURATIONS)
        if stamp != self._stamp:
            self._follow(view, stamp)
        if self.is_empty or is_exempt(kind):
            return None
        own = view.gate(cluster).state not in _GOING
        bindings = 0 if kind.identity in _UNBOUND else view.last(API_BINDINGS, cluster)
        place, state = (cluster, kind.type, kind.api_version), (own, bindings, kind.mark)
        cached = self._acting.get(place)
        if cached is not None and cached.state != state:
            cached = None
        if cached is not None and cached.stamp == stamp:
            return cached.acting
        provider = _provider(view, cluster, kind) if cached is None else cached.provider
        clusters = dict.fromkeys(((cluster,) if own else ()) + ((provider,) if provider else ()))
        sources = [self._of_cluster(view, each) for each in clusters]
        lasts = tuple(each.lasts for each in sources)
        if cached is None or cached.lasts != lasts:
            cached = _Cached(stamp, state, provider, lasts, self._made(view, cluster, kind, sources))
            self._acting.put(place, cached)
        cached.stamp = stamp
        return cached.acting

    def _follow(self, view: View, stamp: Hashable) -> None:
        """Find out whether anything at all is configured."""
        wide = federated(view)
        lasts = wide.lasts(ADMISSION_CONFIGURATIONS, "")
        if lasts != self._lasts:
            present = zip(ADMISSION_CONFIGURATIONS, lasts, strict=True)
            self.is_empty = not any(last and wide.scan(Scope(type), None, 1) for type, last in present)
        self._stamp, self._lasts = stamp, lasts

    def _of_cluster(self, view: View, cluster: str) -> ClusterConfiguration:
        known = self._clusters.get(cluster)
        found = self._configurations.of(federated(view), cluster, known)
        if found is not known and any(found.lasts):
            self._clusters.put(cluster, found)
        return found

    def _made(self, view: View, cluster: str, kind: Kind, sources: Sequence[ClusterConfiguration]) -> Acting | None:
        others = equivalents(self._catalogs.for_request(view, cluster), kind)

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


def _joined(
    sources: Sequence[ClusterConfiguration], part: Callable[[ClusterConfiguration], tuple[T, ...]]
) -> tuple[T, ...]:
    return tuple(each for source in sources for each in part(source))


def _concerned(concerned: Callable[[Criteria], bool], policies: Sequence[BoundPolicy]) -> tuple[BoundPolicy, ...]:
    return tuple(each for each in policies if concerned(each.policy.criteria))


def _provider(view: View, cluster: str, kind: Kind) -> str:
    """Return the cluster of the export that a kind is bound from; empty for kinds that are not bound."""
    if kind.identity in _UNBOUND:
        return ""
    wanted = kind.group, kind.plural, kind.identity
    bound = (each for each in bound_resources(view, cluster) if (each.group, each.resource, each.identity) == wanted)
    return next((each.cluster for each in bound), "")
