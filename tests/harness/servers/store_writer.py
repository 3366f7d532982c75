"""A process that owns a store and serves workers: `python -m harness.servers.store_writer OPTIONS SOCKET`.

OPTIONS is a StoreOptions as JSON. Prints `ready`, and ends when its standard input closes.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec

from atoll.machinery.storage.lmdb_store import open_store
from atoll.machinery.storage.options import StoreOptions
from atoll.machinery.storage.workers.submit_server import SubmitServer


async def serve(options: StoreOptions, socket: Path) -> None:
    store = open_store(options)
    server = SubmitServer(store, socket)
    await server.start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    await server.close()
    await store.close()


if __name__ == "__main__":
    asyncio.run(serve(msgspec.json.decode(sys.argv[1], type=StoreOptions), Path(sys.argv[2])))
