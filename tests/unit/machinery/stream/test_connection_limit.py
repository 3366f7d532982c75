"""The number of connections of an identity, at a server whose answers are prepared."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from atoll.machinery.stream.connection import Connection
from atoll.machinery.stream.tenants import connection_limit
from atoll.machinery.stream.tenants.connection_limit import ConnectionLimit


class Server:
    """The server N tells so many connections of everybody, behind another one that tells none; None: only that one."""

    def __init__(self, connections: int | None) -> None:
        self.connections, self.questions = connections, 0
        self._running = set[asyncio.Task[None]]()
        self._take: Callable[[Any], Coroutine[None, None, None]]

    def inbox(self) -> str:
        return "_INBOX.gateway"

    async def subscribe(self, subject: str, callback: Callable[[Any], Coroutine[None, None, None]]) -> None:
        self._take = callback

    async def publish(self, subject: str, question: bytes, reply: str) -> None:
        self.questions += 1
        told = {"M": 0} if self.connections is None else {"M": 0, "N": self.connections}
        for name, count in told.items():
            page = {"server_id": name, "connections": [{"cid": number} for number in range(count)]}
            message = SimpleNamespace(subject=reply, data=msgspec.json.encode({"data": page}))
            self._running.add(asyncio.create_task(self._take(message)))

    async def limit(self, most: int) -> Limit:
        found = ConnectionLimit(cast("Connection", self), most)
        await found.listen()
        return Limit(found)


class Limit:
    """What the server N asks."""

    def __init__(self, limit: ConnectionLimit) -> None:
        self._limit = limit

    async def has_room(self, name: str, server: str = "N") -> bool:
        return await self._limit.has_room(name, server)


async def test_a_server_is_asked_once_for_all_who_fit_in_its_answer() -> None:
    server = Server(1)
    limit = await server.limit(4)
    assert await asyncio.gather(*(limit.has_room("ann") for _ in range(3))) == [True] * 3
    assert server.questions == 1


async def test_who_was_just_let_in_counts_until_a_server_tells_it(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(0)
    limit = await server.limit(2)
    found = await asyncio.gather(*(limit.has_room("ann") for _ in range(4)))
    assert found == [True, True, False, False]
    monkeypatch.setattr(connection_limit, "_ENTERING_S", 0.0)
    server.connections = 1
    assert await limit.has_room("ann")


async def test_nobody_is_let_in_on_a_question_without_an_answer_of_the_server_that_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit = await Server(None).limit(4)
    assert await limit.has_room("ann", "M")
    monkeypatch.setattr(connection_limit, "_TIMEOUT_S", 0.01)
    assert not await limit.has_room("ann", "N")


async def test_one_identity_takes_no_room_of_another() -> None:
    limit = await Server(3).limit(4)
    assert [await limit.has_room(name) for name in ("ann", "bob", "ann")] == [True, True, False]


async def test_connections_at_one_server_take_no_room_at_another() -> None:
    limit = await Server(4).limit(4)
    assert [await limit.has_room("ann", server) for server in ("N", "M")] == [False, True]
