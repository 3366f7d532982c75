"""A shard that may call webhooks on loopback, and whose audit log can be read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clients.api import Api
from harness.servers.shard_process import ShardProcess

USERS = 'alice-token,alice,u-alice,"team-a,team-b"\nbob-token,bob,u-bob\n'


@pytest.fixture(scope="package")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardProcess]:
    directory: Path = tmp_path_factory.mktemp("admission")
    tokens = directory / "tokens.csv"
    tokens.write_text(USERS)
    flags = ("--token-auth-file", str(tokens), "--audit-log-path", str(directory / "audit.log"))
    with ShardProcess(directory, *flags, "--egress-allow-cidr", "127.0.0.0/8") as running:
        yield running


@pytest.fixture(scope="package")
def admin(shard: ShardProcess) -> Iterator[Api]:
    """kcp-admin in `root`, of this package's shard."""
    api = Api(shard, "root")
    yield api
    api.close()
