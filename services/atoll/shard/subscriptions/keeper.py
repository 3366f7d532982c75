"""Keeps the subscriptions of a shard: checks them again, stores them, and has their consumers right.

One runs in the writer's process; `requests` makes and removes subscriptions through it. What decided about one is
followed in the shard's log (`OpenWatches`), and each is checked besides every minute and when the credential that it
rests on ends. The consumers on NATS follow from the entries alone: `_look` compares both every few seconds, so whatever
failed or was lost on the way is made right. Invariant: a subscription that was found without the right has no consumer
for longer than one look.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Awaitable, Callable, Collection
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

import structlog
from msgspec.structs import replace

from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.catalog.shipped_kinds import KindsPending
from atoll.machinery.apiserver.serving.open_watches import OpenWatches, StillAllowed
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.user import User
from atoll.machinery.storage.contract import Delete, Store, StoreError
from atoll.machinery.storage.pages import each_record
from atoll.machinery.stream.connection import Access, ApiError, Connection, Unavailable, keep_connected
from atoll.machinery.stream.subjects import CHANGES, stream_name
from atoll.machinery.stream.tenants.key_files import SubscriptionKeys
from atoll.machinery.stream.tenants.subscriber_permissions import SubscriberNames, subscriber_names
from atoll.machinery.stream.tenants.subscription_consumer import subscription_filters
from atoll.machinery.stream.tenants.subscriptions import Control, Mark, StreamPart
from atoll.shard.subscriptions.access_check import EXPIRED, AccessCheck, AccessDecision, Question
from atoll.shard.subscriptions.consumers import Consumers, Progress, StreamState, pause
from atoll.shard.subscriptions.delivery_rates import DeliveryRates
from atoll.shard.subscriptions.entry import Entry, Index
from atoll.shard.subscriptions.limits import CHECK_S, LOOK_S, STORE_S, Limits
from atoll.shard.subscriptions.other_shards import OtherShards
from atoll.shard.subscriptions.records import SCOPE, StoredSubscription, key_of, put, read
from atoll.shard.subscriptions.shared_rows import put_shared, shared_key, shared_of

log = structlog.get_logger()

#: Many changes of one moment are checked once.
_PAUSE_S = 0.05
_AT_ONCE = 100
_UNCHECKED = "the right could not be checked"


class Settings(NamedTuple):
    """The bounds, what reads the keys of subscribers, which raises OSError and InvalidCredentialFile while there are
    none, and the names of the other shards."""

    limits: Limits
    keys: Callable[[], SubscriptionKeys]
    shards: Callable[[], Collection[str]] = tuple


class _Mark:
    """`open_watches.Watch`: calls back when what decided about a subscription changed."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed

    def end(self, at: int = 0) -> None:
        """The workspace is closed for watches."""
        self._changed()

    def holds(self, view: View) -> bool:
        """`StillAllowed.holds`: checked later."""
        self._changed()
        return True


