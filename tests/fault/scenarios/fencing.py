"""Two processes on one directory: the second must exit with an error, and the first is not affected."""

from __future__ import annotations

import contextlib
from pathlib import Path

from fault.validators.violation import NotFenced
from harness.servers.shard_process import ShardFailed, ShardProcess


def second_is_refused(first: ShardProcess, second: ShardProcess, directory: Path) -> None:
    """Start `second` on the directory of a running `first`. Raises NotFenced if it comes to serve."""
    second.root = first.root
    second.stdout_path, second.stderr_path = directory / "second.out", directory / "second.err"
    with contextlib.suppress(ShardFailed):
        second.start()
    served = second.running
    second.kill()
    if served:
        raise NotFenced("a second process serves the same store")
    said = second.stderr_path.read_text()
    assert "is open in another process" in said, said
    assert first.get("/readyz")[0] == 200
