"""Gives back the pages of a TLS connection's read buffer, so that it takes memory for what is read alone.

uvloop has 256 KiB for each TLS connection, of which a quiet one uses a page or two. Where the C library made them of
memory that was used before, as after some long lists, all of them are resident for as long as the connection lives.
Connections call `give_back` once they are made. Invariant: nothing is in the buffer then, as the loop hands on what it
read before it returns; pages that were given back read as zeros, and cost a fault when they are used again.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import mmap
from typing import Any

_DONTNEED = 4
_madvise = getattr(ctypes.CDLL(None, use_errno=True), "madvise", None)
if _madvise is not None:
    _madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def give_back(transport: asyncio.BaseTransport) -> int:
    """Give back the whole pages of a transport's read buffer; return their bytes.

    Returns 0 for plain text, for other event loops, and where the system has no `madvise`.
    """
    owner = _owner(transport)
    if owner is None or _madvise is None:
        return 0
    buffer = owner.get_buffer(0)
    begin = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    first = -(-begin // mmap.PAGESIZE) * mmap.PAGESIZE
    size = (begin + len(buffer) - first) // mmap.PAGESIZE * mmap.PAGESIZE
    return size if size > 0 and _madvise(first, size, _DONTNEED) == 0 else 0


def _owner(transport: asyncio.BaseTransport) -> Any:
    """Return what speaks TLS for a transport of uvloop, which has no name for it; None for other transports."""
    return next((each for each in gc.get_referents(transport) if type(each).__name__ == "SSLProtocol"), None)
