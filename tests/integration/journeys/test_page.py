"""The transcripts of the page on edge clusters, run on two plain Kubernetes clusters."""

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


SECTIONS = (
    "A Deployment on two clusters",
    "Customize it for each cluster",
    "Several teams on one cluster",
    "Summaries",
)


@pytest.mark.timeout(900)
def test_the_transcripts_of_the_page_are_true_on_two_plain_clusters(shell: Shell, center: ShardProcess) -> None:
    for section in SECTIONS:
        is_true(section, shell)
    center.stop()
    is_true("A cut link", shell)
    center.start()
    is_true("Withdrawal", shell)


def test_each_transcript_of_the_page_is_in_a_section_that_is_run() -> None:
    steps = [step for section in (*SECTIONS, "A cut link", "Withdrawal") for step in transcript(PAGE, section)]
    assert steps == transcript(PAGE)
    assert len(steps) >= 45


def is_true(section: str, shell: Shell) -> None:
    """Run the transcript of a section and compare."""
    steps = transcript(PAGE, section)
    assert replayed(steps, shell) == expected(steps)
