"""The map for a load balancer: every valid cluster by its id, kept current; and the example that reads it."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from atoll.frontproxy.cluster_map import keep
from atoll.machinery.storage.lmdb_store import open_store
from harness.clients.raw_http import until
from harness.data.front_proxy_rows import ProxyRows
from harness.data.stores import store_options

EXAMPLE = Path(__file__).parents[3] / "infra/haproxy/haproxy.cfg"


async def test_the_map_has_ids_and_shards_and_follows_them(tmp_path: Path) -> None:
    store, file = open_store(store_options(tmp_path)), tmp_path / "clusters.map"
    rows = ProxyRows(store)
    await rows.chain("root", [("org", "1org", "east"), ("team", "1team", "west")])
    keeping = asyncio.create_task(keep(store, file, pause_s=0.01))
    try:
        await until(lambda: file.exists() and file.read_text() == "1org east\n1team west\n", "the map")
        for number in range(600):
            await rows.cluster(f"more{number:03}", "east")
        expected = "1org east\n1team west\n" + "".join(f"more{number:03} east\n" for number in range(600))
        await until(lambda: file.read_text() == expected, "the map with more")
        assert ":" not in expected
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await store.close()


@pytest.mark.parametrize(
    "name",
    [
        "x-remote-user",
        "X-Remote-Group",
        "X-REMOTE-EXTRA-Scopes",
        "x_remote_user",
        "X-Remote_User",
        "x.remote.uid",
        "X%2DRemote-User",
        "Atoll-Assertion",
        "atoll_assertion",
        "X-Forwarded-For",
        "Forwarded",
        "x_forwarded_host",
    ],
)
def test_the_example_takes_out_what_says_who_asks(name: str) -> None:
    rules = re.findall(r"http-request del-header (\S+) -m (reg|sub)", EXAMPLE.read_text())
    assert rules
    assert any(re.search(text, name) if how == "reg" else text in name for text, how in rules)


@pytest.mark.parametrize("name", ["authorization", "accept", "user-agent", "x-request-id", "content-type"])
def test_the_example_leaves_the_rest(name: str) -> None:
    rules = re.findall(r"http-request del-header (\S+) -m (reg|sub)", EXAMPLE.read_text())
    assert not any(re.search(text, name) if how == "reg" else text in name for text, how in rules)


@pytest.mark.parametrize(
    ("path", "straight"),
    [
        ("/clusters/1org/api", True),
        ("/clusters/root", True),
        ("/clusters/root:org/api", False),
        ("/clusters/*/api", False),
        ("//clusters/1org", False),
        ("/clusters/1org%2f/x", False),
        ("/clusters/system:admin/api", False),
        ("/services/apiexport/1org", False),
        ("/", False),
    ],
)
def test_the_example_sends_only_plain_ids_straight_to_their_shard(path: str, straight: bool) -> None:
    found = re.search(r"acl plain path_reg (\S+)", EXAMPLE.read_text())
    assert found is not None
    assert bool(re.search(found[1], path)) == straight
