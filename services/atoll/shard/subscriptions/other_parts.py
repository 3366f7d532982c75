"""Makes this shard's parts of subscriptions that other shards were asked for, and tells subscribers of parts elsewhere.

One runs beside the keeper in a site. It reads what other shards say whenever they say something new, and again after a
while as long as a part could not be made. Invariant: a part has the slot that the subscriber was told.
"""

from __future__ import annotations

import asyncio
import time

import structlog

from atoll.machinery.meta.user import User
from atoll.machinery.storage.contract import StoreError
from atoll.machinery.stream.connection import ApiError, Unavailable
from atoll.machinery.stream.credential_file import InvalidCredentialFile
from atoll.machinery.stream.tenants.subscriptions import Mark
from atoll.shard.subscriptions.access_check import AccessDecision
from atoll.shard.subscriptions.entry import Entry
from atoll.shard.subscriptions.keeper import Keeper, from_moment
from atoll.shard.subscriptions.limits import CHECK_S
from atoll.shard.subscriptions.records import StoredSubscription
from atoll.shard.subscriptions.shared_rows import SharedSubscription

log = structlog.get_logger()

#: After how long a part is tried again, and how long one try waits for NATS.
_RETRY_S, _CONNECT_S = 2.0, 10.0
#: Many changes of one moment are taken in once.
_PAUSE_S = 0.05
_UNNAMED = User("", ())


class OtherParts:
    """Of one keeper."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper, self._others = keeper, keeper.others

    async def run(self) -> None:
        """Follow what other shards say until cancelled."""
        seen: tuple[object, ...] = ()
        complete = True
        while True:
            count, stamp = self._others.stamp()
            if stamp != seen or not complete:
                complete = await self.take_in()
                seen = stamp
            await asyncio.sleep(_PAUSE_S)
            try:
                async with asyncio.timeout(CHECK_S if complete else _RETRY_S):
                    await self._others.changed(count)
            except TimeoutError:
                seen = ()

    async def take_in(self) -> bool:
        """Have the parts here as other shards say; return whether all are."""
        index = self._keeper.index
        for entry in index:
            if entry.stored.home:
                await self._keeper.check_again(entry)
            elif entry.stored.request.identity and entry.is_active:
                await self._keeper.tell_of_parts(entry)
            await asyncio.sleep(0)
        present, complete = index.keys(), True
        for row in self._others.wanted():
            if row.key not in present and row.state == "Active":
                complete = await self._make(row) and complete
        return complete

    async def _make(self, row: SharedSubscription) -> bool:
        stored = _part_of(row)
        found = self._others.decision(stored)
        if found is None or found[0].state != "Active":
            return False
        if self._keeper.index.is_taken(row.owner, row.slot):
            log.warning("slot of another shard's subscription is taken", cluster=row.cluster, shard=row.home)
            return False
        try:
            return await self._made(stored, found[0])
        except (ApiError, Unavailable, StoreError, OSError, InvalidCredentialFile) as error:
            log.warning("part of another shard's subscription not made", shard=row.home, error=repr(error))
            return False

    async def _made(self, stored: StoredSubscription, decision: AccessDecision) -> bool:
        consumers = await self._keeper.consumers(_CONNECT_S)
        if consumers is None:
            return False
        await self._keeper.make(consumers, Entry(stored), decision, from_moment(stored.since_s))
        return True


def _part_of(row: SharedSubscription) -> StoredSubscription:
    """This shard's part of a subscription, before it has a consumer. Who asked is known to the other shard alone."""
    return StoredSubscription(
        owner=row.owner,
        cluster=row.cluster,
        slot=row.slot,
        request=row.request,
        user=_UNNAMED,
        expires_s=row.expires_s,
        state=row.state,
        reason=row.reason,
        selected=row.selected,
        refused=row.refused,
        begin=Mark("", "", 1),
        acked=0,
        used_s=time.time(),
        since_s=row.since_s,
        home=row.home,
    )
