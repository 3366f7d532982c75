"""A subscriber as third parties write it: plain nats-py and the settings of `stream.json`, without code of the product.

async with Operator(shard) as operator:
    await operator.consume("atoll.changes.root.*.*.*.root")
    changes = await operator.until("last")
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, NamedTuple
from urllib.parse import unquote

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NothingCame
from nats.js.client import JetStreamContext
from nats.js.errors import NotFoundError

from harness.clients.api import eventually
from harness.servers.shard_process import ShardProcess

TIMEOUT_S = 30.0


class Change(NamedTuple):
    """One message."""

    subject: str
    headers: dict[str, str]
    payload: bytes

    @property
    def operation(self) -> str:
        return self.headers["Atoll-Operation"]

    @property
    def revision(self) -> int:
        return int(self.headers["Atoll-Revision"])

    @property
    def previous(self) -> int:
        return int(self.headers["Atoll-Previous"])

    @property
    def name(self) -> str:
        return unquote(self.headers["ce-subject"].rpartition("/")[2])

    @property
    def object(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.payload)
        return found


class Operator:
    """An async context manager: connected inside it, its consumer deleted at its end."""

    def __init__(self, shard: ShardProcess, number: int = 0) -> None:
        self._file = shard.root / "stream.json"
        self._number = number
        self._client: Client | None = None
        self._reading: Any = None
        self.refusals: list[str] = []

    async def __aenter__(self) -> Operator:
        await asyncio.to_thread(eventually, self._file.exists, "stream.json")
        self.access = json.loads(self._file.read_text())

        async def on_error(error: Exception) -> None:
            self.refusals.append(str(error).lower())

        connect = self.access["connect"]
        self._client = await nats.connect(
            **connect, error_cb=on_error, max_reconnect_attempts=60, reconnect_time_wait=0.1
        )
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._reading is not None:
            await self.jetstream.delete_consumer(self.stream, self.durable)
        await self.client.close()

    @property
    def client(self) -> Client:
        assert self._client is not None, "connected"
        return self._client

    @property
    def jetstream(self) -> JetStreamContext:
        return self.client.jetstream(prefix=self.access["api_prefix"])

    @property
    def stream(self) -> str:
        return str(self.access["streams"]["changes"])

    @property
    def durable(self) -> str:
        """The name of its consumer."""
        return str(self.access["consumers"][self._number])

    async def consume(self, filter: str) -> None:
        """Begin at the start of the changes stream, once it exists: it may start after the shard."""
        context = self.jetstream
        async with asyncio.timeout(TIMEOUT_S):
            while not await self._has_stream():  # noqa: ASYNC110  # what another process makes has no event
                await asyncio.sleep(0.02)
        self._reading = await context.pull_subscribe(filter, durable=self.durable, stream=self.stream)

    async def _has_stream(self) -> bool:
        try:
            await self.jetstream.stream_info(self.stream)
        except (NotFoundError, NoRespondersError, NothingCame):
            return False
        return True

    async def until(self, name: str, operation: str = "ADDED") -> list[Change]:
        """Return every change up to that of an object of this name, acknowledged."""
        found: list[Change] = []
        async with asyncio.timeout(TIMEOUT_S):
            while not found or (found[-1].name, found[-1].operation) != (name, operation):
                found.extend(await self._fetch())
        return found

    async def _fetch(self) -> list[Change]:
        messages: list[Msg] = []
        try:
            messages = await self._reading.fetch(1, timeout=2)
        except NothingCame:
            return []
        for message in messages:
            await message.ack()
        return [Change(message.subject, dict(message.headers or {}), message.data) for message in messages]
