"""The transcript of the page on edge clusters, run against a shard with the edge service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clients.api import Api, eventually
from harness.clients.kubectl import Kubectl
from harness.clients.shell import Shell
from harness.clients.transcript import expected, replayed, transcript
from harness.servers.edge_service import GROUP


@pytest.fixture
def inventory(root: Api) -> Iterator[Api]:
    """The workspace for inventories; what the page makes in it is gone afterwards."""
    here = root.at("root:imw1")
    eventually(lambda: here.send("GET", f"{GROUP}/synctargets").code == 200, "the inventory is initialized")
    yield here
    for plural in ("synctargets", "locations"):
        here.delete(f"{GROUP}/{plural}")
    here.close()


@pytest.mark.timeout(300)
def test_the_transcript_of_the_page_is_true(kubectl: Kubectl, inventory: Api, tmp_path: Path) -> None:
    kubectl.ok("ws", "root")
    steps = transcript("docs/edge.md")
    assert len(steps) >= 10
    assert replayed(steps, Shell(tmp_path / "shell", kubectl)) == expected(steps)
