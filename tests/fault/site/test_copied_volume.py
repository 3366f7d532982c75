"""A second process of one shard is started by mistake, on a copy of its volume: the later one fences off the earlier.

Its first message in the stream of the shard does: the earlier one reads the end of its stream each three seconds while
it has nothing to send, and ends. So it does where both have one epoch. On the same volume the lock refuses it
(`integration/standalone/test_lifecycle`).
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import lmdb
import msgspec
import pytest

from atoll.machinery.storage.environment.databases import MAX_DATABASES
from atoll.standalone.site.processes import ProcessSpec
from harness.clients.api import configmap, eventually
from harness.clients.site_operations import MAPS, made
from harness.servers.site import ServingProcess, Site

pytestmark = pytest.mark.long

PATIENCE_S = 120.0
#: Less than the clocks of two writers may differ by (`resume`).
AHEAD_S = 200


class Twins(NamedTuple):
    """A shard and the process on the copy of its volume, which is not started; a workspace of the shard, by path and by
    cluster, with the ConfigMap `kept`."""

    site: Site
    first: ServingProcess
    second: ServingProcess
    path: str
    cluster: str
    one_epoch: bool


def beside(site: Site, shard: ServingProcess, directory: Path) -> ServingProcess:
    """A process with the settings of a shard, on another directory and port."""
    port = site._ports.reserve(0)
    changed = {"--secure-port": str(port), "--root-directory": str(directory)}
    arguments = [each for each in shard.command[3:] if each.partition("=")[0] not in changed]
    arguments += [f"{name}={value}" for name, value in changed.items()]
    return ServingProcess(site, ProcessSpec(f"{shard.name}-copy", tuple(arguments), f"https://127.0.0.1:{port}"))


def give_epoch_ahead(directory: Path) -> None:
    """Set the epoch of a store so far ahead of the clock that each opening in the next minutes only adds one."""
    with closing(lmdb.open(str(directory), max_dbs=MAX_DATABASES, map_size=1 << 30)) as env:
        meta = env.open_db(b"meta", create=False)
        with env.begin(write=True, db=meta) as txn:
            txn.put(b"epoch", msgspec.msgpack.encode(int(time.time()) + AHEAD_S))


@pytest.fixture(params=["another epoch", "the same epoch"])
def twins(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Twins]:
    with Site(tmp_path, shards=2) as site:
        first = site.shards["shard-1"]
        path, cluster = made(site, "root", "shard-1")
        site.proxy.api(path).post(MAPS, configmap("kept"))
        first.stop()
        if request.param == "the same epoch":
            give_epoch_ahead(site.layout.shard("shard-1") / "store")
        shutil.copytree(site.layout.shard("shard-1"), tmp_path / "copy")
        first.start()
        # Epochs are seconds.
        started_s = int(time.time())
        eventually(lambda: int(time.time()) > started_s, "the next second")
        second = beside(site, first, tmp_path / "copy")
        try:
            yield Twins(site, first, second, path, cluster, request.param == "the same epoch")
        finally:
            second.stop()


def test_the_process_on_the_copy_goes_on_and_the_one_before_ends_without_a_write(twins: Twins) -> None:
    site, first, second = twins.site, twins.first, twins.second
    second.start()
    eventually(lambda: not first.running, "the first one ends", PATIENCE_S)
    assert "writer was deposed" in first.log()
    assert "writer was deposed" not in second.log()
    assert ("may have this epoch" in second.log()) == twins.one_epoch
    later = second.api(twins.cluster).at_once()
    later.get(f"{MAPS}/kept")
    later.post(MAPS, configmap("after"))
    # The proxy takes the address from the Shard object, which the one that serves has written.
    proxy = site.proxy.api(twins.path)
    eventually(lambda: proxy.send("GET", f"{MAPS}/after").code == 200, "the proxy follows", PATIENCE_S)
