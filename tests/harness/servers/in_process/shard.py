"""A whole shard without its doors, in the test's own event loop: a real store, admission, and all controllers.

async with shard_inside(tmp_path) as shard:
    cluster = await shard.workspace("shop")
    await shard.loopback.create(shard.target(CONFIG_MAPS, cluster, "default", "a"), {...})
    await shard.until_idle()
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.control.manager import Manager
from atoll.machinery.meta.names import ROOT, ResourceType
from atoll.machinery.meta.objects import Object
from atoll.machinery.storage.lmdb_store import LmdbStore
from atoll.replication.peers import Peers
from atoll.shard.app import ShardApp
from atoll.shard.authentication import load
from atoll.shard.config import ShardConfig
from atoll.standalone.runner import prepare
from harness.clients.api import TIMEOUT_S


class InsideShard:
    """A shard as tests use it."""

    def __init__(self, app: ShardApp, manager: Manager) -> None:
        self.app, self.manager = app, manager
        self.loopback = Loopback(app.core, "test")

    def target(self, type: ResourceType, cluster: str, namespace: str, name: str) -> Target:
        """The target of a write to an object of a type that the cluster serves."""
        with self.app.store.snapshot() as snapshot:
            kind = self.app.core.catalogs.of(snapshot, cluster).of_type(type)
        assert kind is not None, type
        return Target(kind, cluster, namespace, name)

    async def workspace(self, name: str, **spec: object) -> str:
        """The logical cluster of a new workspace below root."""
        type = self.app.identities.workspaces
        given: Object = {"type": {"name": "universal", "path": "root"}, **spec}
        body = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name}, "spec": given}
        await self.loopback.create(self.target(type, ROOT, "", name), body)
        await self.until_idle()
        made = self.loopback.get(type, ROOT, "", name)
        assert made is not None
        return str(made["spec"]["cluster"])

    async def until_idle(self) -> None:
        """Return when the controllers have handled all changes and are idle."""
        async with asyncio.timeout(TIMEOUT_S):
            while not self.manager.idle():  # noqa: ASYNC110 - it announces nothing
                await asyncio.sleep(0.001)


#: The root directory of a shard that was started and ended once; others of this process begin with a copy.
STARTED: list[tempfile.TemporaryDirectory[str]] = []


@contextlib.asynccontextmanager
async def shard_inside(
    directory: Path, peers: Peers | None = None, tokens: str = "", level: str = "global"
) -> AsyncIterator[InsideShard]:
    """A new shard in a directory of its own; its controllers end with the context, and call others by `peers`.

    `tokens` is a file of users' tokens, `level` the replication level of exports without one. What the first start
    writes is written once for all shards of the process, so that they share identities and uids of `root`.
    """
    root = directory / "inside"
    if not root.exists():
        shutil.copytree(await _root_of_started(), root)
    config = ShardConfig(
        root_directory=str(root), allow_any_filesystem=True, token_auth_file=tokens, default_replication_level=level
    )
    app, store = await _bootstrapped(config)
    app.peers = peers
    manager = app.manager(store)
    running = asyncio.create_task(manager.run())
    try:
        yield InsideShard(app, manager)
        assert not running.done(), running.exception()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await app.close()
        await store.close()


async def _bootstrapped(config: ShardConfig) -> tuple[ShardApp, LmdbStore]:
    store = prepare(config)
    app = ShardApp(config, store, load(config, ["localhost"]), "https://127.0.0.1:6443")
    await app.bootstrap()
    return app, store


async def _root_of_started() -> Path:
    if not STARTED:
        made = tempfile.TemporaryDirectory()
        app, store = await _bootstrapped(ShardConfig(root_directory=f"{made.name}/inside", allow_any_filesystem=True))
        await app.close()
        await store.close()
        STARTED.append(made)
    return Path(STARTED[0].name) / "inside"
