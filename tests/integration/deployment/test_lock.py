"""The lock of the image: `python infra/image/lock.py` writes it anew after the packages of pyproject.toml changed."""

from __future__ import annotations

import tomllib

from harness.environment import ROOT


def test_the_image_has_the_packages_of_the_project_at_their_versions() -> None:
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    locked = (ROOT / "infra/image/requirements.lock").read_text().splitlines()
    pinned = {line.partition(" --hash=sha256:")[0].lower().replace("_", "-") for line in locked}
    assert {package.lower() for package in needed} <= pinned
    assert all(len(line.partition(" --hash=sha256:")[2]) == 64 for line in locked)