class Keeper:
    """Every kind serves as `kind`: what is followed is no kind's objects."""

    def __init__(self, store: Store, access: AccessCheck, watches: OpenWatches, kind: Kind, settings: Settings) -> None:
        self._store, self._access, self._watches, self._kind = store, access, watches, kind
        self.keys, self.limits = settings.keys, settings.limits
        self.others = OtherShards(store, settings.shards)
        self.shard, self.lineage = store.identity.shard, store.identity.lineage
        self.index, self.rates = Index(), DeliveryRates(settings.limits.rate)
        self._marked: set[Entry] = set()
        self._following: dict[Entry, _Mark] = {}
        self._news, self._wanted, self._connected = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._consumers: Consumers | None = None
        self._stored_s = 0.0

    def load(self) -> None:
        """Read what is stored. Once, before anything is asked."""
        with self._store.snapshot() as snapshot:
            for record in each_record(snapshot, SCOPE):
                entry = Entry(read(record), record.revision)
                entry.shared_revision = snapshot.revision_of(shared_key(entry.stored))
                self._take(entry)

    async def run(self, access: Callable[[], Awaitable[Access]]) -> None:
        """AccessCheck and look until cancelled. `access` returns the shard's own access to its stream."""
        await asyncio.gather(self._check_repeatedly(), self._connect(access))

    def names(self, owner: str) -> SubscriberNames:
        """The names of an owner on NATS. Raises OSError, InvalidCredentialFile."""
        return _names(self.keys().names, owner)

    def filters(self, stored: StoredSubscription) -> list[str]:
        """What a subscription selects of the stream."""
        types = [each.type for each in stored.selected]
        return subscription_filters(self.shard, types, "" if stored.request.identity else stored.cluster)

    def parts(self, stored: StoredSubscription) -> tuple[StreamPart, ...]:
        """A subscription's parts on streams, this shard's first."""
        filters = tuple(self.filters(stored)) if stored.selected else ()
        own = StreamPart(self.shard, stream_name(CHANGES, self.shard), filters, stored.begin)
        return (own, *self.others.parts(stored))

    def may_enter(self, user: User, cluster: str) -> bool:
        """Whether a user has access to a cluster."""
        with self._store.snapshot() as snapshot:
            return self._access.may_enter(snapshot, user, cluster)

    # --- judging

    async def decision(self, question: Question, expires_s: float) -> AccessDecision:
        """AccessCheck at the latest state. A question that cannot be answered is one without the right."""
        if 0 < expires_s <= time.time():
            return AccessDecision("Revoked", EXPIRED, sources=(question.cluster,))
        while True:
            try:
                with self._store.snapshot() as snapshot:
                    return self._access.decide(snapshot, question)
            except KindsPending as pending:
                await pending.fetch()
            except Exception as error:
                log.error("subscription not checked", cluster=question.cluster, error=repr(error))
                return AccessDecision("Revoked", _UNCHECKED, sources=(question.cluster,))

    async def _check_repeatedly(self) -> None:
        while True:
            due_s = min((entry.due_s for entry in self.index), default=time.time() + CHECK_S)
            try:
                async with asyncio.timeout(max(0.0, due_s - time.time())):
                    await self._news.wait()
            except TimeoutError:
                self._marked.update(entry for entry in self.index if entry.due_s <= time.time())
            self._news.clear()
            marked, self._marked = self._marked, set()
            for entry in marked:
                await self.check_again(entry)
                await asyncio.sleep(0)
            await asyncio.sleep(_PAUSE_S)

    async def check_again(self, entry: Entry) -> None:
        """AccessCheck a subscription at the latest state, and act by it; remove one that is not used any more."""
        async with entry.changing:
            if not self.index.has(entry):
                return
            decision = await self._decision_of(entry)
            if decision is None:
                log.info("subscription removed that nobody uses", cluster=entry.stored.cluster)
                await self._remove(entry)
                return
            self._follow(entry, decision)
            before, now = entry.stored, _as_decided(entry.stored, decision)
            if now != before:
                entry.stored = now
                log.info("subscription changed", cluster=now.cluster, state=now.state, reason=now.reason)
                await self._apply(entry, before)

    async def _decision_of(self, entry: Entry) -> AccessDecision | None:
        """AccessCheck one at the latest state; None for one that is to be removed."""
        stored = entry.stored
        if not stored.home:
            unused = time.time() - stored.used_s > self.limits.consumer.unused_s
            return None if unused else await self.decision(entry.question, stored.expires_s)
        found = self.others.decision(stored)
        if found is None:
            return None
        decision, expires_s = found
        entry.stored = replace(stored, expires_s=expires_s)
        return decision

    def _follow(self, entry: Entry, decision: AccessDecision) -> None:
        """Have a subscription checked again after changes of what the decision derives from, and in time."""
        expires_s = entry.stored.expires_s
        entry.due_s = time.time() + CHECK_S
        if time.time() < expires_s < entry.due_s:
            entry.due_s = expires_s
            self._news.set()
        if entry.sources == decision.sources and entry in self._following:
            return
        self._forget(entry)
        entry.sources = decision.sources
        mark = self._following[entry] = _Mark(lambda: self._changed(entry))
        still = StillAllowed(mark.holds, decision.sources, foreign=True)
        self._watches.add(entry.stored.cluster, self._kind, mark, still)

    def _forget(self, entry: Entry) -> None:
        if (mark := self._following.pop(entry, None)) is not None:
            self._watches.drop(entry.stored.cluster, mark)

    def _changed(self, entry: Entry) -> None:
        self._marked.add(entry)
        self._news.set()

    # --- making, changing, removing

    async def consumers(self, wait_s: float) -> Consumers | None:
        """Return the consumers, once there is a connection; None if there is none in time."""
        self._wanted.set()
        try:
            async with asyncio.timeout(wait_s):
                await self._connected.wait()
        except TimeoutError:
            return None
        return self._consumers

    async def make(self, consumers: Consumers, entry: Entry, decision: AccessDecision, start: Object) -> None:
        """Make the consumer and the row of a new subscription, or nothing. Raises the errors of both, OSError."""
        async with entry.changing:
            self.index.add(entry)
            name = self._name(entry.stored)
            try:
                stream = await consumers.stream()
                progress = await self._create(consumers, entry, start)
                begin = Mark(stream.created, self.lineage, progress.acked + 1)
                entry.stored = replace(entry.stored, begin=begin, acked=progress.acked)
                entry.note(progress)
                await self._store_row(entry)
            except BaseException:
                self.index.remove(entry)
                await self._tried(consumers.delete(name))
                raise
            entry.changed_s = time.monotonic()
            self._follow(entry, decision)

    async def _create(self, consumers: Consumers, entry: Entry, start: Object) -> Progress:
        """Make the consumer of a subscription, paused while its owner is ahead of the rate."""
        stored = entry.stored
        entry.paused_until_s = self.rates.paused_until_s(stored.owner, time.time())
        begin = {**start, **pause(entry.paused_until_s)}
        return await consumers.create(self._name(stored), self.filters(stored), begin, full=_is_full(stored))

    def _take(self, entry: Entry) -> None:
        self.index.add(entry)
        self._changed(entry)
        self._wanted.set()

    async def look_at(self, entry: Entry) -> None:
        """Take in how far the subscriber is now, if NATS can be asked."""
        consumers = self._consumers
        if consumers is not None and entry.is_active:
            await self._tried(self._note(consumers, entry))

    async def _note(self, consumers: Consumers, entry: Entry) -> None:
        progress = await consumers.progress(self._name(entry.stored))
        if progress is not None:
            self._took(entry, progress)

    def _took(self, entry: Entry, progress: Progress) -> bool:
        """Take in how far a consumer is; return whether its owner read or asked since the last time."""
        # Of a consumer that an earlier process made, nothing says when it delivered what it has.
        before = entry.progress or progress
        self.rates.took(entry.stored.owner, progress.delivered - before.delivered, time.time())
        return entry.note(progress)

    async def remove(self, entry: Entry) -> None:
        """Remove a subscription. Raises StoreError."""
        async with entry.changing:
            if self.index.has(entry):
                await self._remove(entry)

    async def _remove(self, entry: Entry) -> None:
        mutations = [Delete(key_of(entry.stored), entry.revision)]
        if entry.shared_revision:
            mutations.append(Delete(shared_key(entry.stored), entry.shared_revision))
        await self._store.submit(mutations)
        self._forget(entry)
        self.index.remove(entry)
        if self._consumers is not None:
            await self._tried(self._note(self._consumers, entry))
            await self._tried(self._consumers.delete(self._name(entry.stored)))

    async def _apply(self, entry: Entry, before: StoredSubscription) -> None:
        """Have NATS and the store as an entry is now. What fails is made right at the next look."""
        consumers, stored = self._consumers, entry.stored
        entry.changed_s = time.monotonic()
        if consumers is not None:
            await self._tried(self._switch(consumers, entry, before))
        try:
            await self._store_row(entry)
        except StoreError as error:
            entry.unsaved = True
            log.error("subscription not stored", cluster=stored.cluster, error=repr(error))
        entry.changed_s = time.monotonic()

    async def _switch(self, consumers: Consumers, entry: Entry, before: StoredSubscription) -> None:
        stored, name = entry.stored, self._name(entry.stored)
        if before.state == "Active":
            if (progress := await consumers.progress(name)) is not None:
                stored = entry.stored = replace(stored, acked=max(stored.acked, progress.acked))
                self._took(entry, progress)
            await consumers.delete(name)
        if stored.state == "Active":
            await self._restore(consumers, await consumers.stream(), entry)
        await self._tell(consumers, entry)
        if before.state == "Active":
            # After the message: it closes the connections, whose pulls wait at a consumer that is gone.
            await consumers.kick(stored.owner)

    async def _restore(self, consumers: Consumers, stream: StreamState, entry: Entry) -> None:
        """Make the consumer of a subscription anew, from where its subscriber is."""
        stored = entry.stored
        if stream.created != stored.begin.created:
            # Sequences of an earlier stream mean nothing in this one, which begins with a RESYNC.
            begin = Mark(stream.created, self.lineage, 1)
            stored = entry.stored = replace(stored, begin=begin, acked=0)
            entry.unsaved = True
        start = from_sequence(stored.acked + 1)
        await consumers.delete(self._name(stored))
        progress = await self._create(consumers, entry, start)
        entry.progress = None
        entry.note(progress)

    async def _tell(self, consumers: Consumers, entry: Entry) -> None:
        stored, entry.announced = entry.stored, self.parts(entry.stored)
        message = Control(stored.state, stored.reason, stored.request.name, entry.announced)
        await consumers.tell(self.names(stored.owner).inbox, message)

    async def tell_of_parts(self, entry: Entry) -> None:
        """Tell a subscriber of parts on other shards that it was not told of."""
        if self._consumers is not None and entry.announced != self.parts(entry.stored):
            await self._tried(self._tell(self._consumers, entry))

    async def _tried(self, work: Awaitable[None]) -> None:
        try:
            await work
        except (Unavailable, ApiError, OSError) as error:
            log.warning("consumer of a subscription not changed", error=repr(error))

    async def _store_row(self, entry: Entry) -> None:
        stored, mutations = entry.stored, [put(entry.stored, entry.revision)]
        shared = shared_of(stored, self.shard) if stored.request.identity else None
        if shared != entry.shared:
            mutations.append(put_shared(stored, self.shard, entry.shared_revision))
        entry.revision, *rest = await self._store.submit(mutations)
        if rest:
            entry.shared, entry.shared_revision = shared, rest[0]
        entry.unsaved = False

    def _name(self, stored: StoredSubscription) -> str:
        return _name(self.keys().names, stored)

    # --- NATS

    async def _connect(self, access: Callable[[], Awaitable[Access]]) -> None:
        await self._wanted.wait()
        await keep_connected(await access(), f"atoll subscriptions of {self.shard}", self._session)

    async def _session(self, connection: Connection) -> None:
        consumers = self._consumers = Consumers(connection, self.shard, self.limits.consumer)
        try:
            await self._look(consumers)
            self._connected.set()
            while not connection.closed.is_set():
                try:
                    async with asyncio.timeout(LOOK_S):
                        await connection.closed.wait()
                except TimeoutError:
                    await self._look(consumers)
            raise Unavailable("connection lost")
        finally:
            self._connected.clear()
            self._consumers = None

    async def _look(self, consumers: Consumers) -> None:
        """Compare the consumers with the entries, make them agree, and take in how far subscribers are."""
        if not self.index:
            return
        try:
            began_s, stream, found = time.monotonic(), await consumers.stream(), await consumers.all()
            # Once for all: there may be thousands.
            key = self.keys().names
            for number, entry in enumerate(self.index, 1):
                progress = found.pop(_name(key, entry.stored), None)
                async with entry.changing:
                    if self.index.has(entry) and entry.changed_s < began_s:
                        await self._compare(consumers, stream, entry, progress)
                if number % _AT_ONCE == 0:
                    await asyncio.sleep(0)
            names = {_name(key, entry.stored) for entry in self.index}
            for name in found.keys() - names:
                await consumers.delete(name)
            await self._hold_rates(consumers)
        except OSError as error:
            log.warning("no keys of event subscribers", error=str(error))
        await self._store_marks()

    async def _compare(
        self, consumers: Consumers, stream: StreamState, entry: Entry, progress: Progress | None
    ) -> None:
        stored = entry.stored
        if not entry.is_active:
            if progress is not None:
                await consumers.delete(self._name(stored))
                await consumers.kick(stored.owner)
            return
        same = progress is not None and stream.created == stored.begin.created
        if progress is None or not same or not self._is_as_wanted(stored, progress):
            await self._restore(consumers, stream, entry)
            return
        used = self._took(entry, progress)
        if progress.acked > stored.acked or used:
            used_s = time.time() if used else stored.used_s
            entry.stored = replace(stored, acked=max(stored.acked, progress.acked), used_s=used_s)
            entry.unsaved = True

    async def _hold_rates(self, consumers: Consumers) -> None:
        """Pause the consumers of owners that are ahead of the rate; they go on by themselves."""
        for entry in self.index:
            until_s = self.rates.paused_until_s(entry.stored.owner, time.time())
            async with entry.changing:
                if until_s > entry.paused_until_s and entry.is_active and self.index.has(entry):
                    entry.paused_until_s = until_s
                    await self._tried(consumers.pause(self._name(entry.stored), until_s))
        self.rates.forget(time.time())

    def _is_as_wanted(self, stored: StoredSubscription, progress: Progress) -> bool:
        return progress.filters == frozenset(self.filters(stored)) and progress.full == _is_full(stored)

    async def _store_marks(self) -> None:
        if time.monotonic() - self._stored_s < STORE_S:
            return
        self._stored_s = time.monotonic()
        unsaved = [entry for entry in self.index if entry.unsaved]
        for at in range(0, len(unsaved), _AT_ONCE):
            await asyncio.gather(*map(self._store_mark, unsaved[at : at + _AT_ONCE]))

    async def _store_mark(self, entry: Entry) -> None:
        async with entry.changing:
            if self.index.has(entry):
                try:
                    await self._store_row(entry)
                except StoreError as error:
                    log.error("mark of a subscription not stored", error=repr(error))


def from_sequence(sequence: int) -> Object:
    """Begin a consumer at a sequence."""
    return {"deliver_policy": "by_start_sequence", "opt_start_seq": sequence}


def from_moment(moment_s: float) -> Object:
    """Begin a consumer at a moment, in Unix seconds."""
    moment = datetime.fromtimestamp(max(0.0, moment_s), UTC).isoformat()
    return {"deliver_policy": "by_start_time", "opt_start_time": moment.replace("+00:00", "Z")}


def _name(key: str, stored: StoredSubscription) -> str:
    return _names(key, stored.owner).consumers[stored.slot]


@lru_cache(maxsize=4096)
def _names(key: str, owner: str) -> SubscriberNames:
    return subscriber_names(base64.b64decode(key), owner)


def _is_full(stored: StoredSubscription) -> bool:
    return all(each.full for each in stored.selected)


def _as_decided(stored: StoredSubscription, decision: AccessDecision) -> StoredSubscription:
    return replace(
        stored, state=decision.state, reason=decision.reason, selected=decision.selected, refused=decision.refused
    )
