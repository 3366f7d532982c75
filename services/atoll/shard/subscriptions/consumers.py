"""The consumers of tenants' subscriptions on the shard's stream of changes.

`keeper` makes and deletes them over one connection as the shard's own NATS user, and tells subscribers of changes. They
are in the server's memory: whatever it lost, `keeper` makes anew. Invariant: a consumer that this names has the name of
a tenant's slot, so the operator's and the audit's are never touched.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import msgspec

from atoll.machinery.meta import times
from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.stream.connection import ApiError, Connection
from atoll.machinery.stream.permissions import KICK_SUBJECT
from atoll.machinery.stream.subjects import CHANGES, stream_name
from atoll.machinery.stream.tenants.subscriber_permissions import control_address
from atoll.machinery.stream.tenants.subscription_consumer import SubscriptionLimits, consumer_config
from atoll.machinery.stream.tenants.subscriptions import Control

_NOT_FOUND = 10014
_SLOT = re.compile(r"[a-z2-7]{32}-\d{1,2}\Z")


class StreamState(msgspec.Struct, frozen=True):
    """The stream of changes: when it was made, and its last sequence."""

    created: str
    last: int


class Progress(msgspec.Struct, frozen=True):
    """A consumer as it stands. `acked`: all up to this sequence is acknowledged; `delivered` counts deliveries."""

    filters: frozenset[str]
    full: bool
    acked: int
    delivered: int
    outstanding: int
    waiting: int


class _Config(msgspec.Struct, frozen=True):
    filter_subjects: tuple[str, ...] = ()
    headers_only: bool = False


class _Place(msgspec.Struct, frozen=True):
    consumer_seq: int = 0
    stream_seq: int = 0


class _Info(msgspec.Struct, frozen=True):
    name: str
    config: _Config
    delivered: _Place
    ack_floor: _Place
    num_ack_pending: int = 0
    num_pending: int = 0
    num_waiting: int = 0

    @property
    def progress(self) -> Progress:
        return Progress(
            frozenset(self.config.filter_subjects),
            not self.config.headers_only,
            self.ack_floor.stream_seq,
            self.delivered.consumer_seq,
            self.num_ack_pending + self.num_pending,
            self.num_waiting,
        )


def pause(until_s: float) -> Object:
    """What has a consumer deliver nothing until then, in Unix seconds; nothing for 0."""
    return {"pause_until": times.format_time(math.ceil(until_s))} if until_s else {}


class Consumers:
    """Those of one shard, over one open connection. Every method raises ApiError and Unavailable."""

    def __init__(self, connection: Connection, shard: str, limits: SubscriptionLimits) -> None:
        self._connection, self._limits = connection, limits
        self._stream = stream_name(CHANGES, shard)

    async def stream(self) -> StreamState:
        """The state of the stream."""
        info = await self._connection.api(f"STREAM.INFO.{self._stream}")
        return StreamState(info["created"], info["state"]["last_seq"])

    async def create(self, name: str, selected: Sequence[str], start: Object, *, full: bool) -> Progress:
        """Make a consumer that begins where `start` says; `acked` is then where that is."""
        config = consumer_config(name, selected, self._limits, start, full=full)
        body = {"stream_name": self._stream, "config": config}
        found = await self._connection.api(f"CONSUMER.CREATE.{self._stream}.{name}", body)
        return msgspec.convert(found, _Info).progress

    async def delete(self, name: str) -> None:
        """Delete a consumer if it is there."""
        try:
            await self._connection.api(f"CONSUMER.DELETE.{self._stream}.{name}")
        except ApiError as error:
            if error.code != _NOT_FOUND:
                raise

    async def progress(self, name: str) -> Progress | None:
        """A consumer as it stands, None without one."""
        try:
            found = await self._connection.api(f"CONSUMER.INFO.{self._stream}.{name}")
        except ApiError as error:
            if error.code == _NOT_FOUND:
                return None
            raise
        return msgspec.convert(found, _Info).progress

    async def all(self) -> dict[str, Progress]:
        """All consumers that have the name of a slot."""
        found: dict[str, Progress] = {}
        offset, total = 0, 1
        while offset < total:
            page = await self._connection.api(f"CONSUMER.LIST.{self._stream}", {"offset": offset})
            infos = msgspec.convert(page["consumers"] or [], list[_Info])
            if not infos:
                break
            found.update((each.name, each.progress) for each in infos if _SLOT.match(each.name))
            offset, total = offset + len(infos), page["total"]
        return found

    async def pause(self, name: str, until_s: float) -> None:
        """Have a consumer deliver nothing until then, in Unix seconds."""
        await self._connection.api(f"CONSUMER.PAUSE.{self._stream}.{name}", pause(until_s))

    async def tell(self, inbox: str, message: Control) -> None:
        """Tell a subscriber that a subscription changed."""
        await self._connection.publish(control_address(inbox), msgspec.json.encode(message))

    async def kick(self, identity: str) -> None:
        """Have the gateways close the connections of an identity."""
        await self._connection.publish(KICK_SUBJECT, encode_json({"identity": identity}))
