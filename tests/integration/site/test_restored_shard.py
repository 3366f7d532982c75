"""A shard of a site is restored to an earlier moment: front proxy, cache server and clients take that moment."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from atoll.machinery.stream.credential_file import read_access
from atoll.standalone.site.credentials import CACHE_USER
from harness.clients.api import configmap, eventually
from harness.clients.exports import make_export, schema
from harness.clients.site_operations import MAPS
from harness.clients.site_workspaces import on, ready, workspace
from harness.servers.cache_server_process import CacheProcess
from harness.servers.in_process.cache_server import BASE
from harness.servers.processes import atoll
from harness.servers.site import Site

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

EXPORTS = "/shards/*/clusters/*/apis/apis.kcp.io/v1alpha2/apiexports"
SHARD = "shard-1"
#: Four times the thirty seconds in which all have it.
TIMEOUT_S = 120.0


def store(site: Site, command: str, *flags: str) -> None:
    where = ("--root-directory", str(site.layout.shard(SHARD)), "--shard-name", SHARD, "--allow-any-filesystem")
    ran = atoll(command, *where, *flags)
    assert ran.code == 0, ran.stderr


async def test_what_a_restored_shard_lacks_is_gone_everywhere_and_what_it_has_is_served(tmp_path: Path) -> None:
    async with Site(tmp_path, shards=2) as site:
        access = read_access(site.nats.url, str(site.layout.credential(CACHE_USER)))
        with CacheProcess(tmp_path / "cache", access) as cache:
            await cache.ready()
            later = await asyncio.to_thread(_written, site, tmp_path / "backup")
            await cache.until(BASE + EXPORTS, lambda answer: {"kept", "late"} <= set(answer.names))
            await asyncio.to_thread(_restore, site, tmp_path / "backup")
            await cache.until(BASE + EXPORTS, lambda answer: "late" not in answer.names)
            await cache.until(BASE + EXPORTS, lambda answer: "kept" in answer.names)
            await asyncio.to_thread(_earlier_moment, site, later)


def _written(site: Site, backup: Path) -> str:
    """Make a backup of the shard, and what is called `late` after it; return the revision of an object of these."""
    parent = site.proxy.api("root")
    provider = ready(parent, workspace(parent, name="provider", selector=on(SHARD)))["spec"]["cluster"]
    here = site.shards[SHARD].api(provider)
    make_export(here, "kept", schema("circles"))
    here.post(MAPS, configmap("kept"))
    store(site, "backup", "--to", str(backup))
    make_export(here, "late", schema("squares"))
    revision = str(here.post(MAPS, configmap("late")).json["metadata"]["resourceVersion"])
    # On the other shard: its Workspace is on this one.
    ready(here, workspace(here, name="late", selector=on("root")))
    led = site.proxy.api("root:provider:late")
    eventually(lambda: led.send("GET", MAPS).code == 200, "the proxy leads there", TIMEOUT_S)
    return revision


def _restore(site: Site, backup: Path) -> None:
    site.shards[SHARD].stop()
    store(site, "restore", "--from", str(backup), "--in-place")
    site.shards[SHARD].start()


def _earlier_moment(site: Site, later: str) -> None:
    """The proxy knows no path, and clients no object, that came after the moment."""
    late, here = site.proxy.api("root:provider:late"), site.proxy.api("root:provider")
    eventually(lambda: late.at_once().send("GET", MAPS).code == 403, "the path is unknown", TIMEOUT_S)
    assert b'"reason":"Expired"' in here.send("GET", f"{MAPS}?watch=true&resourceVersion={later}").body
    names = {each["metadata"]["name"] for each in here.get(MAPS).json["items"]}
    assert "kept" in names and "late" not in names
    assert here.post(MAPS, configmap("later")).json["metadata"]["resourceVersion"] > later
