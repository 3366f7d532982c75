"""The transcript of the page on edge clusters, run on two plain Kubernetes clusters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.clients.shell import Shell
from harness.clients.transcript import expected, replayed, transcript
from harness.environment import ROOT
from harness.servers.shard_process import ShardProcess
from integration.journeys.fleet import Clusters, Side

pytestmark = pytest.mark.long

PAGE = "docs/edge.md"
NAMES = ("florin", "guilder")


@pytest.fixture
def shell(in_center: Callable[[str], Side], clusters: Clusters, tmp_path: Path) -> Shell:
    """A shell in a folder as the page has it: kubeconfigs of both clusters, and the repository's documents."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, cluster in zip(NAMES, clusters.named(*NAMES), strict=True):
        (folder / f"{name}.kubeconfig").symlink_to(cluster.kubeconfig)
    (folder / "docs").symlink_to(ROOT / "docs")
    return Shell(tmp_path / "shell", in_center("root").kubectl, folder)


@pytest.mark.timeout(600)
def test_the_transcript_of_the_page_is_true_on_two_plain_clusters(shell: Shell, center: ShardProcess) -> None:
    steps = transcript(PAGE, "A Deployment on two clusters")
    assert len(steps) >= 15
    assert replayed(steps, shell) == expected(steps)
    center.stop()
    steps = transcript(PAGE, "A cut link")
    assert replayed(steps, shell) == expected(steps)
    center.start()
    steps = transcript(PAGE, "Withdrawal")
    assert replayed(steps, shell) == expected(steps)
