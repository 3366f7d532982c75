"""An open watch keeps what it serves with: nothing that it sent, and nothing that was found for other requests."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from atoll.machinery.apiserver.configuration_cache import Access, Configuration
from atoll.machinery.apiserver.request import Request
from atoll.machinery.storage.contract import Change
from atoll.machinery.storage.watching.cursors import LmdbCursor
from atoll.machinery.wire.exchange import Headers, HttpRequest, Peer
from harness.clients.raw_http import until
from harness.clients.tenants import token_file
from harness.servers.in_process.requests import InProcessExchange
from harness.servers.in_process.shard import InsideShard, shard_inside

MAPS = "/api/v1/namespaces/default/configmaps"
#: A ConfigMap of each workspace.
NAME = "kube-root-ca.crt"


class Opened(InProcessExchange):
    """A streamed reply."""

    written = b""

    def start(self, status: int, headers: Headers) -> None:
        self.answer.set_result((status, {}))

    def write(self, data: bytes) -> None:
        self.written += data

    async def drain(self) -> None: ...

    def end(self) -> None:
        for task in self._tasks:
            task.cancel()


@asynccontextmanager
async def opened(shard: InsideShard, cluster: str, query: str) -> AsyncIterator[Opened]:
    headers = {"authorization": ["Bearer master-token"]}
    target = f"/clusters/{cluster}{MAPS}?watch=1{query}".encode()
    exchange = Opened(HttpRequest("GET", target, headers, b"", Peer("127.0.0.1", 1)))
    shard.app.pipeline()(exchange)
    try:
        assert (await asyncio.wait_for(exchange.answer, 30))[0] == 200
        yield exchange
    finally:
        exchange.end()


class Batch(list[Change]):
    """Changes that were read at a time, of which one can tell when they are freed."""


async def test_a_watch_keeps_nothing_of_what_it_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, tokens = token_file(tmp_path)
    read, batches = LmdbCursor.read, list[weakref.ref[Batch]]()

    def read_batch(cursor: LmdbCursor, limit: int = 500) -> Sequence[Change]:
        found = Batch(read(cursor, limit))
        if cursor._scope.cluster == cluster and found:
            batches.append(weakref.ref(found))
        return found

    async with shard_inside(tmp_path, tokens=tokens) as shard:
        cluster = await shard.workspace("shop")
        monkeypatch.setattr(LmdbCursor, "read", read_batch)
        async with opened(shard, cluster, "&resourceVersion=1") as exchange:
            await until(lambda: NAME.encode() in exchange.written)
            await until(lambda: all(each() is None for each in batches))
            assert batches


async def test_a_watch_keeps_no_answers_of_other_requests(tmp_path: Path) -> None:
    _, tokens = token_file(tmp_path)
    async with shard_inside(tmp_path, tokens=tokens) as shard, opened(shard, "root", "") as exchange:
        (request,) = (each for each in gc.get_objects() if isinstance(each, Request) and each.exchange is exchange)
        kept = gc.get_referents(request)
        assert exchange in kept
        assert not [each for each in kept if isinstance(each, (Configuration, Access))]
