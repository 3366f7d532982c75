"""The first start of a shard that joins: it waits for its root shard, reports that, and takes no other shard's name."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from harness.clients.api import eventually
from harness.servers.site import Site

pytestmark = pytest.mark.long

SHARDS = "/apis/core.kcp.io/v1alpha1/shards"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A root shard and another one; nothing runs yet."""
    site = Site(tmp_path_factory.mktemp("pair"), shards=2, proxy=False)
    yield site
    site.close()


def test_a_shard_waits_for_its_root_shard_and_says_so(pair: Site) -> None:
    shard = pair.shards["shard-1"]
    shard.spawn()
    shard.until(lambda: "joining root shard failed" in shard.log())
    code, body = shard.get("/readyz")
    assert code == 503
    assert b"root shard cannot be reached" in body
    pair.nats.start()
    pair.root.start()
    shard.wait_ready()
    assert "joined root shard" in shard.log()
    master = pair.root.api("root", "shard-admin")
    eventually(lambda: master.get(f"{SHARDS}/shard-1", expect=0).code == 200, "the shard registered")
    master.close()


def test_a_shard_that_waits_leaves_when_told_to(pair: Site) -> None:
    shard = pair.shards["shard-1"]
    shard.stop()
    kept = shard.log()
    shutil.rmtree(pair.layout.shard("shard-1"))
    pair.root.stop()
    shard.spawn()
    shard.until(lambda: "joining root shard failed" in shard.log()[len(kept) :])
    assert shard.stop() == 0
    pair.root.start()


def test_the_name_of_a_shard_is_not_taken_by_another_store(pair: Site) -> None:
    """Its directory is gone, so this is another shard: the workspaces of the first are missing."""
    shard, master = pair.shards["shard-1"], pair.root.api("root", "shard-admin")
    before = master.get(f"{SHARDS}/shard-1").json
    shard.spawn()
    shard.until(lambda: "registered from another store" in shard.log())
    assert shard.get("/readyz")[0] == 503
    assert master.get(f"{SHARDS}/shard-1").json == before
    master.delete(f"{SHARDS}/shard-1")
    eventually(shard.is_ready, "the shard under a name that is free now")
