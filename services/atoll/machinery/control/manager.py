"""Runs the controllers of a shard: log entries become keys, workers reconcile the keys.

One task reads the log from the saved position and passes each entry to the controllers that watch its type; each
controller has a few workers. The saved position is below every unfinished key, so a restart repeats work and never
skips any. If a key stays unfinished for long, its controller is saved by name next to a newer position: a restart then
lists the keys of that controller from state, and of all controllers if the log no longer reaches back to the position.

Changes of replicas, which other shards publish, are passed to `replicas_changed`. They are in no log of this shard: the
count of applied changes is saved while no key of a ReplicaController is unfinished, and a restart with a different
count lists the keys of these controllers.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple, Protocol

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from atoll.machinery.control.queue import MAX_DELAY_S, Requeue, WorkQueue
from atoll.machinery.control.worker import Observer, work
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.storage.contract import LogEntry, Operation, RevisionCompacted, Store

log = structlog.get_logger()

#: Names of the saved marks: the position in the log, and the count of applied changes of replicas.
POSITION_MARK, REPLICA_COUNT_MARK = "controllers", "controllers.there"
READ_LIMIT = 500
SAVE_INTERVAL_S = 1.0
FIRST_REVISION = 1
#: The revision of keys from replicas: above every revision, so that they do not hold the position back.
REPLICA_REVISION = 1 << 62
#: How far an unfinished key may hold the saved position back; revisions count microseconds.
MAX_HELD_BACK_US = 600 * 1_000_000
#: Keys listed from state between two yields to the event loop.
LIST_BATCH = 500
#: Delay after a commit notification without a log entry: the first, doubled up to the second.
EMPTY_LOG_DELAY_S, MAX_EMPTY_LOG_DELAY_S = 0.005, 0.5
MAX_TYPES = 10_000
ALL_OPERATIONS = frozenset(Operation)
#: Operations after which the object is there.
EXISTING = ALL_OPERATIONS - {Operation.DELETED}

KeysOf = Callable[[LogEntry], Iterable[Hashable]]


class Controller(ABC):
    """One controller. Keys are hashable values of its own."""

    name: str
    #: How many keys are reconciled at a time.
    workers: int
    #: Limit of the back-off of failed keys.
    max_delay_s: float = MAX_DELAY_S
    #: Delay of new keys, so that many entries with the same key cause one reconcile.
    batch_delay_s: float = 0.0
    #: Whether `all_keys` collects what `keys` needs: then it is called at every start, beside the log.
    lists_at_start: bool = False
    #: Another number than in the last run: all keys are listed once, as what stands is to be reconciled in a new way.
    version: int = 0

    @abstractmethod
    def watches(self, type: ResourceType) -> bool:
        """Report whether entries of a type concern the controller. Called once per type."""

    def operations(self, type: ResourceType) -> Collection[Operation]:
        """Return the operations that concern the controller, of a type that it watches. Called once per type.

        Entries of other operations are not passed to `keys`. By default all are.
        """
        return ALL_OPERATIONS

    def ends_with_cluster(self, type: ResourceType) -> bool:
        """Report whether entries of a type concern nothing outside their logical cluster. Called once per type.

        Those of a cluster that is deleted meanwhile are then not passed to `keys`.
        """
        return False

    @abstractmethod
    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        """Return the keys to reconcile after an entry. Cheap, and free of side effects."""

    @abstractmethod
    def all_keys(self) -> Iterable[Hashable]:
        """Return all keys, from state. Called if the log does not reach back, and by `lists_at_start`.

        None is no key: a search that finds few yields it now and then, so that it does not block the event loop.
        """

    @abstractmethod
    async def reconcile(self, key: Any) -> Requeue:
        """Reconcile the object of a key; return when to reconcile it again, or None.

        Seconds are for what is due at a time. What waits for others, and may wait for ever, returns a Backoff. It reads
        state, never events. An exception is retried with back-off.
        """


class ReplicaController(Controller):
    """A controller that also handles replicas of objects of other shards. `all_keys` includes those."""

    @abstractmethod
    def watches_replicas(self, type: ResourceType) -> bool:
        """Report whether changes of replicas of a type concern the controller. Called once per type."""

    @abstractmethod
    def keys_of_replica(self, entry: LogEntry) -> Iterable[Hashable]:
        """Return the keys to reconcile after a change of a replica. Cheap, and free of side effects.

        ADDED and DELETED also mean that the ownership of the object changed. Revisions are those of the shard of
        origin.
        """


class Positions(Protocol):
    """The storage of the manager's position; written lazily."""

    def get_mark(self, name: str) -> bytes | None: ...

    def set_mark(self, name: str, value: bytes) -> None: ...


