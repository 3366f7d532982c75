"""Objects at the edge with which something is wrong for a while: what a status in the mailbox cannot tell.

`Downsync` says what waits, the edge what changed. Memory: what is wrong, and no other. Invariant: what lasts less than
HOLD_S is never reported, so that a Namespace on its way costs no report.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from atoll.machinery.edge.failures import Failure
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.edge.soundness import missing, unsound
from atoll.machinery.meta.objects import Object
from atoll.syncer.edge import Edge
from atoll.syncer.mailbox import Mailbox

HOLD_S = 20.0


class Soundness:
    """What is wrong now."""

    def __init__(self, mailbox: Mailbox, edge: Edge) -> None:
        self._mailbox, self._edge = mailbox, edge
        self._found: dict[ObjectRef, Failure] = {}
        #: When each began, by a clock that only runs forward.
        self._since: dict[ObjectRef, float] = {}

    def look(self, ref: ObjectRef, live: Object | None) -> None:
        """An object of the edge changed or went."""
        if live is not None:
            self._put(ref, unsound(ref, live, time.time()))
        elif (found := self._found.get(ref)) is not None and found.reason != "Missing":
            self._put(ref, None)

    def waits(self, ref: ObjectRef, needed: ObjectRef) -> None:
        """An object is not applied before another one is there."""
        if self._edge.get(ref) is None:
            self._put(ref, missing(needed, time.time()))

    def arrived(self, ref: ObjectRef) -> None:
        """An object waits for nothing any more."""
        if (found := self._found.get(ref)) is not None and found.reason == "Missing":
            self._put(ref, None)

    @property
    def failures(self) -> Mapping[ObjectRef, Failure]:
        """What is wrong with what is wanted, and was for a while."""
        if not self._found:
            return {}
        carried, now_s = self._mailbox.carried, time.monotonic()
        for ref in [ref for ref in self._found if not self._mailbox.has(ref) and self._edge.get(ref) is None]:
            self._put(ref, None)
        held = {ref: found for ref, found in self._found.items() if now_s - self._since[ref] >= HOLD_S}
        return {ref: found for ref, found in held.items() if carried.lists(ref) and self._mailbox.has(ref)}

    def _put(self, ref: ObjectRef, found: Failure | None) -> None:
        before = self._found.get(ref)
        if found is None:
            self._found.pop(ref, None)
            self._since.pop(ref, None)
        elif before is None or (before.reason, before.message) != (found.reason, found.message):
            self._found[ref] = found
            self._since.setdefault(ref, time.monotonic())
