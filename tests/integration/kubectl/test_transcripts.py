"""The transcripts of each page, run in one shell against a new shard, print what the page shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clients.kubectl import Kubectl
from harness.clients.shell import Shell
from harness.clients.transcript import CONSOLE, expected, masked, replayed, transcript
from harness.environment import ROOT
from harness.servers.shard_process import ShardProcess
from harness.tiers import every

#: The pages with transcripts; those of one page follow each other in one shell.
PAGES = ("README.md", "docs/tutorial.md")
#: Run by `integration/journeys/test_page`.
EDGE_PAGE = "docs/edge.md"
#: Its one console shows times and names of its own; `integration/events/test_subscribe_start` runs the command.
EVENTS_PAGE = "docs/events.md"


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[ShardProcess]:
    with ShardProcess(tmp_path) as shard:
        yield shard


@pytest.mark.parametrize("page", every(2, PAGES))
def test_the_transcripts_of_a_page_are_true(page: str, fresh: ShardProcess, kubectl: Kubectl, tmp_path: Path) -> None:
    steps = transcript(page)
    assert len(steps) >= 10
    shell = Shell(tmp_path / "shell", Kubectl(tmp_path, fresh.kubeconfig, kubectl.binary))
    assert replayed(steps, shell) == expected(steps)


def test_no_page_has_a_transcript_that_is_not_run() -> None:
    pages = [path for path in (ROOT / "docs").rglob("*.md") if CONSOLE.search(path.read_text())]
    assert {str(path.relative_to(ROOT)) for path in pages} == {*PAGES, EDGE_PAGE, EVENTS_PAGE} - {"README.md"}


def test_the_comparison_would_notice_another_output() -> None:
    assert masked("a   12s\n") == masked("a   3m4s  \n")
    assert masked("configmap/a created") != masked("configmap/a configured")
