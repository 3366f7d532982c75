"""Ends the connections of subscribers that lost a right.

A shard says whose, each gateway hears it, asks all servers for the connections of that name, and has each of them
ended; the client connects anew, or is turned away. Nothing is remembered between a question and its answers, so a
gateway that just started ends what another one let in. Invariant: only connections of the tenants' account are ended.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from atoll.machinery.meta.objects import encode_json
from atoll.machinery.stream.connection import Connection, Unavailable
from atoll.machinery.stream.permissions import KICK_SUBJECT
from atoll.machinery.stream.tenants.subscriber_permissions import CONNECTIONS_SUBJECT, END_CONNECTION_SUBJECT

if TYPE_CHECKING:
    from nats.aio.msg import Msg

log = structlog.get_logger()

#: Connections that a server tells in one answer; it is asked again for the others, once these are ended.
_PAGE: Final = 256
_PROBE_TIMEOUT_S: Final = 5.0


class Kick(msgspec.Struct, frozen=True):
    """What a shard says: the identity whose connections are to be ended."""

    identity: str


class _Connection(msgspec.Struct, frozen=True):
    cid: int


class ConnectionPage(msgspec.Struct, frozen=True):
    """What one server tells of connections."""

    server_id: str
    connections: tuple[_Connection, ...] = ()


class _Answer(msgspec.Struct, frozen=True):
    data: ConnectionPage | None = None


_kicks, _answers = msgspec.json.Decoder(Kick), msgspec.json.Decoder(_Answer)


class ConnectionKicks:
    """Serves one connection of a gateway. `name_of` tells the name of an identity's connections; `ended` is called with
    the number of connections that were told to end."""

    def __init__(self, connection: Connection, name_of: Callable[[str], str], ended: Callable[[int], None]) -> None:
        self._connection, self._name_of, self._ended = connection, name_of, ended
        self._inbox = connection.inbox()

    async def listen(self) -> None:
        """Begin to listen. Raises Unavailable."""
        await self._connection.subscribe(f"{self._inbox}.*", self._end)
        await self._connection.subscribe(KICK_SUBJECT, self._kick)

    async def _kick(self, message: Msg) -> None:
        try:
            kick = _kicks.decode(message.data)
        except msgspec.DecodeError:
            log.warning("kick ignored", size_bytes=len(message.data))
            return
        await self._ask(self._name_of(kick.identity))

    async def _ask(self, name: str) -> None:
        """Ask all servers for the connections of this name."""
        question = encode_json({"user": name, "auth": True, "limit": _PAGE})
        await self._send(CONNECTIONS_SUBJECT, question, f"{self._inbox}.{name}")

    async def _end(self, message: Msg) -> None:
        """End what one server told."""
        try:
            found = connections_of(message.data)
        except ValueError:
            log.warning("connections of a subscriber not told", size_bytes=len(message.data))
            return
        for each in found.connections:
            subject = END_CONNECTION_SUBJECT.format(server=found.server_id)
            # The server does nothing for a request without a reply subject; nobody listens at this one.
            await self._send(subject, encode_json({"cid": each.cid}), f"{self._inbox}.ended.{each.cid}")
        self._ended(len(found.connections))
        if len(found.connections) == _PAGE:
            await self._ask(message.subject.rpartition(".")[2])

    async def _send(self, subject: str, content: bytes, reply: str) -> None:
        try:
            await self._connection.publish(subject, content, reply)
        except Unavailable as error:
            log.debug("connections not ended", error=str(error))


def connections_of(answer: bytes) -> ConnectionPage:
    """What a server told of connections. Raises ValueError if it told nothing."""
    found = _answers.decode(answer).data
    if found is None:
        raise ValueError("no connections told")
    return found


async def probe(connection: Connection) -> None:
    """Raise Unavailable unless the server has an account of tenants that this gateway answers for."""
    try:
        await connection.client.request(CONNECTIONS_SUBJECT, encode_json({"limit": 1}), timeout=_PROBE_TIMEOUT_S)
    except Exception as error:
        raise Unavailable(f"the server has no account of tenants: {error!r}") from error
