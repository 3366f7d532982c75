"""Runs a shard's controllers: log entries become keys, keys become reconciles.

One task reads the log behind the saved position and hands each entry to the controllers that watch its type; a few
workers a controller take keys. The position saved is below everything unfinished, so a restart repeats and never
skips. When the log no longer reaches back that far, every controller lists its keys from state instead.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Protocol

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from atoll.machinery.control.queue import WorkQueue
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.storage.contract import Compacted, LogEntry, Store

log = structlog.get_logger()

POSITION = "controllers"
READ_LIMIT = 500
SAVE_INTERVAL_S = 1.0


class Controller(Protocol):
    """One controller. Keys are hashable values of its own."""

    name: str
    workers: int

    def watches(self, type: ResourceType) -> bool:
        """Whether entries of a type concern it. Asked once a type."""

    def keys(self, entry: LogEntry) -> Iterable[Hashable]:
        """What an entry asks to be reconciled. Cheap, and free of side effects."""

    def all_keys(self) -> Iterable[Hashable]:
        """Everything there is to reconcile, from state. Used when the log does not reach back."""

    async def reconcile(self, key: Any) -> float | None:
        """Bring what the key stands for closer to what it should be; seconds until another look, or None.

        Reads state, never events; an exception means another turn, later.
        """


class Positions(Protocol):
    """Where the manager keeps its position; written lazily."""

    def get_mark(self, name: str) -> bytes | None: ...

    def set_mark(self, name: str, value: bytes) -> None: ...


class ControllerMetrics:
    """workqueue_* metrics, by Kubernetes' names."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.depth = Gauge("workqueue_depth", "Keys waiting.", ("name",), registry=registry)
        self.retries = Counter("workqueue_retries_total", "Reconciles that failed.", ("name",), registry=registry)
        self.durations = Histogram(
            "workqueue_work_duration_seconds", "Time a reconcile took.", ("name",), registry=registry
        )


class Manager:
    """The controllers of one shard. `run` ends when cancelled."""

    def __init__(
        self, store: Store, positions: Positions, controllers: Sequence[Controller], metrics: ControllerMetrics
    ) -> None:
        self._store, self._positions, self._metrics = store, positions, metrics
        self._controllers = tuple(controllers)
        self._queues: dict[str, WorkQueue[Hashable]] = {c.name: WorkQueue(time.monotonic) for c in controllers}
        self._interested: dict[ResourceType, tuple[Controller, ...]] = {}
        self._position = 0

    async def run(self) -> None:
        """Dispatch and reconcile until cancelled."""
        self._begin()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._dispatch())
            tasks.create_task(self._save())
            for controller in self._controllers:
                for _ in range(controller.workers):
                    tasks.create_task(self._work(controller))

    def idle(self) -> bool:
        """Whether everything up to the last commit was dispatched and reconciled."""
        with self._store.snapshot() as snapshot:
            return self._position >= snapshot.revision and not any(self._queues.values())

    def _begin(self) -> None:
        saved = self._positions.get_mark(POSITION)
        try:
            if saved is None:
                raise Compacted(0, 0)
            self._position = int(saved)
            self._store.tail(self._position, 1)
        except Compacted:
            self._resync()

    def _resync(self) -> None:
        with self._store.snapshot() as snapshot:
            self._position = snapshot.revision
        log.info("controllers list their keys from state", revision=self._position)
        for controller in self._controllers:
            for key in controller.all_keys():
                self._queues[controller.name].add(key, self._position)

    async def _dispatch(self) -> None:
        while True:
            try:
                entries = self._store.tail(self._position, READ_LIMIT)
            except Compacted:
                self._resync()
                continue
            for entry in entries:
                self._hand_out(entry)
                self._position = entry.revision
            if len(entries) < READ_LIMIT:
                await self._store.committed(self._position)
            else:
                await asyncio.sleep(0)

    def _hand_out(self, entry: LogEntry) -> None:
        type = entry.key.type
        interested = self._interested.get(type)
        if interested is None:
            interested = tuple(c for c in self._controllers if c.watches(type))
            self._interested[type] = interested
        for controller in interested:
            for key in controller.keys(entry):
                self._queues[controller.name].add(key, entry.revision)

    async def _work(self, controller: Controller) -> None:
        queue = self._queues[controller.name]
        while True:
            key, _ = await queue.take()
            self._metrics.depth.labels(controller.name).set(len(queue))
            started = time.monotonic()
            try:
                again_s = await controller.reconcile(key)
            except Exception as error:
                delay = queue.failed(key)
                self._metrics.retries.labels(controller.name).inc()
                log.warning(
                    "reconcile failed", controller=controller.name, key=str(key), again_s=round(delay, 3),
                    error=f"{type(error).__name__}: {error}",
                )  # fmt: skip
            else:
                queue.done(key, again_s)
            self._metrics.durations.labels(controller.name).observe(time.monotonic() - started)

    async def _save(self) -> None:
        """Save the position lazily: below everything unfinished."""
        saved = -1
        while True:
            await asyncio.sleep(SAVE_INTERVAL_S)
            safe = self.safe_position()
            if safe != saved:
                self._positions.set_mark(POSITION, b"%d" % safe)
                saved = safe

    def safe_position(self) -> int:
        """The revision from which reading the log again misses nothing."""
        waiting = [oldest for queue in self._queues.values() if (oldest := queue.oldest()) is not None]
        return min([self._position, *(revision - 1 for revision in waiting)])


