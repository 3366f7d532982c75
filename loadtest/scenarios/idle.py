"""How much memory does the whole process tree take, nats-server included, when nobody asks for anything?"""

from __future__ import annotations

import asyncio

from atoll.machinery.process import freed_memory
from loadtest.bench import Bench
from loadtest.report import Row

#: What the start freed has been returned to the system then (`process.freed_memory`).
SETTLE_S = 3 * freed_memory.INTERVAL_S


async def run(bench: Bench) -> list[Row]:
    async with bench.server() as server:
        await asyncio.sleep(SETTLE_S)
        found = server.memory()
    return [
        Row("idle memory of the process tree", found.resident / 1e6, "MB", 150),
        Row("idle memory, not backed by files", found.private / 1e6, "MB"),
    ]
