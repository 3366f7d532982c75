"""A position kept in a file, for programs that have no database of their own.

Invariant: the file holds one whole position at any moment, that of an event that was acknowledged.
"""

from __future__ import annotations

from pathlib import Path

from atoll.events.changes import OLDEST
from atoll.events.event import Event


class PositionFile:
    """Read it when the program starts, and acknowledge each event after it is handled."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def read(self) -> str:
        """The position of the event acknowledged last; OLDEST if there is none. Raises OSError."""
        try:
            return self._path.read_text()
        except FileNotFoundError:
            return OLDEST

    def acknowledge(self, event: Event) -> None:
        """Keep the event's position, so that the next run begins behind it. Raises OSError."""
        scratch = self._path.with_name(f"{self._path.name}.new")
        scratch.write_text(event.position)
        scratch.replace(self._path)
