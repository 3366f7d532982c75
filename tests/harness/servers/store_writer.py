"""A process that owns a store and serves workers. It is forked from one that has imported what a store needs.

async with StoreWriter(options, socket) as writer:
    ...                                            # it serves until the end of the context
    await writer.kill()
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Self

from atoll.machinery.storage.lmdb_store import open_store
from atoll.machinery.storage.options import StoreOptions
from atoll.machinery.storage.workers.submit_server import SubmitServer
from harness.servers.launch import FORK_SERVER, fork

LIMIT_S = 30.0


class StoreWriter:
    """One process; entering waits until it serves, leaving until it has ended."""

    def __init__(self, options: StoreOptions, socket: Path) -> None:
        self._ours, theirs = FORK_SERVER.Pipe()
        self._process = fork(_run, options, str(socket), theirs)
        theirs.close()

    async def __aenter__(self) -> Self:
        serves = await asyncio.to_thread(self._ours.poll, LIMIT_S)
        assert serves and self._ours.recv() == "ready", "the writer did not start"
        return self

    async def __aexit__(self, *error: object) -> None:
        self._ours.close()
        await self._ended()

    async def kill(self) -> None:
        """SIGKILL, as a crash would; returns when it is gone."""
        self._process.kill()
        await self._ended()

    async def _ended(self) -> None:
        await asyncio.to_thread(self._process.join, LIMIT_S)
        assert self._process.exitcode is not None, "the writer did not end"


def _run(options: StoreOptions, socket: str, parent: Connection) -> None:
    asyncio.run(_serve(options, Path(socket), parent))


async def _serve(options: StoreOptions, socket: Path, parent: Connection) -> None:
    """Serve until the other end of `parent` is closed."""
    store = open_store(options)
    server = SubmitServer(store, socket, _seek, _call)
    await server.start()
    parent.send("ready")
    with contextlib.suppress(EOFError):
        await asyncio.to_thread(parent.recv)
    await server.close()
    await store.close()


async def _seek(cluster: str) -> Sequence[str]:
    raise LookupError("no shards are known here")


async def _call(body: bytes) -> bytes:
    """Answer in capitals, and fail for `bad`."""
    if body == b"bad":
        raise LookupError("nothing is known here")
    return body.upper()
