"""One shard for the tests of this folder, and a workspace of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clients.api import Api, workspace_under
from harness.servers.shard_process import ShardProcess

USERS = (
    'alice-token,alice,u-alice,"team-a,team-b"\nbob-token,bob,u-bob\nworker-token,worker,u-w\nnobody-token,nobody,u-n\n'
)


@pytest.fixture(scope="session")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardProcess]:
    directory: Path = tmp_path_factory.mktemp("shard")
    tokens = directory / "tokens.csv"
    tokens.write_text(USERS)
    audit = directory / "audit.log"
    flags = ("--token-auth-file", str(tokens), "--audit-log-path", str(audit))
    with ShardProcess(directory, *flags) as running:
        yield running


@pytest.fixture(scope="session")
def audit_path(shard: ShardProcess) -> Path:
    return shard.root.parent / "audit.log"


@pytest.fixture(scope="session")
def admin(shard: ShardProcess) -> Iterator[Api]:
    """kcp-admin in `root`."""
    api = Api(shard, "root")
    yield api
    api.close()


@pytest.fixture(scope="session")
def master(shard: ShardProcess) -> Iterator[Api]:
    """shard-admin, of system:masters, in `root`."""
    api = Api(shard, "root", "shard-admin")
    yield api
    api.close()


@pytest.fixture
def api(admin: Api) -> Iterator[Api]:
    """kcp-admin in a new workspace of type universal."""
    here = admin.at(workspace_under(admin, type_="universal"))
    yield here
    here.close()


@pytest.fixture
def alice(api: Api) -> Iterator[Api]:
    """A user with no rights in the workspace."""
    there = Api(api.shard, api.cluster, token="alice-token")
    yield there
    there.close()
