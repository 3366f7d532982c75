"""One stream of a subscription: whose its messages are, and whether one is missing.

`subscriber` has one for each stream, over all connections. Invariant: a message is an event only if its shard sent it
(of full events the signature says so); an event is applied only if all before it on its subject was, or is announced.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from atoll.events.event import Event, Position
from atoll.events.gap_check import EventAction, SubscriptionCheck
from atoll.events.subscriber.delivery import Delivered
from atoll.machinery.stream import events as wire
from atoll.machinery.stream.consumer.gaps import Gap
from atoll.machinery.stream.consumer.origin_check import OriginCheck
from atoll.machinery.stream.event_keys import by_id
from atoll.machinery.stream.tenants.subscriptions import StreamPart

log = structlog.get_logger()

#: Clocks of NATS and of a shard may differ by this much, in microseconds.
_SKEW = 5_000_000


class PartReader:
    """`began` is the revision of the moment at which the subscriber was last heard. `full`: events have their objects.

    `keys` are the shard's public keys, as its owner knows them now.
    """

    def __init__(self, part: StreamPart, began: int, *, full: bool) -> None:
        self.part, self._full = part, full
        self.keys: Sequence[str] = ()
        self._check = SubscriptionCheck(began + _SKEW, part.begin.lineage, full=full)
        self._origin = OriginCheck(part.stream, lambda: by_id(self.keys))

    def moved(self, part: StreamPart) -> bool:
        """Take what the server says of the stream now. Whether it is another stream under the same name."""
        before, self.part = self.part, part
        return before.begin.created != part.begin.created

    def decoded(self, delivered: Delivered) -> wire.Event | None:
        """The event of a message; None for one that its shard did not send."""
        message = delivered.message
        try:
            event = wire.decode_delivered(message.subject, message.headers, message.data)
        except wire.Malformed as error:
            log.warning("malformed message ignored", subject=message.subject, error=str(error))
            return None
        return event if not self._full or self._origin.believes(event, delivered.sequence) else None

    @property
    def lacks_keys(self) -> bool:
        """Whether events were dropped as their key is not known."""
        return self._origin.lacks_keys

    def checked(self, event: wire.Event) -> EventAction | Gap:
        """Whether to apply an event, or what is missing before it."""
        return self._check.check(event.subject, event)

    def repaired(self, event: wire.Event, listed: Sequence[tuple[str, int]]) -> None:
        """What was missing before an event is announced. Subjects were `listed` at a revision each."""
        self._check = SubscriptionCheck(max(event.previous, event.revision - 1), event.lineage, full=self._full)
        for subject, revision in listed:
            self._check.listed([subject], revision)

    def public_event(self, event: wire.Event, sequence: int, before: bytes) -> Event:
        """The event as the caller gets it."""
        position = Position(self.part.begin.created, event.lineage, sequence, event.revision, event.revision)
        return Event(
            event.operation.name,
            event.revision,
            position.encode(),
            event.key,
            event.payload,
            event.sealed,
            event.previous,
            before=before,
        )
