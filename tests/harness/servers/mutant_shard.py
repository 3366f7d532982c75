"""A shard with one guard taken out, to see that the tests would miss it.

with MutantShard(directory, *flags) as shard, shard.without("import atoll.x as x; x.guard = ..."):
    ...                                                            # one process for many guards
with ShardProcess(directory, *flags, environment=patched(directory, "import atoll.x as x; x.guard = ...")) as shard:
    ...                                                            # where the guard counts when the process starts
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path

from harness.environment import SERVER_PATH, TESTS
from harness.servers import code_patches
from harness.servers.shard_process import ShardProcess
from harness.servers.site import SiteProcess


def patched(directory: Path, code: str) -> dict[str, str]:
    """The environment of a child process in which Python runs `code` before anything else."""
    folder = directory / "patch"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(code)
    return {"PYTHONPATH": f"{folder}:{SERVER_PATH}"}


class MutantShard(ShardProcess):
    """A shard whose functions are replaced and restored while it runs."""

    def __init__(self, directory: Path, *flags: str) -> None:
        self._address = f"atoll-mutant-{uuid.uuid4().hex}"
        code = f"from harness.servers import code_patches; code_patches.serve({self._address!r})"
        environment = patched(directory, code)
        environment["PYTHONPATH"] += f":{TESTS}"
        super().__init__(directory, *flags, environment=environment)

    @contextlib.contextmanager
    def without(self, code: str) -> Iterator[None]:
        """Run `code`, which assigns to attributes of modules and classes; afterwards they are as they were.

        Modules that took a function by its name keep the function they took.
        """
        code_patches.send(self._address, code)
        try:
            yield
        finally:
            code_patches.send(self._address, "")


@contextlib.contextmanager
def altered(process: SiteProcess, directory: Path, code: str) -> Iterator[None]:
    """Restart a process of a site with `code` run before anything else, and restart it without at the end."""
    process.environment.update(patched(directory, code))
    process.restart()
    try:
        yield
    finally:
        process.environment.clear()
        process.restart()
