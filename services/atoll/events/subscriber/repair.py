"""The truth where changes are missing: lists of the API, and the events that lead to them.

`subscriber` calls it. Invariant: after the events of a repair the caller was told of each object that is there, at its
revision in the list or a later one, and knows by the RESYNC which are there at all.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import structlog

from atoll.events.event import RESYNC, Event
from atoll.events.subscriber.answers import answered
from atoll.events.subscriber.last_states import LastStates
from atoll.events.subscriber.subscription_api import Listed, SubscriptionApi
from atoll.machinery.meta import status
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.stream.consumer.gaps import Gap
from atoll.machinery.stream.subjects import changes_subject
from atoll.machinery.stream.tenants.subscriptions import Subscription

log = structlog.get_logger()


class Truth(msgspec.Struct, frozen=True):
    """The lists of a subscription's resources; None if they may not be had."""

    lists: tuple[tuple[ResourceType, Listed], ...] | None

    def subjects(self, shard: str, cluster: str) -> list[tuple[str, int]]:
        """The subjects whose changes the lists have, each up to a revision."""
        return [(changes_subject(shard, type, cluster), listed.revision) for type, listed in self.lists or ()]

    def events(self, gap: Gap, revision: int, states: LastStates) -> Iterator[Event]:
        """A RESYNC, and what the lists have beyond what is known. `revision` is for want of a list's own."""
        if self.lists is None:
            yield Event(RESYNC, revision, "", reason=gap.value)
            return
        keys = frozenset(key for _, listed in self.lists for key in listed.objects)
        at = min((listed.revision for _, listed in self.lists), default=revision)
        yield Event(RESYNC, at, "", reason=gap.value, keys=keys)
        for type, listed in self.lists:
            yield from states.differences(listed, type)


async def truth(api: SubscriptionApi, subscription: Subscription, *, full: bool, identity: str) -> Truth:
    """List the resources of a subscription. Those of an identity are in many workspaces: the caller lists them."""
    if identity:
        return Truth(None)
    found = []
    try:
        for each in subscription.resources:
            type = ResourceType(each.group, each.resource, each.identity)
            found.append((type, await answered(api.listed(subscription.cluster, type, full=full))))
    except (LookupError, status.Forbidden) as error:
        log.warning("objects cannot be listed", error=str(error))
        return Truth(None)
    return Truth(tuple(found))
