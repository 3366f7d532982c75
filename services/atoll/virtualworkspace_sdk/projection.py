"""Keeps the rows what they should be: watches what they are made of, and makes those again that a change touches.

`endpoints` says where to watch. Each place (a shard's URL of the export's view) is watched for every source by an
informer; once all of them know the whole state, every row is looked at, those on disk as well, and then each that a
change touches. Invariant: no row is written or removed on half a state; a row converges to what its objects say however
often the process dies between.
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
#: Rows made together at first, which share commits.
TOGETHER = 64
MAX_DELAY_S = 30.0


class _Place(msgspec.Struct, frozen=True):
    """One URL that is watched."""

    client: Client
    informers: dict[Source, Informer]
    tasks: list[asyncio.Task[None]]


class Projection:
    """The rows of a view from the objects of its sources."""

    def __init__(self, view: View, rows: Rows, open_view: Callable[[str], Client]) -> None:
        """`open_view` gives a client of the export's view at a URL, looking at all of its clusters."""
        self._view, self._rows, self._open = view, rows, open_view
        self._queue: WorkQueue[Key] = WorkQueue(max_delay_s=MAX_DELAY_S)
        self._places: dict[str, _Place] = {}
        self._whole = False
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # --- where ---

    async def follow(self, urls: Iterable[str]) -> None:
        """Watch these places and no others; returns when their state is whole and every row was looked at."""
        wanted = set(urls)
        self._whole = False
        for url in [url for url in self._places if url not in wanted]:
            await self._leave(self._places.pop(url))
        for url in wanted.difference(self._places):
            self._places[url] = self._enter(url)
        for place in tuple(self._places.values()):
            for informer in place.informers.values():
                await informer.synced.wait()
        self._whole = True
        every = sorted({*self._rows.keys(), *self._touched()})
        for start in range(0, len(every), TOGETHER):
            await asyncio.gather(*(self._first(key) for key in every[start : start + TOGETHER]))
        self._rows.completed()
        log.info("rows are whole", view=self._view.name, rows=len(every), places=len(self._places))

    def _enter(self, url: str) -> _Place:
        client = self._open(url)
        informers = {source: Informer(client, source.resource, self._handler(source)) for source in self._view.sources}
        tasks = [asyncio.create_task(informer.run()) for informer in informers.values()]
        for task in tasks:
            task.add_done_callback(self._ended)
        log.info("watching", url=url)
        return _Place(client, informers, tasks)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """An informer ends by being cancelled; without one that failed, rows would be left as they are for ever."""
        if not task.cancelled() and (error := task.exception()) is not None and not self._failed.done():
            self._failed.set_exception(error)

    async def _leave(self, place: _Place) -> None:
        for task in place.tasks:
            task.cancel()
        await asyncio.gather(*place.tasks, return_exceptions=True)
        await place.client.close()

    async def close(self) -> None:
        """Stop watching."""
        while self._places:
            await self._leave(self._places.popitem()[1])

    def clients(self) -> Sequence[Client]:
        """A client of each place."""
        return [place.client for place in self._places.values()]

    # --- what ---

    def _handler(self, source: Source) -> Callable[[Object | None, Object | None], None]:
        def changed(old: Object | None, new: Object | None) -> None:
            if self._whole:
                for obj in (old, new):
                    for key in self._keys(source, obj) if obj is not None else ():
                        self._queue.add(key)

        return changed

    def _touched(self) -> Iterable[Key]:
        for place in self._places.values():
            for source, informer in place.informers.items():
                for obj in tuple(informer.objects.values()):
                    yield from self._keys(source, obj)

    def _keys(self, source: Source, obj: Object) -> list[Key]:
        """The rows that an object has a part in, none of another cluster."""
        at = Key(*key_of(obj))
        try:
            return [key for key in self._view.touches(source, at, obj) if key.cluster == at.cluster]
        except Exception as error:
            log.error("an object cannot be placed", source=source.plural, key=str(at), error=f"{error!r}")
            return []

    def _look(self, cluster: str) -> Look:
        def look(source: Source, key: Key) -> Object | None:
            if key.cluster != cluster:
                raise ValueError(f"a row of {cluster} was to be made of what is in {key.cluster}")
            found = (place.informers[source].objects.get((*key,)) for place in self._places.values())
            return next((obj for obj in found if obj is not None), None)

        return look

    async def run(self) -> None:
        """Make rows until cancelled. Raises what ended an informer."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(WORKERS):
                tasks.create_task(work(self._view.name, self._queue, self._reconcile))
            await self._failed

    async def _first(self, key: Key) -> None:
        """Make a row for the first time; one that fails is left to the workers and keeps nobody waiting."""
        try:
            await self._reconcile(key)
        except Exception as error:
            log.warning("row failed", key=str(key), error=f"{type(error).__name__}: {error}")
            self._queue.add(key, delay_s=1.0)

    async def _reconcile(self, key: Key) -> float | None:
        if self._whole:
            # Half a state says nothing; when it is whole, every row is looked at.
            await self._rows.write(key, self._view.row(key, self._look(key.cluster)))
        return None
