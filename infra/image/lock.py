"""Write infra/image/requirements.lock: each package that Atoll needs, at one version and with the hash of its file.

Run it with the Python and on the platform of the image, after pyproject.toml changed: `python infra/image/lock.py`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Ask pip what it would install, and write that down."""
    needs = tomllib.loads((HERE.parents[1] / "pyproject.toml").read_text())["project"]["dependencies"]
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-"]
    report = json.loads(subprocess.run([*command, *needs], check=True, stdout=subprocess.PIPE).stdout)
    lines = sorted(
        f"{each['metadata']['name'].lower()}=={each['metadata']['version']}"
        f" --hash=sha256:{each['download_info']['archive_info']['hashes']['sha256']}"
        for each in report["install"]
    )
    (HERE / "requirements.lock").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
