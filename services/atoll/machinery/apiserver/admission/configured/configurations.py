"""What is configured in one logical cluster: its webhooks, and its policies with their bindings.

`registry` asks for it once a configuration of the cluster changed, and keeps it. Parts of the same content are shared
by all clusters: a policy, a binding, an entry of a webhook configuration. Invariant: a part depends on its content
alone. Not thread-safe, one per event loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import msgspec

from atoll.machinery.apiserver.admission.configured.questions import Webhook, WebhookEntry
from atoll.machinery.apiserver.admission.policies.policy import Binding, BoundPolicy, Policy
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.kinds.checks import items, mapping, text
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.shared_lru import Shared
from atoll.machinery.meta.types import (
    ADMISSION_CONFIGURATIONS,
    MUTATING_POLICIES,
    MUTATING_POLICY_BINDINGS,
    MUTATING_WEBHOOKS,
    VALIDATING_POLICIES,
    VALIDATING_POLICY_BINDINGS,
    VALIDATING_WEBHOOKS,
)
from atoll.machinery.process.time_slicing import checkpoint
from atoll.machinery.storage.contract import Scope
from atoll.machinery.storage.pages import each_record

#: Bytes of an entry of a cache, and of one webhook or policy in it, without the parts: measured.
ENTRY_BYTES, PLACE_BYTES = 700, 200


class ClusterConfiguration(msgspec.Struct, frozen=True):
    """All that is configured in one cluster; `lasts` are the last changes of its types."""

    lasts: tuple[int, ...]
    mutating_policies: tuple[BoundPolicy, ...] = ()
    mutating_webhooks: tuple[Webhook, ...] = ()
    validating_policies: tuple[BoundPolicy, ...] = ()
    validating_webhooks: tuple[Webhook, ...] = ()

    @property
    def own_bytes(self) -> int:
        count = len(self.mutating_policies) + len(self.validating_policies)
        return ENTRY_BYTES + PLACE_BYTES * (count + len(self.mutating_webhooks) + len(self.validating_webhooks))

    def parts(self) -> Iterator[Policy | Binding | WebhookEntry]:
        yield from parts_of((*self.mutating_policies, *self.validating_policies))
        yield from (each.entry for each in (*self.mutating_webhooks, *self.validating_webhooks))


def parts_of(policies: tuple[BoundPolicy, ...]) -> Iterator[Policy | Binding]:
    """Yield the parts of bound policies."""
    for each in policies:
        yield each.policy
        yield from each.bindings


class Configurations:
    """Reads what is configured in clusters, and finds the parts that others have too."""

    def __init__(self) -> None:
        self._policies: Shared[Policy] = Shared()
        self._bindings: Shared[Binding] = Shared()
        self._entries: Shared[WebhookEntry] = Shared()

    def of(self, view: View, cluster: str, before: ClusterConfiguration | None) -> ClusterConfiguration:
        """Return what is configured in a cluster: `before` if it still holds."""
        lasts = view.lasts(ADMISSION_CONFIGURATIONS, cluster)
        if before is not None and before.lasts == lasts:
            return before
        if not any(lasts):
            return _NOTHING
        return ClusterConfiguration(
            lasts,
            self._bound(view, cluster, MUTATING_POLICIES, MUTATING_POLICY_BINDINGS),
            self._webhooks(view, cluster, MUTATING_WEBHOOKS),
            self._bound(view, cluster, VALIDATING_POLICIES, VALIDATING_POLICY_BINDINGS),
            self._webhooks(view, cluster, VALIDATING_WEBHOOKS),
        )

    def _bound(
        self, view: View, cluster: str, policies: ResourceType, bindings: ResourceType
    ) -> tuple[BoundPolicy, ...]:
        """Return the policies of a cluster that have bindings, by name."""
        bound: dict[str, list[Binding]] = {}
        for obj in _objects(view, cluster, bindings):
            binding = self._bindings.of(_content(obj), partial(Binding.of, obj))
            bound.setdefault(binding.policy, []).append(binding)
        return tuple(
            BoundPolicy(self._policies.of(_content(obj), partial(Policy.of, obj)), tuple(bound[name]), cluster)
            for obj in (_objects(view, cluster, policies) if bound else ())
            if (name := text(obj, "metadata", "name")) in bound
        )

    def _webhooks(self, view: View, cluster: str, type: ResourceType) -> tuple[Webhook, ...]:
        """Return the webhooks of a cluster in the order of the names of their configurations."""
        return tuple(each for obj in _objects(view, cluster, type) for each in self._webhooks_of(obj, type))

    def _webhooks_of(self, obj: Object, type: ResourceType) -> Iterator[Webhook]:
        metadata = obj["metadata"]
        for index, stored in enumerate(items(obj, "webhooks")):
            yield Webhook(
                entry=self._entries.of(stored, partial(WebhookEntry.of, stored)),
                mutating=type == MUTATING_WEBHOOKS,
                configuration=metadata["name"],
                uid=metadata["uid"],
                generation=metadata.get("generation", 0),
                index=index,
            )


_NOTHING = ClusterConfiguration((0,) * len(ADMISSION_CONFIGURATIONS))


def _objects(view: View, cluster: str, type: ResourceType) -> Iterator[Object]:
    for record in each_record(view, Scope(type, cluster)):
        checkpoint()
        yield decode(record.value)


def _content(obj: Object) -> list[object]:
    """Return what a policy or a binding depends on."""
    return [text(obj, "kind"), text(obj, "metadata", "name"), mapping(obj, "spec")]
