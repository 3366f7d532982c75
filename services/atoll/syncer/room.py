"""What may still come up into a mailbox: the sizes of the copies, and the objects that are left out.

`upsync` asks before each copy. Invariant: what is counted is within the bounds; a copy that is up stays, and one that
would outgrow the bounds stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable

from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.edge.upsync import Bounds


class Room:
    """Within these bounds."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._sizes: dict[ObjectRef, int] = {}
        self._bytes = 0
        self._left_out: set[ObjectRef] = set()

    def hold(self, refs: Iterable[ObjectRef]) -> None:
        """Count copies that are up, before their sizes are known."""
        for ref in refs:
            self._sizes.setdefault(ref, 0)

    def take(self, ref: ObjectRef, size_bytes: int) -> bool:
        """Count a copy of this size, in place of what it had; False if there is no room for it."""
        is_more = ref not in self._sizes
        others = self._bytes - self._sizes.get(ref, 0)
        if others + size_bytes > self.bounds.size_bytes or (is_more and len(self._sizes) >= self.bounds.objects):
            self._left_out.add(ref)
            return False
        self._sizes[ref], self._bytes = size_bytes, others + size_bytes
        self._left_out.discard(ref)
        return True

    def free(self, ref: ObjectRef) -> list[ObjectRef]:
        """Count a copy no more; return what was left out so far, which is asked for again, in order."""
        self._left_out.discard(ref)
        if (size_bytes := self._sizes.pop(ref, None)) is None:
            return []
        self._bytes -= size_bytes
        waiting, self._left_out = self._left_out, set()
        return sorted(waiting)
