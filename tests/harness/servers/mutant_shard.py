"""A shard with one guard taken out, to see that the tests would miss it.

with ShardProcess(directory, *flags, environment=patched(directory, "import atoll.x as x; x.guard = ...")) as shard:
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from harness.environment import SERVICES
from harness.servers.site import SiteProcess


def patched(directory: Path, code: str) -> dict[str, str]:
    """The environment of a child process in which Python runs `code` before anything else."""
    folder = directory / "patch"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(code)
    return {"PYTHONPATH": f"{folder}:{SERVICES}"}


@contextlib.contextmanager
def altered(process: SiteProcess, directory: Path, code: str) -> Iterator[None]:
    """A process of a site, started anew with `code` run before anything else; afterwards it is as it was."""
    process.environment.update(patched(directory, code))
    process.restart()
    try:
        yield
    finally:
        process.environment.clear()
        process.restart()
