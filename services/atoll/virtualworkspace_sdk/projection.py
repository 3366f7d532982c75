"""Keeps the rows of a view current: watches the source objects and computes the affected rows again.

`endpoints` passes the URLs. At each URL (a shard's view of the export) an informer watches every source; once all are
synced, every row is computed, stored ones too, and then each row that a change affects. Invariant: no row is written or
removed before all sources are synced; rows converge to the state of their objects after any number of crashes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

import msgspec
import structlog

from atoll.machinery.client.client import Client
from atoll.machinery.client.informer import Informer, key_of
from atoll.machinery.control.queue import WorkQueue
from atoll.machinery.control.worker import work
from atoll.machinery.meta.objects import Object
from atoll.virtualworkspace_sdk.rows import Rows
from atoll.virtualworkspace_sdk.view import Key, Look, Source, View

log = structlog.get_logger()

WORKERS = 8
#: Rows computed concurrently by `follow`; they share commits.
TOGETHER = 64
MAX_DELAY_S = 30.0


class _WatchedEndpoint(msgspec.Struct, frozen=True):
    """One watched URL."""

    client: Client
    informers: dict[Source, Informer]
    tasks: list[asyncio.Task[None]]


class Projection:
    """Computes the rows of a view from the objects of its sources."""

    def __init__(self, view: View, rows: Rows, open_view: Callable[[str], Client]) -> None:
        """`open_view` returns a client of the export's view at a URL, for all of its clusters."""
        self._view, self._rows, self._open = view, rows, open_view
        self._queue: WorkQueue[Key] = WorkQueue(max_delay_s=MAX_DELAY_S)
        self._endpoints: dict[str, _WatchedEndpoint] = {}
        self._synced = False
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # --- endpoints ---

    async def follow(self, urls: Iterable[str]) -> None:
        """Watch exactly these URLs; return when they are synced and every row was computed."""
        wanted = set(urls)
        self._synced = False
        for url in [url for url in self._endpoints if url not in wanted]:
            await self._leave(self._endpoints.pop(url))
        for url in wanted.difference(self._endpoints):
            self._endpoints[url] = self._enter(url)
        for endpoint in tuple(self._endpoints.values()):
            for informer in endpoint.informers.values():
                await informer.synced.wait()
        self._synced = True
        every = sorted({*self._rows.keys(), *self._touched()})
        for start in range(0, len(every), TOGETHER):
            await asyncio.gather(*(self._first(key) for key in every[start : start + TOGETHER]))
        self._rows.completed()
        log.info("rows complete", view=self._view.name, rows=len(every), endpoints=len(self._endpoints))

    def _enter(self, url: str) -> _WatchedEndpoint:
        client = self._open(url)
        informers = {source: Informer(client, source.resource, self._handler(source)) for source in self._view.sources}
        tasks = [asyncio.create_task(informer.run()) for informer in informers.values()]
        for task in tasks:
            task.add_done_callback(self._ended)
        log.info("watch started", url=url)
        return _WatchedEndpoint(client, informers, tasks)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Record a failed informer: without it, rows would never change again."""
        if not task.cancelled() and (error := task.exception()) is not None and not self._failed.done():
            self._failed.set_exception(error)

    async def _leave(self, endpoint: _WatchedEndpoint) -> None:
        for task in endpoint.tasks:
            task.cancel()
        await asyncio.gather(*endpoint.tasks, return_exceptions=True)
        await endpoint.client.close()

    async def close(self) -> None:
        """Stop watching."""
        while self._endpoints:
            await self._leave(self._endpoints.popitem()[1])

    def clients(self) -> Sequence[Client]:
        """Return a client for each URL."""
        return [endpoint.client for endpoint in self._endpoints.values()]

    # --- rows ---

    def _handler(self, source: Source) -> Callable[[Object | None, Object | None], None]:
        def changed(old: Object | None, new: Object | None) -> None:
            if self._synced:
                for obj in (old, new):
                    for key in self._keys(source, obj) if obj is not None else ():
                        self._queue.add(key)

        return changed

    def _touched(self) -> Iterable[Key]:
        for endpoint in self._endpoints.values():
            for source, informer in endpoint.informers.items():
                for obj in tuple(informer.objects.values()):
                    yield from self._keys(source, obj)

    def _keys(self, source: Source, obj: Object) -> list[Key]:
        """Return the rows that an object affects, within its own cluster."""
        at = Key(*key_of(obj))
        try:
            return [key for key in self._view.touches(source, at, obj) if key.cluster == at.cluster]
        except Exception as error:
            log.error("finding the rows of an object failed", source=source.plural, key=str(at), error=f"{error!r}")
            return []

    def _look(self, cluster: str) -> Look:
        def look(source: Source, key: Key) -> Object | None:
            if key.cluster != cluster:
                raise ValueError(f"a row of {cluster} was to be made of what is in {key.cluster}")
            found = (endpoint.informers[source].objects.get((*key,)) for endpoint in self._endpoints.values())
            return next((obj for obj in found if obj is not None), None)

        return look

    async def run(self) -> None:
        """Compute rows until cancelled. Raises the error of a failed informer."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(WORKERS):
                tasks.create_task(work(self._view.name, self._queue, self._reconcile))
            await self._failed

    async def _first(self, key: Key) -> None:
        """Compute a row for the first time; a failed one goes to the workers and does not delay the others."""
        try:
            await self._reconcile(key)
        except Exception as error:
            log.warning("row failed", key=str(key), error=f"{type(error).__name__}: {error}")
            self._queue.add(key, delay_s=1.0)

    async def _reconcile(self, key: Key) -> float | None:
        if self._synced:
            # Before that the informers are incomplete; `follow` computes every row once they are synced.
            await self._rows.write(key, self._view.row(key, self._look(key.cluster)))
        return None
