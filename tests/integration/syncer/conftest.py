"""A workspace as edge cluster, shared by the folder, and a mailbox for each test."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from atoll.machinery.client.client import Client
from atoll.machinery.client.kubeconfig import Kubeconfig, Target
from atoll.machinery.client.lease import Timing
from atoll.syncer.syncer import Options, Syncer
from harness.clients.api import Api, workspace_under
from harness.servers.in_process.mailbox_view import MailboxView
from harness.servers.in_process.syncer import TIMING, Run, syncing
from harness.servers.shard_process import ShardProcess


@pytest.fixture(scope="package")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardProcess]:
    """The shard with the edge cluster."""
    with ShardProcess(tmp_path_factory.mktemp("edge")) as running:
        yield running


@pytest.fixture(scope="package")
def cluster(shard: ShardProcess) -> tuple[Target, str]:
    """Where the edge cluster is, and its workspace."""
    return Kubeconfig.load(str(shard.kubeconfig)).target("root"), workspace_under(Api(shard, "root"))


@pytest.fixture
async def edge(cluster: tuple[Target, str]) -> AsyncIterator[Client]:
    """An administrator of the edge cluster."""
    async with Client(*cluster, manager="kubectl") as client:
        yield client


@pytest.fixture
async def view() -> AsyncIterator[MailboxView]:
    async with MailboxView.serving() as running:
        yield running


@pytest.fixture
def run(cluster: tuple[Target, str], view: MailboxView) -> Run:
    """A syncer of one SyncTarget between the mailbox and the cluster."""
    uid = str(uuid.uuid4())

    def running(state_file: Path | None = None, timing: Timing = TIMING) -> AbstractAsyncContextManager[Syncer]:
        return syncing(cluster, view.target, Options(uid, 500.0, 500, state_file, timing, timing))

    return running
