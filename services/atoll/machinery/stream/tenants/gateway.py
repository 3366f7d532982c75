"""What a gateway does on NATS: it answers who clients are, and ends connections; on one connection after the other.

A process of its own, or that of a single shard, runs it with a check of tokens. Several run side by side: servers ask
one of them, and each ends what a shard tells. Invariant: the gateway counts as serving only while it is connected to a
server that has the account of the tenants.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import msgspec
import structlog

from atoll.machinery.stream.connection import Access, Connection, Unavailable, keep_connected
from atoll.machinery.stream.tenants.auth_callout import Admission, Answerer, CalloutKeys, ConnectRequest
from atoll.machinery.stream.tenants.callout_service import CalloutService
from atoll.machinery.stream.tenants.connection_kicks import ConnectionKicks, probe
from atoll.machinery.stream.tenants.connection_limit import ConnectionLimit
from atoll.machinery.stream.tenants.subscriber_permissions import (
    SubscriberNames,
    subscriber_names,
    subscriber_permissions,
)

log = structlog.get_logger()

_NAME = "event-gateway"


class TokenHolder(msgspec.Struct, frozen=True):
    """Whose a token is, and when it ends (Unix seconds)."""

    identity: str
    expires_at_s: int


class Counted(NamedTuple):
    """What is told of connections: how many were ended, and each that was turned away as its identity has too many."""

    ended: Callable[[int], None]
    crowded: Callable[[], None]


class Gateway:
    """`run` works until cancelled."""

    def __init__(
        self,
        access: Access,
        keys: CalloutKeys,
        holder_of: Callable[[str], TokenHolder | None],
        most_connections: int,
        counted: Counted,
    ) -> None:
        """`holder_of` judges a token; an identity has `most_connections` at a server. Raises ValueError for keys that
        are none."""
        self._access, self._answerer, self._holder_of, self._counted = access, Answerer(keys), holder_of, counted
        self._most_connections = most_connections
        self._key = base64.b64decode(keys.names, validate=True)
        self._connected, self._no_account = False, ""

    def check_connection(self) -> str | None:
        """Return None while a server serves this gateway, else the reason."""
        return None if self._connected else "no connection to NATS with this gateway's credential"

    def check_account(self) -> str | None:
        """Return None unless the server has no account of tenants: nobody is let in there."""
        return self._no_account or None

    async def run(self) -> None:
        """Serve; connect again whenever the connection is lost."""
        await keep_connected(self._access, _NAME, self._work)

    async def _work(self, connection: Connection) -> None:
        kicks = ConnectionKicks(connection, lambda identity: self._names(identity).connection, self._counted.ended)
        limit = ConnectionLimit(connection, self._most_connections)
        callout = CalloutService(connection, self._answerer, partial(self._authenticate, limit))
        self._connected = True
        try:
            await self._probe(connection)
            await kicks.listen()
            await limit.listen()
            await callout.listen()
            log.info("event gateway serves")
            await connection.closed.wait()
        finally:
            self._connected = False
            await callout.close()

    async def _probe(self, connection: Connection) -> None:
        try:
            await probe(connection)
        except Unavailable as error:
            self._no_account = str(error)
            raise
        self._no_account = ""

    async def _authenticate(self, limit: ConnectionLimit, request: ConnectRequest) -> Admission | None:
        holder = self._holder_of(request.token)
        if holder is None:
            return None
        names = self._names(holder.identity)
        if not await limit.has_room(names.connection, request.server):
            self._counted.crowded()
            return None
        return Admission(subscriber_permissions(names), holder.expires_at_s, names.connection)

    def _names(self, identity: str) -> SubscriberNames:
        return subscriber_names(self._key, identity)
