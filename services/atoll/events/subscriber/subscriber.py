"""One subscriber: its events in order, each once where that can be known, and the truth by lists where some are lost.

`atoll.events.subscribe` makes it. It goes round: ask the API how the subscription is, connect to NATS with a new token,
hand out messages until the token is about to end, the connection breaks or the subscription changes. Invariant: an
event is acknowledged only after the body of the caller's loop; a change that is not delivered is announced by a RESYNC.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Self

import msgspec
import structlog

from atoll.events.event import Event
from atoll.events.gap_check import EventAction
from atoll.events.subscriber.answers import admitted, raise_unless_active
from atoll.events.subscriber.delivery import Delivered, Delivery
from atoll.events.subscriber.last_states import LastStates
from atoll.events.subscriber.part_reader import PartReader
from atoll.events.subscriber.repair import Truth, truth
from atoll.events.subscriber.subscription_api import SubscriptionApi
from atoll.events.subscription_options import Options
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.times import parse_time
from atoll.machinery.stream.connection import Access, ApiError, Connection, Reconnection, TooOld, Unavailable
from atoll.machinery.stream.consumer.gaps import Gap
from atoll.machinery.stream.events import Event as WireEvent
from atoll.machinery.stream.tenants.subscriptions import Subscription, SubscriptionRequest

log = structlog.get_logger()

#: How long before its end a token is renewed; half its time if that is later.
_RENEW_S = 60.0
#: How often the keys of a shard are looked for at most.
_KEYS_S = 60.0


class Subscriber:
    """An async context manager to iterate. `subscription` is the server's last answer, with what it refused.

    Raises ValueError for what no subscription can be."""

    def __init__(self, api: SubscriptionApi, name: str, resources: Sequence[str], options: Options) -> None:
        self._request = _request(name, resources, options)
        self._api, self._images = api, options.get("previous", False)
        self._states, self._delivery = LastStates(images=self._images), Delivery()
        self._parts: dict[str, PartReader] = {}
        self._handling: Delivered | None = None
        self._events = self._all()
        self._renewed_at_s = 0.0
        self.subscription: Subscription

    async def __aenter__(self) -> Self:
        subscription = await self._api.subscribe(self._request)
        raise_unless_active(subscription)
        for each in subscription.refused:
            log.warning("not subscribed", resource=each.resource, group=each.group, reason=each.message)
        self.subscription = subscription
        if self._images:
            for _, listed in (await self._truth()).lists or ():
                self._states.image(listed)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._handling is not None:
            await self._delivery.acknowledge(self._handling)
            self._handling = None
        await self._delivery.give_back(self._handling)
        await self._events.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        return await anext(self._events)

    # --- one connection after the other

    async def _all(self) -> AsyncGenerator[Event, None]:
        """Deliver until closed. Raises Revoked, Gone."""
        retries = Reconnection(f"subscription {self._request.name}")
        while True:
            retries.begin()
            try:
                async with aclosing(self._session()) as events:
                    async for event in events:
                        yield event
            except (Unavailable, ApiError, TooOld) as error:
                await retries.failed(error)

    async def _session(self) -> AsyncGenerator[Event, None]:
        await self._renew()
        access, ends_at_s = await self._access()
        connection = await Connection.open(access, f"atoll subscription {self._request.name}")
        try:
            await self._delivery.listen(connection, self.subscription)
            # What the server said before that was heard by nobody, as of a shard that joined.
            await self._renew()
            async with aclosing(self._delivery.messages(connection, self.subscription, ends_at_s)) as messages:
                async for delivered in messages:
                    async with aclosing(self._accepted(delivered)) as events:
                        async for event in events:
                            yield event
                    await self._delivery.acknowledge(delivered)
        finally:
            await connection.close()

    async def _renew(self) -> None:
        """Ask how the subscription is now. Raises Revoked, Gone, Unavailable."""
        subscription = await admitted(self._api.get(self._request.name))
        raise_unless_active(subscription)
        self.subscription, self._renewed_at_s = subscription, time.monotonic()

    async def _access(self) -> tuple[Access, float]:
        """How to connect, with a new token, and when to connect anew."""
        token, subscription = await admitted(self._api.token()), self.subscription
        left_s = max((parse_time(token.expiration_timestamp) or 0.0) - time.time(), 0.0)
        access = Access(
            list(subscription.servers),
            inbox_prefix=subscription.inbox_prefix,
            api_prefix=subscription.api_prefix,
            token=token.token,
            ca=subscription.ca,
        )
        return access, time.monotonic() + max(left_s - _RENEW_S, left_s / 2)

    # --- one message

    async def _accepted(self, delivered: Delivered) -> AsyncGenerator[Event, None]:
        """The events that a message leads to: its own, none for a duplicate, or those of a repair before it."""
        part, moved = self._part(delivered.stream)
        event = part.decoded(delivered)
        if event is None and part.lacks_keys and time.monotonic() - self._renewed_at_s > _KEYS_S:
            # A shard announces a key before it signs with it.
            await self._renew()
            part, moved = self._part(delivered.stream)
            event = part.decoded(delivered)
        if event is None:
            return
        result = Gap.STREAM if moved else part.checked(event)
        if isinstance(result, Gap):
            async with aclosing(self._repaired(part, result, event)) as events:
                async for each in events:
                    yield each
            result = part.checked(event)
        if result is EventAction.APPLY and event.key is not None:
            public = part.public_event(event, delivered.sequence, self._states.before(event.key, event.revision))
            self._states.tell(public)
            self._handling = delivered
            yield public
            self._handling = None

    def _part(self, stream: str) -> tuple[PartReader, bool]:
        """The reader of a stream, and whether it is another stream under the same name since it was last used."""
        now = next(each for each in self.subscription.streams if each.stream == stream)
        part = self._parts.get(stream)
        if part is None:
            part = self._parts[stream] = PartReader(now, self._delivery.began[stream], full=self._full)
        part.keys = self.subscription.event_keys.get(now.shard, ())
        return part, part.moved(now)

    @property
    def _full(self) -> bool:
        return all(each.full for each in self.subscription.resources)

    async def _repaired(self, part: PartReader, gap: Gap, event: WireEvent) -> AsyncGenerator[Event, None]:
        """A RESYNC and what leads from what is known to the truth; the checks go on behind it."""
        log.warning("changes missing, resync", stream=part.part.stream, reason=gap.value)
        # The event may be of a new stream that the server's last answer does not have: then this is its one RESYNC.
        await self._renew()
        self._part(part.part.stream)
        found = await self._truth()
        part.repaired(event, found.subjects(part.part.shard, self.subscription.cluster))
        for each in found.events(gap, event.revision, self._states):
            yield each

    async def _truth(self) -> Truth:
        return await truth(self._api, self.subscription, full=self._full, identity=self._request.identity)


def _request(name: str, resources: Sequence[str], options: Options) -> SubscriptionRequest:
    request: Object = {"name": name, "resources": list(resources)}
    request["identity"] = options.get("identity", "")
    request["since"], request["full"] = options.get("since", "now"), options.get("full", False)
    try:
        return msgspec.convert(request, SubscriptionRequest)
    except msgspec.ValidationError as error:
        raise ValueError(f"no subscription: {error}") from error
