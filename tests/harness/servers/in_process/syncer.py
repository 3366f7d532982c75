"""A syncer in the test's own event loop, between a mailbox and an edge cluster.

async with syncing((edge, workspace), view.target, Options(uid)) as syncer:
    await until(is_idle(syncer, view), "everything was looked at")
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from atoll.machinery.client.client import WATCH_IDLE_S, Client
from atoll.machinery.client.kubeconfig import Target
from atoll.machinery.client.lease import Timing
from atoll.machinery.wire.pending_response import ClientLimits
from atoll.syncer.syncer import Options, Syncer
from harness.servers.in_process.mailbox_view import MailboxView

#: Leases that another syncer takes over soon.
TIMING = Timing(2.0, 0.3)
#: Leases that outlive every pause of a busy machine: another syncer has them once they are given up.
HELD = Timing(60.0, 0.3)
#: The Lease of a mailbox that a shard serves, which takes one renewal a second of an account.
SERVED = Timing(15.0, 1.5)
#: Runs a syncer until the context ends.
Run = Callable[..., AbstractAsyncContextManager[Syncer]]


@asynccontextmanager
async def syncing(
    cluster: tuple[Target, str],
    mailbox: Target,
    options: Options,
    patience_s: float = WATCH_IDLE_S,
    make: Callable[..., Client] = Client,
) -> AsyncIterator[Syncer]:
    """Run a syncer, which waits that long for a mailbox that is silent; it ends in order. `make` its edge's client."""
    limits = ClientLimits(request_timeout_s=min(patience_s, 60.0))
    async with Client(mailbox, retries=0, limits=limits) as center, make(*cluster) as client:
        center.watch_idle_s = patience_s
        syncer = Syncer(center, client, options)
        task = asyncio.create_task(syncer.run())
        try:
            yield syncer
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await syncer.close()


def is_idle(syncer: Syncer, view: MailboxView) -> Callable[[], Awaitable[bool]]:
    """Whether a syncer has looked at all of a mailbox, and has nothing left to do."""

    async def look() -> bool:
        down, returns, mailbox = syncer.downsync, syncer.returns, syncer.mailbox
        if down is None or returns is None or mailbox.revision != view.revision:
            return False
        is_read = all(syncer.edge.is_read(each.kind) for each in mailbox.refs())
        is_done = not len(down.queue) and not len(returns.queue)
        return is_read and is_done and syncer.may_report and bool(view.config_status.get("appliedRevision"))

    return look
