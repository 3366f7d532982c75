"""A reading of many rows in slices, and of the log since then, before the transaction that needs its result.

`first_counts` and `first_use` make readings. Each slice has a transaction of its own; then the event loop has a turn.
Invariant: `is_later` is true of exactly the entries of the log that the slice of their object does not contain.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from bisect import bisect_left

from atoll.machinery.storage.environment.databases import Environment


class SlicedReading(ABC):
    """Reads the rows below a prefix of keys."""

    def __init__(self, environment: Environment, prefix: bytes) -> None:
        self._environment, self._prefix = environment, prefix
        #: The last keys of all slices but the last one, and the revisions at which slices were read.
        self._ends: list[bytes] = []
        self._revisions: list[int] = []
        #: The revision up to which the log was read.
        self._at = 0

    async def run(self) -> None:
        """Read slice by slice, then follow the log until few entries are left for the writer."""
        is_more = True
        while is_more:
            is_more = self._read()
            await asyncio.sleep(0)
        self._at, is_more = self._revisions[0], True
        while is_more:
            is_more = self._follow()
            await asyncio.sleep(0)

    @abstractmethod
    def _read(self) -> bool:
        """Read the next slice; return whether there may be more."""

    @abstractmethod
    def _follow(self) -> bool:
        """Go on along the log; return whether there is more that the writer should not have to read."""

    def _is_later(self, raw: bytes, revision: int) -> bool:
        """Whether an object was written at a revision after it was read."""
        return revision > self._revisions[bisect_left(self._ends, raw)]
