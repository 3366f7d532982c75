"""An idle follower waits only for changes of the shards; a follower without event keys trusts no shard."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from atoll.machinery.meta.names import ROOT, ObjectKey
from atoll.machinery.meta.objects import encode
from atoll.machinery.process.ed25519 import SecretKey
from atoll.machinery.storage.contract import Put
from atoll.machinery.storage.lmdb_store import open_store
from atoll.machinery.stream.connection import Access
from atoll.machinery.stream.consumer.origin_check import OriginCheck
from atoll.machinery.stream.event_keys import new_key
from atoll.machinery.stream.publisher.log_events import from_entry
from atoll.machinery.stream.signatures import sign
from atoll.replication.follower import Follower, FollowerOptions
from harness.data.stores import store_options
from harness.models.shard_log import ShardLog, Source
from harness.servers.in_process.followers import TYPES
from harness.servers.nats import eventually


async def test_on_the_root_shard_it_rests_until_a_shard_is_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(store_options(tmp_path / "store"))
    options = FollowerOptions(Access(["nats://127.0.0.1:1"]), own="root", types=TYPES)
    follower = Follower(store, options, CollectorRegistry())
    looked, look = list[list[str]](), follower._members

    def members() -> dict[str, str]:
        found = look()
        looked.append(sorted(found))
        return found

    monkeypatch.setattr(follower, "_members", members)
    running = asyncio.create_task(follower.run())
    await eventually(lambda: len(looked) >= 2)
    before = len(looked)
    for _ in range(1000):
        await asyncio.sleep(0)
    assert len(looked) == before
    key = ObjectKey(TYPES.shards, ROOT, "", "east")
    value, hole = encode({"metadata": {"name": "east"}})
    await store.submit([Put(key, value, hole, 0)])
    await eventually(lambda: looked[-1] == ["east"])
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await store.close()


@pytest.mark.parametrize("keys", [None, {}])
async def test_without_event_keys_it_believes_no_shard(tmp_path: Path, keys: dict[str, tuple[str, ...]] | None) -> None:
    store = open_store(store_options(tmp_path / "store"))
    access = Access(["nats://127.0.0.1:1"], event_keys=keys)
    subscription = Follower(store, FollowerOptions(access, types=TYPES), CollectorRegistry())._subscription("root")
    check = OriginCheck("state", subscription.keys)
    key = ObjectKey(TYPES.shards, ROOT, "", "east")
    event = from_entry("state", Source("root"), ShardLog().put(key))
    [signature] = sign(SecretKey(new_key().secret), [event], 1)
    for sent in (event, msgspec.structs.replace(event, signature=signature)):
        assert not check.believes(sent, 1)
    await store.close()
