"""What a shard imports, reads and compiles before it is ready, for the process that servers are forked from.

Importing this module starts a shard in a folder of its own and ends it. Invariant: no thread and no file of that shard
is left, and no server looks for garbage in what was made here.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import io
import tempfile
from pathlib import Path

from harness.servers.in_process.shard import STARTED, shard_inside


async def _start() -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with shard_inside(Path(directory)) as shard:
            await shard.until_idle()
    STARTED.pop().cleanup()


# It logs as no server does, which sets up its own log.
with contextlib.redirect_stdout(io.StringIO()):
    asyncio.run(_start())
gc.collect()
gc.freeze()
