"""An open watch keeps what it serves with, and nothing that was found for other requests."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

from atoll.machinery.apiserver.configuration_cache import Access, Configuration
from atoll.machinery.apiserver.request import Request
from atoll.machinery.wire.exchange import Headers, HttpRequest, Peer
from harness.clients.tenants import token_file
from harness.servers.in_process.requests import InProcessExchange
from harness.servers.in_process.shard import shard_inside

TARGET = b"/clusters/root/api/v1/namespaces/default/configmaps"


class Opened(InProcessExchange):
    """A streamed reply, of which only the head counts."""

    def start(self, status: int, headers: Headers) -> None:
        self.answer.set_result((status, {}))

    def write(self, data: bytes) -> None: ...

    async def drain(self) -> None: ...

    def end(self) -> None:
        for task in self._tasks:
            task.cancel()


async def test_a_watch_keeps_no_answers_of_other_requests(tmp_path: Path) -> None:
    _, tokens = token_file(tmp_path)
    async with shard_inside(tmp_path, tokens=tokens) as shard:
        headers = {"authorization": ["Bearer master-token"]}
        exchange = Opened(HttpRequest("GET", TARGET + b"?watch=1", headers, b"", Peer("127.0.0.1", 1)))
        shard.app.pipeline()(exchange)
        try:
            assert (await asyncio.wait_for(exchange.answer, 30))[0] == 200
            (request,) = (each for each in gc.get_objects() if isinstance(each, Request) and each.exchange is exchange)
            kept = gc.get_referents(request)
            assert exchange in kept
            assert not [each for each in kept if isinstance(each, (Configuration, Access))]
        finally:
            exchange.end()
