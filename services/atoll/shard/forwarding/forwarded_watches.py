"""Forwarded watches: those that another server sends, which this shard ends when it no longer authorizes them.

`virtual_resources` and `remote_shards` await their forwarded requests here. Invariant: a forwarded watch is judged when
a local one is, and ending it closes the client's connection, without a final event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

from atoll.machinery.apiserver.request import Request
from atoll.machinery.apiserver.serving.open_watches import OpenWatches, StillAllowed
from atoll.machinery.kinds.kind import Kind


class _ForwardedRequest:
    """Implements `open_watches.Watch`."""

    def __init__(self, work: asyncio.Future[int]) -> None:
        self._work = work

    def end(self, at: int = 0) -> None:
        self._work.cancel()


async def tracked(
    watches: OpenWatches, request: Request, kind: Kind | None, still: StillAllowed, work: Coroutine[None, None, int]
) -> asyncio.Future[int]:
    """Await the forwarding of a request; return its outcome, which is cancelled for a watch that was ended."""
    running = asyncio.ensure_future(work)
    watch = _ForwardedRequest(running)
    if kind is not None and request.info.verb == "watch":
        watches.add(request.cluster, kind, watch, still)
    try:
        await asyncio.wait({running})
        return running
    finally:
        running.cancel()
        watches.drop(request.cluster, watch)
