"""One site of three shards for the tests of this folder. A test that stops a process starts it again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clients.api import Api
from harness.servers.site import Site


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory: Path = tmp_path_factory.mktemp("site")
    with Site(directory, shards=3, flags={"audit_log_path": "-"}) as running:
        yield running


@pytest.fixture(scope="package")
def admin(site: Site) -> Iterator[Api]:
    """kcp-admin in `root`, directly at the root shard."""
    api = site.root.api("root")
    yield api
    api.close()


@pytest.fixture(scope="package")
def master(site: Site) -> Iterator[Api]:
    """shard-admin, of system:masters, in `root`, directly at the root shard."""
    api = site.root.api("root", "shard-admin")
    yield api
    api.close()
