"""The number of connections of an identity, at a server whose answers are prepared."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from atoll.machinery.stream.connection import Connection
from atoll.machinery.stream.tenants import connection_limit
from atoll.machinery.stream.tenants.connection_limit import ConnectionLimit


class Server:
    """Tells so many connections of everybody; None: it does not answer."""

    def __init__(self, connections: int | None) -> None:
        self.connections, self.questions = connections, 0
        self.client = self

    async def request(self, subject: str, question: bytes, timeout: float) -> Any:
        self.questions += 1
        await asyncio.sleep(0)
        if self.connections is None:
            raise TimeoutError
        told = [{"cid": number} for number in range(self.connections)]
        return SimpleNamespace(data=msgspec.json.encode({"data": {"server_id": "N", "connections": told}}))

    def limit(self, most: int) -> ConnectionLimit:
        return ConnectionLimit(cast("Connection", self), most)


async def test_a_server_is_asked_once_for_all_who_fit_in_its_answer() -> None:
    server = Server(1)
    limit = server.limit(4)
    assert await asyncio.gather(*(limit.has_room("ann") for _ in range(3))) == [True] * 3
    assert server.questions == 1


async def test_who_was_just_let_in_counts_until_a_server_tells_it(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(0)
    limit = server.limit(2)
    found = await asyncio.gather(*(limit.has_room("ann") for _ in range(4)))
    assert found == [True, True, False, False]
    monkeypatch.setattr(connection_limit, "_ENTERING_S", 0.0)
    server.connections = 1
    assert await limit.has_room("ann")


async def test_nobody_is_let_in_on_a_question_without_an_answer() -> None:
    assert not await Server(None).limit(4).has_room("ann")


async def test_one_identity_takes_no_room_of_another() -> None:
    limit = Server(3).limit(4)
    assert [await limit.has_room(name) for name in ("ann", "bob", "ann")] == [True, True, False]
