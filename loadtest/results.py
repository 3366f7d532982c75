"""Writes the measured part of `RESULTS.md`: machine, calibration, date, and a comparison. The rest is written by hand.

Everything between the two marks is replaced, nothing else is touched.
"""

from __future__ import annotations

from pathlib import Path

from loadtest.calibration import Calibration
from loadtest.report import machine

FILE = Path(__file__).with_name("RESULTS.md")
_BEGIN, _END = "<!-- measured -->", "<!-- end of what is measured -->"


def write(table: str, calibration: Calibration, command: str, path: Path = FILE) -> None:
    """Replace the measured part. Raises ValueError if the file has no marks."""
    text = path.read_text()
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"{path} has no {_BEGIN} or no {_END}")
    found = machine()
    machine_text = f"{found['cpu']}, {found['cores']} cores, Python {found['python']}"
    facts = [
        f"- Command: `{command}`",
        f"- Date: {found['at']}",
        f"- Machine: {machine_text}, load average {found['load_average']:.1f}",
        f"- Calibration: {calibration.text()}",
    ]
    body = "\n".join([*facts, "", table])
    path.write_text(f"{before}{_BEGIN}\n{body}\n{_END}{after}")
