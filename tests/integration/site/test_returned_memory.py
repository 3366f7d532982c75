"""The processes of a site return to the system what a peak took."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll.machinery.stream.credential_file import read_access
from atoll.standalone.site.credentials import CACHE_USER
from harness.clients.api import eventually
from harness.servers.cache_server_process import CacheProcess
from harness.servers.memory import Returns
from harness.servers.mutant_shard import altered, patched
from harness.servers.site import Site

pytestmark = pytest.mark.long


@pytest.mark.parametrize("name", ["proxy", "shard-1"])
def test_a_process_of_a_site_returns_freed_memory(site: Site, tmp_path: Path, name: str) -> None:
    process, returns = site.proxy if name == "proxy" else site.shards[name], Returns(tmp_path)
    with altered(process, tmp_path, returns.code):
        eventually(lambda: returns.by(process.pid), "it returns memory")


def test_a_cache_server_returns_freed_memory(site: Site, tmp_path: Path) -> None:
    returns = Returns(tmp_path)
    cache = CacheProcess(tmp_path / "cache", read_access(site.nats.url, str(site.layout.credential(CACHE_USER))))
    cache.environment = patched(tmp_path, returns.code)
    with cache:
        eventually(lambda: returns.by(cache.pid), "it returns memory")
