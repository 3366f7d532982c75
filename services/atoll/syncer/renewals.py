"""The renewals of the mailbox's Lease that this edge cluster wrote: they tell it from a copy of itself.

A copy of a machine has the identity, the state file and the uid of the first. Both would renew one Lease, and each
would take the other's writes for its own. `Lease` asks here. Invariant: what may have reached the center is on disk
before it is sent, so a process that was killed knows its own renewals; the file may be lost, as then they count as
another's and the process waits for the Lease to end.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from pathlib import Path

from atoll.syncer.state import State

#: Renewals that may still arrive.
_KEPT = 8


class EdgeRenewals:
    """Renewals of one cluster. `identity` is that of the process there."""

    def __init__(self, state: State, path: Path | None, edge: str, identity: str) -> None:
        self._state, self._edge, self._process = state, edge, identity
        self._path = path.with_name(f"{path.name}.renewals") if path is not None else None
        self._times: list[str] = []
        if self._path is not None:
            with contextlib.suppress(OSError, UnicodeDecodeError):
                self._times = self._path.read_text().split()

    @property
    def identity(self) -> str:
        """The holder that the Lease names."""
        return f"{self._state.mark}/{self._process}"

    def is_of_another_edge(self, holder: str) -> bool:
        """Whether a holder is the syncer of another cluster."""
        mark, slash, _ = holder.partition("/")
        return bool(slash) and mark != self._state.mark

    def is_ours(self, time: str) -> bool:
        """Whether a renewal was written, or tried, here."""
        return time in self._times

    async def note(self, before: str, time: str) -> None:
        """Keep a renewal that is about to be sent; without the disk a restart waits for the Lease to end."""
        kept = [each for each in self._times if each != before]
        self._times = [*kept[2 - _KEPT :], *filter(None, [before]), time]
        if self._path is not None:
            with contextlib.suppress(OSError):
                await asyncio.to_thread(self._path.write_text, "\n".join(self._times))

    def renamed(self) -> str:
        """Go by another mark, as a copy of this cluster has the present one."""
        self._state.mark = f"{self._edge}~{secrets.token_hex(4)}"
        return self.identity
