"""Work on large documents beside the event loop, within a request's deadline.

Verb handlers and replies decode, encode and walk documents of megabytes here. The functions call `checkpoint`.
Invariant: a request does not hold the event loop for longer than a slice, or one call of a C library.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from atoll.machinery.meta.status import Timeout
from atoll.machinery.process.time_slicing import run_sliced

T = TypeVar("T")

#: Time limit, including the wait for other requests' documents.
DEADLINE_S = 34.0


async def in_slices(work: Callable[[], T]) -> T:
    """Run a pure function of a large document in slices and return its result. Raises Timeout after DEADLINE_S."""
    try:
        return await run_sliced(lambda pause: work(), DEADLINE_S, is_long=True)
    except TimeoutError as error:
        raise Timeout(
            "Timeout: request did not complete within requested timeout - context deadline exceeded"
        ) from error
