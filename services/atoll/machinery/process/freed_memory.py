"""Returns to the system the memory that a peak took: glibc keeps freed memory until `malloc_trim` is called.

Shards, their workers, front proxies, cache servers and views run `return_freed_memory` in the background. Invariant:
the event loop never waits for the call, which runs in a thread, and it runs in quiet moments only, once or twice after
each growth: what is freed later, as the recent changes of a store, takes no less until the second call.
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
#: And once more so many seconds later, when the recent changes of the growth have been dropped (`watching/hub`).
AGAIN_S = 150.0
#: A moment is quiet if the process used less than this part of a CPU since the last look.
_QUIET = 0.2
_MEMORY = Path("/proc/self/statm")


async def return_freed_memory() -> None:
    """Run until cancelled; return at once where the C library is not glibc."""
    trim = malloc_trim()
    if trim is None:
        return
    lowest, again, cpu_s = 0, float("inf"), time.process_time()
    while True:
        await asyncio.sleep(INTERVAL_S)
        used_s, cpu_s = time.process_time() - cpu_s, time.process_time()
        held = anonymous_bytes()
        lowest = min(lowest, held)
        has_grown, now = held - lowest >= _GROWN_BYTES, time.monotonic()
        if used_s > _QUIET * INTERVAL_S or not (has_grown or now >= again):
            continue
        again = now + AGAIN_S if has_grown else float("inf")
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
