"""One shard with users of different rights, for tests of access control."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clients.api import Api, workspace_under
from harness.servers.shard_process import ShardProcess

USERS = (
    "nobody-token,nobody,u-nobody\n"
    'alice-token,alice,u-alice,"team-a"\n'
    "helper-token,helper,u-helper\n"
    'master-token,master,u-master,"system:masters"\n'
)


@pytest.fixture(scope="package")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardProcess]:
    directory: Path = tmp_path_factory.mktemp("shard")
    (directory / "tokens.csv").write_text(USERS)
    with ShardProcess(directory, "--token-auth-file", str(directory / "tokens.csv")) as running:
        yield running


@pytest.fixture(scope="package")
def root(shard: ShardProcess) -> Iterator[Api]:
    """kcp-admin in `root`."""
    api = Api(shard, "root")
    yield api
    api.close()


@pytest.fixture
def api(root: Api) -> Iterator[Api]:
    """kcp-admin in a new workspace."""
    here = root.at(workspace_under(root))
    yield here
    here.close()
