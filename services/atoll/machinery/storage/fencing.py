"""Fencing tokens: once a writer has written with a token, nothing is written for it with an older one.

A writer is an account that runs as several processes, of which each has a part of the work for a time. A write names
the token of its process as a guard, and `writing.fence_rows` keeps the newest in the write's own transaction.
Invariant: what a process sends after it lost its part, however late it arrives, is refused where the next has written.
"""

from __future__ import annotations

import msgspec


class FencingToken(msgspec.Struct, frozen=True, tag=True):
    """A guard: nothing was written for `writer` with a higher number. A number below 0 is never accepted.

    `home` is the logical cluster of the account: writers of one home have a bound of their own.
    """

    writer: str
    number: int
    home: str = ""
