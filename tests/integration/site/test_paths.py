"""Paths to workspaces of which a shard keeps no rows: it answers as one that keeps all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from atoll.machinery.meta import hashes
from harness.clients.api import Api, eventually
from harness.clients.exports import BINDINGS, binding, make_export, schema, wait_bound
from harness.clients.site_workspaces import on, ready, workspace
from harness.servers.site import Site

MAPS = "/api/v1/namespaces/default/configmaps"
PATIENCE_S = 60.0


class Place(NamedTuple):
    """A workspace on shard-1 whose Workspace is there too, so that shard-2 has no row of it."""

    path: str
    api: Api


@pytest.fixture(scope="module")
def place(site: Site) -> Place:
    return made(site)


@pytest.fixture(scope="module")
def consumer(site: Site) -> Api:
    """A workspace on shard-2, at its shard."""
    root = site.proxy.api("root")
    return site.shards["shard-2"].api(ready(root, workspace(root, selector=on("shard-2")))["spec"]["cluster"])


@pytest.fixture
def silence(site: Site) -> Iterator[None]:
    """Nobody hears of other shards."""
    site.nats.stop()
    yield
    if not site.nats.running:
        site.nats.start()


def made(site: Site) -> Place:
    root = site.proxy.api("root")
    outer = workspace(root, selector=on("shard-1"))
    parent = site.shards["shard-1"].api(ready(root, outer)["spec"]["cluster"])
    name = workspace(parent, selector=on("shard-1"))
    cluster = ready(parent, name)["spec"]["cluster"]
    path = f"root:{outer}:{name}"
    eventually(lambda: site.proxy.api(path).send("GET", MAPS).code == 200, "the proxy leads to it", PATIENCE_S)
    return Place(path, site.shards["shard-1"].api(cluster))


def test_a_path_is_told_to_be_another_shards_or_nobodys(site: Site, place: Place) -> None:
    shard = site.shards["shard-2"]
    for user in ("", "somebody", "kcp-admin"):
        answer = shard.api(place.path, user).send("GET", MAPS)
        assert (answer.code, answer.header("retry-after")) == (429, "1")
        assert answer.body.strip() == b"Not found on this shard"
    assert shard.api(f"{place.path}:none", "somebody").send("GET", MAPS).code == 403
    assert shard.api(f"{place.path}:none", "shard-admin").send("GET", MAPS).code == 404
    assert shard.api("user:nobody:none", "somebody").send("GET", MAPS).code == 403


@pytest.mark.parametrize("by_name", [False, True], ids=["path", "name"])
def test_an_export_is_bound_before_its_workspace_has_it(site: Site, consumer: Api, by_name: bool) -> None:
    place, called = made(site), f"shapes-{'name' if by_name else 'path'}"
    path = place.api.cluster if by_name else place.path
    stranger = site.shards["shard-2"].api(consumer.cluster, "somebody")
    assert stranger.send("POST", BINDINGS, binding(path, "shapes", called=called)).code == 403
    posted = consumer.post(BINDINGS, binding(path, "shapes", called=called)).json
    assert posted["metadata"]["labels"][hashes.EXPORT_LABEL] == hashes.export_hash(place.api.cluster, "shapes")
    assert consumer.send("POST", BINDINGS, binding(f"{place.path}:none", "shapes", called="no")).code == 403
    make_export(place.api, "shapes", schema(f"{called}s"))
    wait_bound(consumer, called)


@pytest.mark.long
def test_a_path_is_not_refused_while_nobody_can_say_where_it_leads(
    site: Site, place: Place, consumer: Api, silence: None
) -> None:
    shard = site.shards["shard-2"]
    user = shard.api(f"{place.path}:later", "somebody")
    later = binding(f"{place.path}:later", "shapes", called="later")
    for answer in (user.get(MAPS, expect=503), consumer.post(BINDINGS, later, expect=503)):
        assert answer.header("retry-after") == "1"
    site.nats.start()
    for each in (user, shard.api("root:nowhere", "somebody")):
        eventually(lambda: each.send("GET", MAPS).code == 403, "it leads nowhere", PATIENCE_S)  # noqa: B023
