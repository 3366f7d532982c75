"""Requests to a shard in the test's own event loop: the whole request pipeline, without a socket.

client = InProcessClient(shard.app.pipeline(), cluster, "alice-token")
code, body = await client.send("GET", "/api/v1/namespaces")

A shard makes one pipeline, as its metrics are registered once.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from atoll.machinery.apiserver.serving.pipeline import RequestPipeline
from atoll.machinery.wire.exchange import Headers, HttpRequest, Peer
from harness.clients.api import TIMEOUT_S, Object


class InProcessClient:
    """One user's requests to one logical cluster, or to a view of it (`/services/...`)."""

    def __init__(self, pipeline: RequestPipeline, cluster: str, token: str, view: str = "") -> None:
        self._pipeline, self._token, self._prefix = pipeline, token, f"{view}/clusters/{cluster}"

    async def send(
        self, method: str, path: str, body: object = None, kind: str = "application/json"
    ) -> tuple[int, Object]:
        """The code and the decoded body of the reply."""
        headers = {"authorization": [f"Bearer {self._token}"], "content-type": [kind]}
        data = b"" if body is None else json.dumps(body).encode()
        target = f"{self._prefix}{path}".encode()
        exchange = InProcessExchange(HttpRequest(method, target, headers, data, Peer("127.0.0.1", 1)))
        self._pipeline(exchange)
        async with asyncio.timeout(TIMEOUT_S):
            return await exchange.answer


class InProcessExchange:
    """An exchange that keeps its reply; none is streamed."""

    def __init__(self, request: HttpRequest) -> None:
        self.request = request
        self.answer: asyncio.Future[tuple[int, Object]] = asyncio.get_running_loop().create_future()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def closed(self) -> bool:
        return False

    def reply(self, status: int, headers: Headers, body: bytes | Sequence[bytes] = b"") -> None:
        whole = body if isinstance(body, bytes) else b"".join(body)
        self.answer.set_result((status, json.loads(whole)))

    def start(self, status: int, headers: Headers) -> None:
        raise NotImplementedError

    def write(self, data: bytes) -> None:
        raise NotImplementedError

    def write_now(self, data: bytes) -> bool:
        raise NotImplementedError

    async def drain(self) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        raise NotImplementedError

    def abort(self) -> None:
        raise NotImplementedError

    def on_close(self, callback: Callable[[], None]) -> None:
        """Do nothing: the client never disconnects."""

    def on_drain(self, callback: Callable[[], None]) -> None:
        """Do nothing: the server never drains."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def follow(self, outcome: asyncio.Future[Any], then: Callable[[asyncio.Future[Any]], None]) -> None:
        outcome.add_done_callback(then)
