"""Who of the members has a key: rendezvous hashing over a roster, without I/O.

`membership` keeps the roster in a Lease. Invariants: every member that knows a roster gives the same answer; a member
that comes or goes moves only the keys that it has then, or had, and WHOLE moves only if its owner goes; an epoch names
one roster, and never falls.
"""

from __future__ import annotations

from collections.abc import Collection
from hashlib import blake2b

import msgspec

#: The key of what is not split: the placement translator with the summaries.
WHOLE = "placements"


class Roster(msgspec.Struct, frozen=True):
    """The members that work, in order. `whole` is the owner of WHOLE, as long as it is a member."""

    epoch: int = 0
    members: tuple[str, ...] = ()
    whole: str = ""

    def owner(self, key: str) -> str:
        """Return the member that has a key; empty without members."""
        if key == WHOLE and self.whole in self.members:
            return self.whole
        return max(self.members, key=lambda member: (_weight(member, key), member), default="")

    def changed(self, members: Collection[str], now_s: int) -> Roster:
        """Return the next roster. Epochs are moments where that rises, so that it outranks a roster that was lost."""
        found = Roster(max(self.epoch + 1, now_s), tuple(sorted(members)), self.whole)
        return msgspec.structs.replace(found, whole=found.owner(WHOLE))


def _weight(member: str, key: str) -> bytes:
    return blake2b(f"{member}\0{key}".encode(), digest_size=8).digest()
