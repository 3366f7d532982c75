"""How long does a backup of a running shard take, and are writes harmed beside it?

The store is filled by its own writer. One client creates objects, alone first and then beside the backup, which is a
process of its own on any core. Then a store is made of the backup.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterator
from functools import partial

from atoll.machinery.storage.lmdb_store import open_store
from atoll.shard.config import ShardConfig
from atoll.standalone.runner import store_options
from harness.environment import python_environment
from loadtest import processes
from loadtest.bench import Bench, sound
from loadtest.http import closed_loop
from loadtest.report import Row
from loadtest.scenarios.create import requests
from loadtest.seed import fill
from loadtest.server import Server

OBJECTS, BUDGET_S = 1_000_000, 60
_FOREVER_S = 600.0


async def run(bench: Bench) -> list[Row]:
    objects, place = bench.size(50_000, OBJECTS), bench.place()
    async with bench.server() as server:
        await asyncio.to_thread(server.stop)
        store = open_store(store_options(ShardConfig(root_directory=str(server.root), allow_any_filesystem=True)))
        await fill(store, objects)
        await store.close()
        await asyncio.to_thread(server.start)
        await asyncio.to_thread(_settle, server)
        alone = sound(await closed_loop(server.origin, requests(server.origin), 1, bench.seconds(3, 10)))
        backup = await _command("backup", server, "--to", str(place / "backup"), "--keys-to", str(place / "keys"))
        began_s = time.monotonic()
        load = sound(await closed_loop(server.origin, _until(backup, server), 1, _FOREVER_S))
        took_s = time.monotonic() - began_s
        await _ended(backup)
    size_mib = (place / "backup/data.mdb").stat().st_size / (1 << 20)
    began_s = time.monotonic()
    flags = ("--root-directory", str(place / "restored"), "--allow-any-filesystem")
    await _ended(await _run("restore", "--from", str(place / "backup"), "--keys-from", str(place / "keys"), *flags))
    restored_s = time.monotonic() - began_s
    note = f"{size_mib:.0f} MiB, {size_mib / took_s:.0f} MiB/s"
    p99 = load.percentile_ms(0.99)
    return [
        Row(f"backup of {objects:,} objects", took_s, "s", BUDGET_S * objects / OBJECTS, note=note),
        Row("  create alone: p99", alone.percentile_ms(0.99), "ms", note=f"p50 {alone.percentile_ms(0.5):.1f} ms"),
        Row("  create beside it: p99", p99, "ms", note=f"p50 {load.percentile_ms(0.5):.1f} ms"),
        Row("  against alone", p99 / alone.percentile_ms(0.99), "x", 2),
        Row("restore, checked whole", restored_s, "s"),
    ]


def _settle(server: Server) -> None:
    """Wait until what the store was filled with is published and on the disk."""
    ends_s = time.monotonic() + _FOREVER_S
    while b"\natoll_stream_lag_events 0.0\n" not in server.get("/metrics", "shard-admin")[1]:
        if time.monotonic() > ends_s:
            raise TimeoutError("what the store was filled with is not published")
        time.sleep(1)
    os.sync()


def _until(process: asyncio.subprocess.Process, server: Server) -> Iterator[bytes]:
    """Creates until a process ends."""
    for request in requests(server.origin):
        if process.returncode is not None:
            return
        yield request


async def _command(command: str, server: Server, *flags: str) -> asyncio.subprocess.Process:
    return await _run(command, "--root-directory", str(server.root), "--allow-any-filesystem", *flags)


async def _run(*words: str) -> asyncio.subprocess.Process:
    command = (sys.executable, "-m", "atoll.cli", *words)
    anywhere = partial(os.sched_setaffinity, 0, processes.USABLE)
    return await asyncio.create_subprocess_exec(*command, env=python_environment(), preexec_fn=anywhere)


async def _ended(process: asyncio.subprocess.Process) -> None:
    if await process.wait() != 0:
        raise RuntimeError("the command failed")
