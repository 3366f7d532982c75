"""A shard in this process whose calls are counted: its listener with TLS, its store and its controllers.

Without a publisher, whose work depends on how fast NATS acknowledges.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from atoll.machinery.control.manager import Manager
from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.storage.lmdb_store import LmdbStore
from atoll.shard.app import ShardApp
from atoll.shard.authentication import load
from atoll.shard.config import ShardConfig
from atoll.standalone.listener import Listener
from atoll.standalone.runner import prepare, store_options
from harness.clients.raw_http import RawClient
from loadtest.counting import CallCounter

_LIMIT_S = 60.0

Connect = Callable[[], Awaitable[RawClient]]


class CountedShard:
    """A shard, one client connection to it, and the counter."""

    def __init__(self, counter: CallCounter, store: LmdbStore, manager: Manager, connect: Connect, token: str) -> None:
        self.store = store
        self.counter, self._manager, self._connect = counter, manager, connect
        self._client: RawClient | None = None
        self._headers = f"Authorization: Bearer {token}\r\nUser-Agent: loadtest\r\n"

    async def ask(self, method: str, path: str, body: Object | None = None, kind: str = "application/json") -> Object:
        """Send a request as kcp-admin and return its answer. Raises RuntimeError if it is refused."""
        headers = self._headers + (f"Content-Type: {kind}\r\n" if body is not None else "")
        self._client = self._client or await self._connect()
        answer = await self._client.ask(path, method, encode_json(body) if body is not None else b"", headers)
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {answer.body[:300]!r}")
        found: Object = msgspec.json.decode(answer.body)
        return found

    @asynccontextmanager
    async def watching(self, path: str, watchers: int) -> AsyncIterator[Callable[[str], Awaitable[None]]]:
        """Watch with so many connections; gives a wait until each has received an event of an object."""
        clients = [await self._connect() for _ in range(watchers)]
        for client in clients:
            await client.send(f"GET {path} HTTP/1.1\r\nHost: a\r\n{self._headers}\r\n".encode())
            await client.head()

        async def received(client: RawClient, name: bytes) -> None:
            while name not in await client.chunk():
                pass

        async def seen(name: str) -> None:
            for client in clients:
                await received(client, name.encode())

        try:
            yield seen
        finally:
            for client in clients:
                client.close()

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    async def idle(self) -> None:
        """Return when the controllers have nothing left to do."""
        async with asyncio.timeout(_LIMIT_S):
            while not self.counter.uncounted(self._manager.idle):  # noqa: ASYNC110 - it announces nothing
                await asyncio.sleep(0)


@asynccontextmanager
async def counted_shard(directory: Path, counter: CallCounter) -> AsyncIterator[CountedShard]:
    """A new shard in a directory of its own."""
    config = ShardConfig(root_directory=str(directory), allow_any_filesystem=True)
    store = prepare(config)
    credentials = load(config, ["localhost"])
    listener = Listener(config, store, credentials, 0)
    port = await listener.listen(0)
    app = ShardApp(config, store, credentials, f"https://127.0.0.1:{port}")
    await app.bootstrap()
    await listener.open(app, ["localhost"], store_options(config))
    manager = app.manager(store)
    running = asyncio.create_task(manager.run())
    assert credentials.tokens is not None
    trust = ssl.create_default_context(cadata=credentials.ca_pem.decode())
    trust.check_hostname = False
    shard = CountedShard(counter, store, manager, lambda: RawClient.connect(port, trust), credentials.tokens.kcp_admin)
    try:
        await shard.idle()
        yield shard
    finally:
        shard.close()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await listener.close()
        await app.close()
        await store.close()
