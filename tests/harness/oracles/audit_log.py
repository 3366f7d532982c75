"""The events of an audit log of a process that still writes: a line at the end may be there in part."""

from __future__ import annotations

import json
from pathlib import Path

from harness.clients.api import Object


def audit_events(path: Path) -> list[Object]:
    """The events that are written whole, in their order."""
    text = path.read_text()
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
