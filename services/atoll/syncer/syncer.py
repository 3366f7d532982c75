"""The syncer: both sides, the work between them, and what each tells the others.

Changes become keys in four queues, of downsync, status return, upsync and states; workers take them. Invariants:
neither side's absence ends it: without the center the edge is held to what was read last, without the edge nothing is
decided; the kinds that are followed at the edge are those that are listed, those that were ever written, Namespaces
and definitions; while another edge cluster holds the mailbox's Lease nothing is written on either side.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
import structlog

from atoll.machinery.client.client import Client
from atoll.machinery.client.lease import Lease, Timing
from atoll.machinery.client.resource import Resource
from atoll.machinery.control.reconcile_log import logged
from atoll.machinery.control.worker import work
from atoll.machinery.edge.failures import Failure
from atoll.machinery.edge.names import LEASE_NAME, ObjectRef
from atoll.machinery.edge.syncset import SyncSet
from atoll.machinery.edge.upsync import BOUNDS, Bounds
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import ApiError
from atoll.machinery.meta.types import CRDS
from atoll.machinery.process.backoff import Backoff
from atoll.machinery.wire.pending_response import ClientError
from atoll.syncer.associated import Associated
from atoll.syncer.downsync import Downsync, kinds_to_follow
from atoll.syncer.edge import NAMESPACE_KIND, Edge
from atoll.syncer.mailbox import Mailbox
from atoll.syncer.others import OtherSyncers, edge_lease
from atoll.syncer.rate import RateLimit
from atoll.syncer.renewals import EdgeRenewals
from atoll.syncer.report import Report
from atoll.syncer.returns import Returns
from atoll.syncer.soundness import Soundness
from atoll.syncer.state import State
from atoll.syncer.upsync import Upsync, copies_of, upsynced_kinds

log = structlog.get_logger()

WORKERS = 4
SAVE_S = 5.0
EDGE_TIMING, MAILBOX_TIMING = Timing(60.0, 20.0), Timing(90.0, 30.0)
_BACKOFF = Backoff(0.2, 30.0)
_DEFINITIONS = Resource(CRDS.group, "v1", CRDS.resource, namespaced=False)
#: Kinds that are followed in any case, and those of which all objects are.
_ALWAYS = {("", "namespaces"): NAMESPACE_KIND, (CRDS.group, CRDS.resource): _DEFINITIONS}
_WHOLE = {("", "namespaces")}
#: Kinds are looked for again after this time, if some were not served.
_LOOK_AGAIN_S = 30.0


class Options(msgspec.Struct, frozen=True):
    """What a syncer is told. `uid` is that of its SyncTarget."""

    uid: str
    qps: float = 30.0
    burst: int = 20
    state_file: Path | None = None
    edge_timing: Timing = EDGE_TIMING
    mailbox_timing: Timing = MAILBOX_TIMING
    upsync_bounds: Bounds = BOUNDS


class Syncer:
    """Reads and writes through two clients, which are the caller's."""

    def __init__(self, center: Client, cluster: Client, options: Options) -> None:
        self._center, self._cluster, self._options = center, cluster, options
        self.mailbox = Mailbox(center)
        self.edge = Edge(cluster, options.uid, RateLimit(options.qps, options.burst))
        self.downsync: Downsync | None = None
        self.returns: Returns | None = None
        self.soundness = Soundness(self.mailbox, self.edge)
        self.upsync: Upsync | None = None
        self.associated = Associated(center, self.mailbox, self.edge, lambda: self.may_report)
        #: Kinds of which the copies in the mailbox are known.
        self._searched: set[Resource] = set()
        #: Kinds that come up and are served.
        self._upsynced: dict[tuple[str, str], Resource] = {}
        #: Why it does not work yet, empty once it does.
        self.waits_for = "the edge cluster"
        self._kinds_changed = asyncio.Event()
        self._events: set[asyncio.Task[None]] = set()
        #: The syncer of another edge cluster that holds the mailbox's Lease, None until that was looked at.
        self._rival: str | None = None

    async def run(self) -> None:
        """Work until cancelled."""
        await self._identify()
        options, uid = self._options, self.edge.uid
        state = State(options.uid, uid, options.state_file)
        identity = f"{socket.gethostname()}_{state.identity}"
        name = edge_lease(options.uid)
        self._edge_lease = Lease(self._cluster, name, identity, options.edge_timing, self._edge_taken)
        self._renewals = renewals = EdgeRenewals(state, options.state_file, uid, identity)
        self._mailbox_lease = Lease(
            self._center, LEASE_NAME, renewals.identity, options.mailbox_timing, self._look_at_all, self._may_hold
        )
        self._mailbox_lease.renewals, self._mailbox_lease.seen = renewals, self._holder_seen
        self._state = state
        self.mailbox.resume(*state.read)
        others = OtherSyncers(self._cluster, options.uid)
        self.downsync = Downsync(self.mailbox, self.edge, state, others, lambda: self.is_writer)
        self.returns = Returns(self._center, self.mailbox, self.edge, lambda: self.may_report)
        bounds = options.upsync_bounds
        self.upsync = Upsync(self._center, self.mailbox, self.edge, state, lambda: self.may_report, bounds)
        self.upsync.copies = copies = self.associated.copies
        copies.changed, copies.completed = self.upsync.changed, self._upsync_all
        report = Report(self._center, self.mailbox, self, uid)
        self.downsync.waits, self.downsync.arrived = self.soundness.waits, self.soundness.arrived
        self.returns.looked = self.soundness.look
        self.downsync.appeared = self._kinds_changed.set
        self.downsync.adopted = lambda ref, obj: self._tell(report, ref, obj)
        self.mailbox.listener, self.edge.changed, self.edge.read = self, self._live_changed, self._kind_read
        try:
            async with asyncio.TaskGroup() as tasks:
                for each in (self._edge_lease, self._mailbox_lease, self.mailbox, report):
                    tasks.create_task(each.run())
                tasks.create_task(self._follow_kinds())
                tasks.create_task(self._save())
                for controller, queue, reconcile in (
                    ("downsync", self.downsync.queue, self.downsync.reconcile),
                    ("status", self.returns.queue, self.returns.reconcile),
                    ("upsync", self.upsync.queue, self.upsync.reconcile),
                    ("associated", self.associated.queue, self.associated.reconcile),
                ):
                    for _ in range(WORKERS):
                        tasks.create_task(work(controller, queue, logged(controller, reconcile)))
        finally:
            await self.associated.close()
            await self.edge.close()

    async def close(self) -> None:
        """Remember what there is to remember, and let another one work at once. After `run` was cancelled."""
        if self.downsync is None:
            return
        self._note_read()
        await asyncio.to_thread(self._state.save)
        for lease in (self._edge_lease, self._mailbox_lease):
            try:
                await lease.release()
            except (ApiError, ClientError, TimeoutError, OSError) as error:
                log.info("lease not released", reason=str(error) or type(error).__name__)

    # --- what there is to report

    @property
    def applied(self) -> int:
        """The revision of the mailbox up to which everything was tried at the edge."""
        return self.downsync.applied if self.downsync is not None else 0

    @property
    def failures(self) -> Mapping[ObjectRef, Failure]:
        """What does not succeed."""
        returned = self.returns.failures if self.returns is not None else {}
        upsynced = self.upsync.failures if self.upsync is not None else {}
        kinds = {**self.associated.failures, **self.edge.failures}
        return {**self.soundness.failures, **kinds, **upsynced, **returned, **self._state.failures}

    @property
    def is_writer(self) -> bool:
        """Whether this process is the one that writes to the edge."""
        return self.downsync is not None and self._edge_lease.is_held and self._rival == ""

    @property
    def rival(self) -> str:
        """The syncer of another edge cluster that works for this mailbox; empty if none is known."""
        return self._rival or ""

    @property
    def may_report(self) -> bool:
        """Whether this process is the one that writes to the mailbox."""
        return self._mailbox_lease.is_held and self._edge_lease.is_held

    # --- what changes

    def wanted(self, ref: ObjectRef, revision: int) -> None:
        """The mailbox wants something else of an object."""
        assert self.downsync is not None
        self.downsync.wanted(ref, revision)
        self.associated.changed(ref)

    def reported(self, ref: ObjectRef) -> None:
        """The mailbox has a new object, or another status."""
        assert self.returns is not None
        self.returns.queue.add(ref)

    def reconfigured(self, before: SyncSet, revision: int) -> None:
        """The mailbox lists other objects."""
        assert self.downsync is not None and self.returns is not None
        self.waits_for = ""
        if self._rival is None:
            self._mailbox_lease.nudge()
        self.downsync.reconfigured(before, revision)
        self.returns.all()
        if before.upsync != self.mailbox.carried.upsync or not before.number:
            self._upsync_all()
        if before.associated != self.mailbox.carried.associated or not before.number:
            self.associated.all()
        self._kinds_changed.set()

    def _live_changed(self, ref: ObjectRef) -> None:
        assert self.downsync is not None and self.returns is not None
        self.downsync.live_changed(ref)
        self.returns.queue.add(ref)
        if self.upsync is not None:
            self.upsync.changed(ref)
        self.associated.changed(ref)
        if ref.kind == (CRDS.group, CRDS.resource):
            self._kinds_changed.set()

    def _kind_read(self, kind: tuple[str, str]) -> None:
        assert self.downsync is not None
        self.downsync.kind_read(kind)
        for ref in [ref for ref in self.edge.refs() if kind in _ALWAYS and ref.kind == kind]:
            self.soundness.look(ref, self.edge.get(ref))
        self._upsync_all()
        self.associated.all()

    def _upsync_all(self) -> None:
        if self.upsync is not None and self.mailbox.is_complete:
            self.upsync.all()

    def _may_hold(self) -> bool:
        """Whether this process is the one at the edge, or was as far as it can know: no two share the Leases."""
        is_unknown = bool(self._edge_lease.failure) and self._mailbox_lease.is_held
        return self._edge_lease.is_held or is_unknown

    def _holder_seen(self, holder: str) -> None:
        before, self._rival = self._rival, holder if self._renewals.is_of_another_edge(holder) else ""
        if before != self._rival == "":
            self._look_at_all()

    def _edge_taken(self) -> None:
        self._mailbox_lease.nudge()
        self._look_at_all()

    def _look_at_all(self) -> None:
        if self.downsync is not None and self.returns is not None and self.mailbox.is_complete:
            self.downsync.all()
            self.returns.all()
            self._upsync_all()
            self.associated.taken()

    def _tell(self, report: Report, ref: ObjectRef, obj: Object) -> None:
        task = asyncio.create_task(report.adopted(self.mailbox.origin(ref), obj))
        self._events.add(task)
        task.add_done_callback(self._events.discard)

    # --- background work

    async def _identify(self) -> None:
        """Wait for the edge cluster."""
        failures = 0
        while True:
            try:
                return await self.edge.identify()
            except (ApiError, ClientError, TimeoutError, OSError) as error:
                self.waits_for = f"the edge cluster, which does not answer: {error}"
            await asyncio.sleep(_BACKOFF.delay_s(failures))
            failures += 1

    async def _follow_kinds(self) -> None:
        """Follow at the edge the kinds that matter, whenever these change."""
        failures, is_repeated = 0, False
        self.edge.follow(_ALWAYS, _WHOLE)
        while True:
            self._kinds_changed.clear()
            try:
                is_whole = await self._find_kinds(is_repeated=is_repeated)
                failures, wait_s = 0, None if is_whole else _LOOK_AGAIN_S
            except (ApiError, ClientError, TimeoutError, OSError) as error:
                log.info("kinds not found", reason=str(error) or type(error).__name__)
                wait_s, failures = _BACKOFF.delay_s(failures), failures + 1
            is_repeated = not failures
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._kinds_changed.wait()
                    is_repeated = False

    async def _find_kinds(self, *, is_repeated: bool) -> bool:
        """Follow what is served of them; return whether all are. `is_repeated`: nothing said that they changed."""
        state, carried = self._state, self.mailbox.carried
        if state.kinds is None:
            state.kinds = await self.edge.marked_kinds()
        found = dict(_ALWAYS)
        resources = {}
        for group, version, name in self.mailbox.edge_kinds():
            if resource := await self.edge.kinds.resource_of(group, version, name):
                resources[group, name] = resource
        self.mailbox.resolve(resources)
        is_whole = True
        for group, plural, version in kinds_to_follow(state, carried):
            kind = await self.edge.kinds.find(group, plural, version)
            if kind is None and (group, plural) not in carried.versions:
                # Nothing is wanted of it any more: whatever version there is will do.
                kind = await self.edge.kinds.find(group, plural, await self.edge.kinds.preferred(group))
            if kind is None:
                is_whole = False
            else:
                found.setdefault((group, plural), kind.resource)
        return (
            await self._follow_upsynced(found, is_repeated=is_repeated) and await self.associated.follow() and is_whole
        )

    async def _follow_upsynced(self, others: Mapping[tuple[str, str], Resource], *, is_repeated: bool) -> bool:
        """Follow what is served of the kinds that come up, and other kinds; return whether nothing can be added."""
        upsynced, is_whole = await upsynced_kinds(self.mailbox, self.edge.kinds)
        self.edge.follow({**upsynced, **others}, {*_WHOLE, *upsynced})
        for each in set(upsynced.values()) - self._searched:
            self._state.copies = {**await copies_of(self._center, each), **self._state.copies}
            self._searched.add(each)
        if not is_repeated or upsynced != self._upsynced:
            self._upsync_all()
        self._upsynced = upsynced
        return is_whole

    def _note_read(self) -> None:
        if self.mailbox.is_complete:
            self._state.read = self.mailbox.revision, self.mailbox.last_change

    async def _save(self) -> None:
        while self._options.state_file is not None:
            await asyncio.sleep(SAVE_S)
            self._note_read()
            try:
                await asyncio.to_thread(self._state.save)
            except OSError as error:
                log.warning("state not saved", reason=str(error))
