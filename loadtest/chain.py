"""The chain alone: the shard's own pipeline in this process, called without HTTP, TLS or another process.

`scenarios.get` uses it, as the budget of a GET is in CPU of the chain. Timed in short runs of which the median is
taken, since other work on the machine lengthens some.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, cast

from atoll.machinery.apiserver.serving.pipeline import RequestPipeline
from atoll.machinery.meta.objects import encode_json
from atoll.machinery.process import logging
from atoll.machinery.wire.exchange import Exchange, Headers, HttpRequest, Peer
from atoll.shard.app import ShardApp
from atoll.shard.authentication import load
from atoll.shard.config import ShardConfig
from atoll.standalone.runner import prepare
from loadtest.bench import CONFIG_MAPS, config_map, percentile

RUNS, REQUESTS = 40, 300
_BASE = f"/clusters/root{CONFIG_MAPS.path('default')}"


class _RecordedExchange:
    """An exchange that keeps the status."""

    def __init__(self, request: HttpRequest) -> None:
        self.request, self.status, self.closed = request, 0, False
        self.task: asyncio.Task[None] | None = None

    def reply(self, status: int, headers: Headers, body: bytes | Sequence[bytes] = b"") -> None:
        self.status = status

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        self.task = asyncio.ensure_future(work)
        return self.task


async def get_us(place: Path) -> float:
    """CPU of one GET of a 1 KB object by kcp-admin, in microseconds. Raises RuntimeError if it is not answered."""
    logging.configure("error")
    config = ShardConfig(root_directory=str(place / "chain"), allow_any_filesystem=True)
    store = prepare(config)
    try:
        credentials = load(config, ["localhost"])
        app = ShardApp(config, store, credentials, "https://localhost")
        await app.bootstrap()
        assert credentials.tokens is not None
        bearer = f"Bearer {credentials.tokens.kcp_admin}"
        headers = {"host": ["x"], "authorization": [bearer], "user-agent": ["loadtest"]}
        return await _measured(app.pipeline(), headers)
    finally:
        await store.close()


async def _measured(pipeline: RequestPipeline, headers: dict[str, list[str]]) -> float:
    peer = Peer("127.0.0.1", 1)
    body = encode_json(config_map("hot"))
    posted = _ask(pipeline, HttpRequest("POST", _BASE.encode(), headers, body, peer))
    assert posted.task is not None
    await posted.task
    request = HttpRequest("GET", f"{_BASE}/hot".encode(), headers, b"", peer)
    runs = [_timed(lambda: _ask(pipeline, request)) for _ in range(RUNS)]
    return percentile(runs[RUNS // 4 :], 0.5)


def _timed(ask: Callable[[], _RecordedExchange]) -> float:
    began = time.process_time()
    for _ in range(REQUESTS):
        exchange = ask()
    took = time.process_time() - began
    if exchange.status != 200:
        raise RuntimeError(f"a GET was answered {exchange.status}")
    return took / REQUESTS * 1e6


def _ask(pipeline: RequestPipeline, request: HttpRequest) -> _RecordedExchange:
    exchange = _RecordedExchange(request)
    pipeline(cast(Exchange, exchange))
    return exchange
