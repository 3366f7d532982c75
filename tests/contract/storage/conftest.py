"""The store under contract: commits in the loop, commits in a thread, and reached from a worker process."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from atoll.machinery.meta.names import ResourceType
from atoll.machinery.storage.contract import Store
from atoll.machinery.storage.lmdb_store import open_store
from atoll.machinery.storage.maintenance.fsck import fsck
from atoll.machinery.storage.options import StoreOptions
from atoll.machinery.storage.sealing import ensure_key_file
from atoll.machinery.storage.workers.worker_store import connect_store
from harness.data.stores import store_options
from harness.servers.store_writer import StoreWriter

SECRETS = ResourceType("", "secrets")


@asynccontextmanager
async def local(options: StoreOptions) -> AsyncIterator[Store]:
    store = open_store(options)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def remote(options: StoreOptions) -> AsyncIterator[Store]:
    """The writer in its own process; its socket has a short path, as the kernel requires."""
    with tempfile.TemporaryDirectory() as home:
        async with StoreWriter(options, socket := Path(home) / "s"):
            store = await connect_store(options, socket)
            yield store
            await store.close()


@pytest.fixture(params=["inline", "threaded", "worker"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """A store that is checked by fsck at the end of the test."""
    key_file = tmp_path / "keys.json"
    ensure_key_file(key_file)
    options = store_options(
        tmp_path / "store",
        commit_in_thread=request.param == "threaded",
        sealed_types=(SECRETS,),
        key_file=str(key_file),
    )
    make = remote if request.param == "worker" else local
    async with make(options) as opened:
        yield opened
    assert fsck(options) == []
