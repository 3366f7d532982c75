"""One line of `atoll doctor`."""

from __future__ import annotations

import msgspec

OK, WARN, FAIL = "ok", "warn", "fail"


class Finding(msgspec.Struct, frozen=True):
    """Severity (OK, WARN or FAIL), subject and text."""

    level: str
    name: str
    fact: str

    def __str__(self) -> str:
        return f"{self.level:4} {self.name}: {self.fact}"
