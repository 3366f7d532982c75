"""Returns to the system the memory that a peak took: glibc keeps freed memory until `malloc_trim` is called.

Shards, their workers, front proxies, cache servers and views run `return_freed_memory` in the background. Invariant:
the event loop never waits for the call, which runs in a thread, and it runs in quiet moments only, three times after
each growth: what is freed later, as idle connections and the recent changes of a store, takes no less until the next.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from collections.abc import Callable
from pathlib import Path

import structlog

log = structlog.get_logger()

#: Seconds between two looks at the memory of the process.
INTERVAL_S = 5.0
#: Memory is returned once this much has been added since the last time.
_GROWN_BYTES = 8 << 20
#: And again, each so many seconds later: once idle connections of the growth were closed (`wire/proxy/backend`), and
#: once its recent changes have been dropped (`watching/hub`).
AGAIN_S, AGAIN_TIMES = 75.0, 2
#: A moment is quiet if the process used less than this part of a CPU since the last look.
_QUIET = 0.2
_MEMORY = Path("/proc/self/statm")


async def return_freed_memory() -> None:
    """Run until cancelled; return at once where the C library is not glibc."""
    trim = malloc_trim()
    if trim is None:
        return
    lowest, again, left, cpu_s = 0, float("inf"), 0, time.process_time()
    while True:
        await asyncio.sleep(INTERVAL_S)
        used_s, cpu_s = time.process_time() - cpu_s, time.process_time()
        held = anonymous_bytes()
        lowest = min(lowest, held)
        has_grown, now = held - lowest >= _GROWN_BYTES, time.monotonic()
        if used_s > _QUIET * INTERVAL_S or not (has_grown or now >= again):
            continue
        left = AGAIN_TIMES if has_grown else left - 1
        again = now + AGAIN_S if left else float("inf")
        await asyncio.to_thread(trim, 0)
        lowest = anonymous_bytes()
        log.debug("freed memory returned", before=held, after=lowest)


def malloc_trim() -> Callable[[int], int] | None:
    """Return glibc's function, which releases the interpreter lock while it runs; None with another C library,
    or without /proc."""
    if not _MEMORY.exists():
        return None
    try:
        found: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    return found


def anonymous_bytes() -> int:
    """Return the resident memory of this process without pages of files, of which the store's map has many."""
    _, resident, shared, *_ = _MEMORY.read_text().split()
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
