"""A shard with one guard taken out, to see that the tests would miss it.

    with ShardProcess(directory, *flags, environment=patched(directory, "import atoll.x as x; x.guard = ...")) as shard:
"""

from __future__ import annotations

from pathlib import Path

_SERVICES = Path(__file__).parents[2] / "services"


def patched(directory: Path, code: str) -> dict[str, str]:
    """The environment of a child process in which Python runs `code` before anything else."""
    folder = directory / "patch"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(code)
    return {"PYTHONPATH": f"{folder}:{_SERVICES}"}
