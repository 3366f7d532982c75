"""Write what a directory of wheels is made of: requirements.txt with their hashes, licences.txt, and sbom.json.

`infra/image/build` calls it. The SBOM is CycloneDX's, made by the package cyclonedx-bom in an environment of its own.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

CYCLONEDX = "cyclonedx-bom==7.5.0"


def main(directory: Path) -> None:
    """Read the wheels of a directory and write the three files beside them."""
    packages = [(_metadata(wheel), wheel) for wheel in sorted(directory.glob("*.whl"))]
    requirements = directory / "requirements.txt"
    requirements.write_text("".join(f"{found['Name']}=={found['Version']} {_hash(path)}\n" for found, path in packages))
    licences = (f"{found['Name']} {found['Version']}: {_licence(found)}\n" for found, _ in packages)
    (directory / "licences.txt").write_text("".join(licences))
    with tempfile.TemporaryDirectory() as home:
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        subprocess.run([f"{home}/bin/pip", "install", "--quiet", CYCLONEDX], check=True)
        command = [f"{home}/bin/cyclonedx-py", "requirements", "--output-reproducible", "-o", directory / "sbom.json"]
        subprocess.run([*command, requirements], check=True)


def _metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return HeaderParser().parsestr(archive.read(name).decode())


def _hash(wheel: Path) -> str:
    return f"--hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}"


def _licence(found: Message) -> str:
    """The licence as an expression, else as the package's classifiers or its own words name it."""
    classifiers = [str(text) for text in found.get_all("Classifier", [])]
    named = [text.rpartition(" :: ")[2] for text in classifiers if text.startswith("License ::")]
    words = str(found.get("License") or "").strip().splitlines()
    return str(found.get("License-Expression") or ", ".join(named) or (words[0] if words else "not named"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
