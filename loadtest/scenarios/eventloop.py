"""How long does a large or hostile request keep others waiting: the worst answer of /livez while it is served?

Each request of the tests' corpus, alone; only time in which the shard itself computed counts.
"""

from __future__ import annotations

import asyncio

from harness.clients.api import Api, workspace_under
from harness.clients.loop_probe import LoopProbe
from harness.data.large_requests import REQUESTS, LargeRequest, prepare
from loadtest.bench import Bench
from loadtest.report import Row

BUDGET_MS = 100


async def run(bench: Bench) -> list[Row]:
    async with bench.server() as server:
        api = await asyncio.to_thread(_prepared, Api(server, "root"))
        return [await asyncio.to_thread(_worst, api, server.pid, request) for request in REQUESTS]


def _prepared(root: Api) -> Api:
    api = root.at(workspace_under(root))
    prepare(api)
    return api


def _worst(api: Api, pid: int, request: LargeRequest) -> Row:
    with LoopProbe(api, pid) as probe:
        request.send(api)
    return Row(f"/livez beside {request.name}", probe.worst_s * 1000, "ms", BUDGET_MS)
