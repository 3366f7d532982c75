"""Joining: what a shard requests from its root shard, once, and which parts of the response it stores."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.kcp.apis.root_exports import root_exports
from atoll.machinery.kcp.bootstrap.objects import INSTALLATION
from atoll.machinery.meta.names import SYSTEM_SHARD, ObjectKey
from atoll.machinery.meta.objects import decode
from atoll.machinery.meta.types import CONFIG_MAPS
from atoll.shard.app import ShardApp
from atoll.shard.authentication import load
from atoll.shard.config import ShardConfig
from atoll.shard.membership.root_shard import (
    RootShard,
    RootShardChanged,
    RootShardNotReady,
    root_shard_of,
    wait_for_root_shard,
)
from atoll.standalone.runner import prepare
from harness.servers.stand_ins.canned_api import CannedApi, serving

IDENTITIES = "/clusters/system:shard/api/v1/namespaces/default/configmaps/apiexport-identity-cache"
SHARD = "/clusters/root/apis/core.kcp.io/v1alpha1/shards/eu"
INSTALLED = "0e0e0e0e-0000-4000-8000-00000000000e"
CACHE = ObjectKey(CONFIG_MAPS, SYSTEM_SHARD, "default", "apiexport-identity-cache")


def identities(**others: str) -> dict[str, str]:
    return {name: others.get(name.partition(".")[0], f"{number:064x}") for number, name in enumerate(root_exports())}


def cache(data: dict[str, str], installation: str = INSTALLED) -> dict[str, Any]:
    annotations = {INSTALLATION: installation} if installation else {}
    return {"kind": "ConfigMap", "metadata": {"name": CACHE.name, "annotations": annotations}, "data": data}


@pytest.fixture
async def root() -> AsyncIterator[CannedApi]:
    async with serving(CannedApi()) as api:
        api.on(f"GET {IDENTITIES}", cache(identities()))
        yield api


class Joining:
    """A shard `eu` in a directory, and its messages while it waited."""

    def __init__(self, directory: Path, root: CannedApi) -> None:
        kubeconfig = root.kubeconfig(directory, "")
        self.config = ShardConfig(
            root_directory=str(directory / "eu"),
            shard_name="eu",
            root_shard_kubeconfig_file=str(kubeconfig),
            nats_url="nats://127.0.0.1:1",
            allow_any_filesystem=True,
        )
        self.store = prepare(self.config)
        self.said: list[str] = []

    async def wait(self) -> RootShard:
        async with asyncio.timeout(60):
            return await wait_for_root_shard(self.config, self.store, self.said.append)

    async def bootstrap(self, origin: RootShard) -> None:
        """Write the objects that a start writes."""
        credentials = load(self.config, ["localhost"])
        app = ShardApp(self.config, self.store, credentials, "https://127.0.0.1:6443", origin)
        await app.bootstrap()
        await app.close()


@pytest.fixture
async def joining(tmp_path: Path, root: CannedApi) -> AsyncIterator[Joining]:
    here = Joining(tmp_path, root)
    yield here
    await here.store.close()


async def test_what_root_says_is_asked_for_once_and_kept(joining: Joining, root: CannedApi) -> None:
    found = await joining.wait()
    assert {name: identity.hash for name, identity in found.identities.items()} == identities()
    assert found.installation == INSTALLED
    await joining.bootstrap(found)
    root.requests.clear()
    assert await joining.wait() == found
    assert root.requests == [], "a shard that joined starts without its root shard"
    with joining.store.snapshot() as snapshot:
        record = snapshot.get(CACHE)
    assert record is not None
    kept = decode(record.value)
    assert (kept["data"], kept["metadata"]["annotations"][INSTALLATION]) == (identities(), INSTALLED)


async def test_a_shard_that_has_not_joined_has_nothing_to_start_with(joining: Joining) -> None:
    with pytest.raises(RootShardNotReady):
        root_shard_of(joining.config, joining.store)


async def test_an_answer_that_lacks_something_is_waited_for(joining: Joining, root: CannedApi) -> None:
    some = identities()
    some.pop("cache.kcp.io")
    root.on(f"GET {IDENTITIES}", cache(some), cache(identities(), ""), cache(identities()))
    await joining.wait()
    assert [text.partition(":")[0] for text in joining.said] == [
        "the root shard has no identity yet for cache.kcp.io",
        "the root shard is of an older release",
    ]


async def test_a_name_that_another_store_has_is_waited_for(joining: Joining, root: CannedApi) -> None:
    taken = {"kind": "Shard", "metadata": {"name": "eu", "annotations": {"internal.atoll.dev/store": "another"}}}
    free = {"kind": "Shard", "metadata": {"name": "eu"}}
    root.on(f"GET {SHARD}", taken, free)
    await joining.wait()
    assert len(joining.said) == 1
    assert "registered from another store" in joining.said[0]


async def test_only_what_root_began_to_export_since_is_asked_for(joining: Joining, root: CannedApi) -> None:
    await lacking_one(joining)
    found = await joining.wait()
    assert found.identities["cache.kcp.io"].hash == identities()["cache.kcp.io"]
    assert root.requests


async def test_another_root_shard_is_refused(joining: Joining, root: CannedApi) -> None:
    """The objects of every workspace of this shard are stored under the kept identities."""
    await lacking_one(joining)
    for other in (cache(identities(tenancy="f" * 64)), cache(identities(), INSTALLED.replace("0e", "0f"))):
        root.on(f"GET {IDENTITIES}", other)
        with pytest.raises(RootShardChanged):
            await joining.wait()


async def lacking_one(joining: Joining) -> None:
    """Remove an API from the stored response, as if root began to export it after this shard joined."""
    found = await joining.wait()
    await joining.bootstrap(found)
    credentials = load(joining.config, ["localhost"])
    app = ShardApp(joining.config, joining.store, credentials, "https://127.0.0.1:6443")
    cached = app.loopback.get(CONFIG_MAPS, SYSTEM_SHARD, CACHE.namespace, CACHE.name)
    assert cached is not None
    del cached["data"]["cache.kcp.io"]
    kind = app.core.catalogs.builtin(CONFIG_MAPS)
    await app.loopback.update(Target(kind, SYSTEM_SHARD, CACHE.namespace, CACHE.name), cached)
    await app.close()