class ControllerMetrics:
    """Metrics workqueue_*, by Kubernetes' names."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._depth = Gauge("workqueue_depth", "Keys waiting.", ("name",), registry=registry)
        self._retries = Counter("workqueue_retries_total", "Reconciles that failed.", ("name",), registry=registry)
        self._durations = Histogram(
            "workqueue_work_duration_seconds", "Time a reconcile took.", ("name",), registry=registry
        )

    def observer(self, name: str, queue: WorkQueue[Hashable]) -> Observer:
        """Return the observer of the workers of a controller; the gauge of the depth reads the queue on each scrape."""
        self._depth.labels(name).set_function(lambda: queue.depth)
        retries, durations = self._retries.labels(name), self._durations.labels(name)

        def observe(seconds: float, *, failed: bool) -> None:
            durations.observe(seconds)
            if failed:
                retries.inc()

        return observe


class _Watcher(NamedTuple):
    """Where the keys of an entry go: the queue of one controller."""

    name: str
    queue: WorkQueue[Hashable]
    keys: KeysOf
    batch_delay_s: float


class _Watching(NamedTuple):
    """The watchers of a type by operation: all, and those that entries of a deleted cluster concern too."""

    all: dict[Operation, tuple[_Watcher, ...]]
    lasting: dict[Operation, tuple[_Watcher, ...]]


class Manager:
    """The controllers of one shard. `run` ends when cancelled, or with the error of the store."""

    def __init__(
        self, store: Store, positions: Positions, controllers: Sequence[Controller], metrics: ControllerMetrics
    ) -> None:
        self._store, self._positions, self._metrics = store, positions, metrics
        self._controllers = tuple(controllers)
        self._queues: dict[str, WorkQueue[Hashable]] = {
            c.name: WorkQueue(max_delay_s=c.max_delay_s) for c in controllers
        }
        #: Controllers whose keys are being listed: their unfinished keys are not yet in the queue.
        self._listing: set[str] = set()
        #: Controllers whose keys were listed since the start.
        self._listed: set[str] = set()
        #: Whether every key from before the start was added.
        self.synced = False
        self._watchers: dict[ResourceType, _Watching] = {}
        self._position = 0
        self._replica_controllers = tuple(
            controller for controller in self._controllers if isinstance(controller, ReplicaController)
        )
        self._replica_watchers: dict[ResourceType, tuple[_Watcher, ...]] = {}
        #: Changes of replicas up to this count are dispatched.
        self._replica_count = 0

    async def run(self) -> None:
        """Dispatch and reconcile until cancelled; the position is saved at the end."""
        await self._start()
        self.synced = True
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._dispatch())
                tasks.create_task(self._save())
                tasks.create_task(self._list_at_start())
                for controller in self._controllers:
                    queue = self._queues[controller.name]
                    observer = self._metrics.observer(controller.name, queue)
                    for _ in range(controller.workers):
                        worker = work(controller.name, queue, controller.reconcile, observer, tasks.create_task)
                        tasks.create_task(worker)
        finally:
            self._save_now()

    def idle(self) -> bool:
        """Report whether everything up to the last commit is dispatched and reconciled."""
        with self._store.snapshot() as snapshot:
            dispatched = self._position >= snapshot.revision and not self._listing
        return dispatched and not any(self._queues.values())

    def safe_point(self) -> tuple[int, tuple[str, ...]]:
        """Return the revision from which the log is complete, and the controllers whose keys must be listed."""
        floor = self._position - MAX_HELD_BACK_US
        position, lagging = self._position, set(self._listing)
        for name, queue in self._queues.items():
            oldest = queue.oldest()
            if oldest is not None and oldest - 1 < floor:
                lagging.add(name)
            elif oldest is not None:
                position = min(position, oldest - 1)
        return position, tuple(sorted(lagging))

    def wants_replicas(self, type: ResourceType) -> bool:
        """Report whether a controller handles replicas of a type."""
        return bool(self._watching_replicas(type))

    def replicas_changed(self, entries: Iterable[LogEntry], count: int) -> None:
        """Dispatch changes of replicas; with them all changes up to the store's apply count are dispatched."""
        for entry in entries:
            _enqueue(self._watching_replicas(entry.key.type), entry, REPLICA_REVISION)
        self._replica_count = max(self._replica_count, count)

    async def _start(self) -> None:
        await self._restore_position()
        if not self._replica_controllers:
            return
        with self._store.snapshot() as snapshot:
            count = snapshot.replicas.count
        if int(self._positions.get_mark(REPLICA_COUNT_MARK) or b"-1") != count:
            await self._list(self._replica_controllers)
        self._replica_count = max(self._replica_count, count)

    async def _restore_position(self) -> None:
        saved = self._positions.get_mark(POSITION_MARK)
        if saved is None:
            await self._resync()
            return
        position, *lagging = saved.decode().split()
        self._position = int(position)
        missed = [c.name for c in self._controllers if c.version and _versioned(c) not in lagging]
        try:
            self._store.tail(self._position, 1)
        except RevisionCompacted:
            await self._resync()
        else:
            await self._list([each for each in self._controllers if each.name in (*lagging, *missed)])

    async def _resync(self) -> None:
        """Continue from the current revision, with all keys of all controllers."""
        with self._store.snapshot() as snapshot:
            self._position = snapshot.revision
        await self._list(self._controllers)

    async def _list_at_start(self) -> None:
        """List for controllers that need it at every start. An entry that is dispatched meanwhile and yields no key yet
        is no loss: its object is listed later, as it is then."""
        await self._list([each for each in self._controllers if each.lists_at_start and each.name not in self._listed])

    async def _list(self, controllers: Sequence[Controller]) -> None:
        """Add all keys of some controllers.

        The log may no longer hold the entries of these keys. They are added at the first possible revision, so that a
        restart before all are reconciled lists them again. The read transaction stays open between the batches and pins
        pages for that time; it is the price of one pass over one state.
        """
        self._listing |= {controller.name for controller in controllers}
        for controller in controllers:
            log.debug("controller lists all keys from state", controller=controller.name, revision=self._position)
            queue, keys = self._queues[controller.name], iter(controller.all_keys())
            while batch := list(islice(keys, LIST_BATCH)):
                for key in batch:
                    if key is not None:
                        queue.add(key, FIRST_REVISION)
                await asyncio.sleep(0)
            self._listing.discard(controller.name)
            self._listed.add(controller.name)

    async def _dispatch(self) -> None:
        delay_s = 0.0
        while True:
            try:
                entries = self._store.tail(self._position, READ_LIMIT)
            except RevisionCompacted:
                await self._resync()
                continue
            ends = _ends_of_clusters(entries) if len(entries) > 1 else {}
            for entry in entries:
                watching = self._watchers.get(entry.key.type) or self._watching(entry.key.type)
                is_over = bool(ends) and entry.revision <= ends.get(entry.key.cluster, 0)
                _enqueue((watching.lasting if is_over else watching.all)[entry.operation], entry, entry.revision)
                self._position = entry.revision
            if entries:
                delay_s = 0.0
            elif delay_s:
                # A commit was announced and the log does not contain it yet: an immediate read would loop.
                await asyncio.sleep(delay_s)
            if len(entries) < READ_LIMIT:
                await self._store.committed(self._position)
                delay_s = min(max(delay_s * 2, EMPTY_LOG_DELAY_S), MAX_EMPTY_LOG_DELAY_S)
            else:
                await asyncio.sleep(0)

    def _watching(self, type: ResourceType) -> _Watching:
        if len(self._watchers) >= MAX_TYPES:
            self._watchers.clear()
        concerned = [controller for controller in self._controllers if controller.watches(type)]
        lasting = [controller for controller in concerned if not controller.ends_with_cluster(type)]
        found = _Watching(self._by_operation(type, concerned), self._by_operation(type, lasting))
        self._watchers[type] = found
        return found

    def _by_operation(
        self, type: ResourceType, concerned: Sequence[Controller]
    ) -> dict[Operation, tuple[_Watcher, ...]]:
        watchers = [(each.operations(type), self._watcher(each, each.keys)) for each in concerned]
        return {
            operation: tuple(watcher for operations, watcher in watchers if operation in operations)
            for operation in Operation
        }

    def _watching_replicas(self, type: ResourceType) -> tuple[_Watcher, ...]:
        found = self._replica_watchers.get(type)
        if found is None:
            if len(self._replica_watchers) >= MAX_TYPES:
                self._replica_watchers.clear()
            found = tuple(
                self._watcher(controller, controller.keys_of_replica)
                for controller in self._replica_controllers
                if controller.watches_replicas(type)
            )
            self._replica_watchers[type] = found
        return found

    def _watcher(self, controller: Controller, keys: KeysOf) -> _Watcher:
        return _Watcher(controller.name, self._queues[controller.name], keys, controller.batch_delay_s)

    async def _save(self) -> None:
        """Save the position at intervals: an older position costs repeated work, not a loss."""
        while True:
            await asyncio.sleep(SAVE_INTERVAL_S)
            self._save_now()

    def _save_now(self) -> None:
        position, lagging = self.safe_point()
        # A controller that is being listed is lagging, whatever its version.
        versions = [_versioned(controller) for controller in self._controllers if controller.version]
        value = " ".join([str(position), *lagging, *versions]).encode()
        if self._positions.get_mark(POSITION_MARK) != value:
            self._positions.set_mark(POSITION_MARK, value)
        if any(
            self._queues[controller.name] or controller.name in self._listing
            for controller in self._replica_controllers
        ):
            return
        count = str(self._replica_count).encode()
        if self._replica_controllers and self._positions.get_mark(REPLICA_COUNT_MARK) != count:
            self._positions.set_mark(REPLICA_COUNT_MARK, count)


def _ends_of_clusters(entries: Iterable[LogEntry]) -> dict[str, int]:
    """Return the logical clusters that some entries end, with the revisions at which they do."""
    return {
        entry.key.cluster: entry.revision
        for entry in entries
        if entry.operation is Operation.DELETED and entry.key.type == LOGICAL_CLUSTERS
    }


def _enqueue(watchers: Iterable[_Watcher], entry: LogEntry, revision: int) -> None:
    """Add the keys of an entry to the queue of each watcher."""
    for watcher in watchers:
        try:
            for key in watcher.keys(entry):
                watcher.queue.add(key, revision, watcher.batch_delay_s)
        except Exception:
            # One malformed object must not stop all controllers: the entry would be read again after each restart.
            log.exception("controller failed on a log entry", controller=watcher.name, revision=entry.revision)


def _versioned(controller: Controller) -> str:
    return f"{controller.name}={controller.version}"
