"""The edge service on a running server: `atoll edge-init` with an administrator's kubeconfig.

edge_init(shard, tmp_path / "edge.kubeconfig")
"""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Protocol

from atoll.cli.atoll import edge_init as command

GROUP = "/apis/edge.kubestellar.io/v2alpha1"


class Administered(Protocol):
    """A server with the kubeconfig of an administrator."""

    kubeconfig: Path


def edge_init(server: Administered, output: Path, *flags: str) -> str:
    """Run the command in this process; return what it prints. Fails the test if it fails."""
    printed, failed = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(failed):
        code = command.run(["--kubeconfig", str(server.kubeconfig), "-o", str(output), *flags])
    assert code == 0, failed.getvalue()
    return printed.getvalue()
