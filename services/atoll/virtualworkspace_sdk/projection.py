"""Keeps the rows of views current: watches the source objects and computes the affected rows again.

`endpoints` passes the URLs. At each URL (a shard's view of the export) an informer watches every source; once all are
synced, every row is computed, stored ones too, and then each row that a change affects. Invariant: no row is written or
removed before all sources are synced; rows converge to the state of their objects after any number of crashes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence

import structlog

from atoll.machinery.client.client import Client
from atoll.machinery.client.informer import Handler, key_of
from atoll.machinery.control.queue import WorkQueue
from atoll.machinery.control.worker import work
from atoll.machinery.meta.objects import Object
from atoll.virtualworkspace_sdk.rows import Rows
from atoll.virtualworkspace_sdk.sharing import Sharing
from atoll.virtualworkspace_sdk.source_endpoint import SourceEndpoint
from atoll.virtualworkspace_sdk.view import Key, Source, View

log = structlog.get_logger()

WORKERS = 8
#: Rows computed concurrently by `follow`; they share commits.
TOGETHER = 64
MAX_DELAY_S = 30.0

#: The number of a view and the key of one of its rows.
RowKey = tuple[int, Key]


class SourceReader:
    """Implements `view.Look` for one row, in the current state of the informers."""

    def __init__(self, endpoints: Iterable[SourceEndpoint], clusters: tuple[str, ...]) -> None:
        self._endpoints, self.clusters = endpoints, clusters

    def __call__(self, source: Source, key: Key) -> Object | None:
        if key.cluster not in self.clusters:
            raise ValueError(f"a row of {self.clusters[0]} was to be made of what is in {key.cluster}")
        found = (endpoint.informers[source].objects.get((*key,)) for endpoint in self._endpoints)
        return next((obj for obj in found if obj is not None), None)


class Projection:
    """Computes the rows of views from the objects of their sources."""

    def __init__(self, views: Sequence[tuple[View, Rows]], open_view: Callable[[str], Client]) -> None:
        """`open_view` returns a client of the export's view at a URL, for all of its clusters."""
        self._views, self._open, self._sharing = views, open_view, Sharing()
        self._sources = tuple(dict.fromkeys(source for view, _ in views for source in view.sources))
        self._queue: WorkQueue[RowKey] = WorkQueue(max_delay_s=MAX_DELAY_S)
        self._endpoints: dict[str, SourceEndpoint] = {}
        self._synced = False
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting: dict[tuple[Source, Key], list[asyncio.Event]] = {}
        #: Called with each cluster whose bindings changed.
        self.on_binding: Callable[[str], None] = lambda cluster: None
        #: Called when URLs were added or removed.
        self.on_endpoints: Callable[[], None] = lambda: None

    # --- endpoints ---

    async def follow(self, urls: Iterable[str]) -> None:
        """Watch exactly these URLs; return when they are synced and every row was computed."""
        wanted = set(urls)
        self._synced = False
        for url in [url for url in self._endpoints if url not in wanted]:
            await self._endpoints.pop(url).close()
        for url in wanted.difference(self._endpoints):
            endpoint = SourceEndpoint(self._open(url), self._sources, self._handler, self._bound)
            self._endpoints[url] = endpoint
            endpoint.start(self._fail)
            log.info("watch started", url=url)
        self.on_endpoints()
        for endpoint in tuple(self._endpoints.values()):
            await endpoint.synced()
        self._synced = True
        every = sorted({*self._stored(), *self._touched()})
        for start in range(0, len(every), TOGETHER):
            await asyncio.gather(*(self._first(row) for row in every[start : start + TOGETHER]))
        for view, rows in self._views:
            rows.completed()
            log.info("rows complete", view=view.name, rows=len(every), endpoints=len(self._endpoints))

    def _fail(self, error: BaseException) -> None:
        """Record a failed informer: without it, rows would never change again."""
        if not self._failed.done():
            self._failed.set_exception(error)

    async def close(self) -> None:
        """Stop watching."""
        while self._endpoints:
            await self._endpoints.popitem()[1].close()

    def clients(self, cluster: str = "") -> Sequence[Client]:
        """Return a client for each URL; with a cluster for its own one alone, if that is known."""
        own = [endpoint.client for endpoint in self._endpoints.values() if cluster and endpoint.has(cluster)]
        return own or [endpoint.client for endpoint in self._endpoints.values()]

    def home(self, cluster: str) -> Client | None:
        """Return the client of the shard that has a consumer; None for a workspace that does not bind the export."""
        return next((each.client for each in self._endpoints.values() if each.has(cluster)), None)

    # --- changes ---

    def _bound(self, cluster: str, name: str, binding: Object | None) -> None:
        changed = self._sharing.put(cluster, name, binding)
        self.on_binding(cluster)
        for other in changed if self._synced else ():
            for source, at, obj in self._objects(cluster):
                for number, key in self._own(source, at, obj):
                    if self._views[number][0].joins:
                        self._queue.add((number, key._replace(cluster=other)))

    def _handler(self, source: Source) -> Handler:
        def changed(old: Object | None, new: Object | None) -> None:
            if self._synced:
                for obj in (old, new):
                    for row in self._rows_of(source, obj) if obj is not None else ():
                        self._queue.add(row)
            for event in self._waiting.get((source, Key(*key_of(new or old or {}))), ()):
                event.set()

        return changed

    def _stored(self) -> Iterator[RowKey]:
        for number, (_, rows) in enumerate(self._views):
            for key in rows.each_key():
                yield number, key

    def _touched(self) -> Iterator[RowKey]:
        for source, _, obj in self._objects():
            yield from self._rows_of(source, obj)

    def _objects(self, cluster: str = "") -> Iterator[tuple[Source, Key, Object]]:
        """Yield all source objects, or those of a cluster."""
        for endpoint in tuple(self._endpoints.values()):
            for source, informer in endpoint.informers.items():
                for key, obj in tuple(informer.objects.items()):
                    if not cluster or key[0] == cluster:
                        yield source, Key(*key), obj

    def _rows_of(self, source: Source, obj: Object) -> Iterator[RowKey]:
        """Yield the rows that an object affects, in its own cluster and in those that it is shared with."""
        at = Key(*key_of(obj))
        shared = self._sharing.of(at.cluster)
        for number, key in self._own(source, at, obj):
            yield number, key
            for other in shared if self._views[number][0].joins else ():
                yield number, key._replace(cluster=other)

    def _own(self, source: Source, at: Key, obj: Object) -> Iterator[RowKey]:
        for number, (view, _) in enumerate(self._views):
            if source not in view.sources:
                continue
            try:
                keys = [key for key in view.touches(source, at, obj) if key.cluster == at.cluster]
            except Exception as error:
                log.error("finding the rows of an object failed", source=source.plural, key=str(at), error=f"{error!r}")
                continue
            for key in keys:
                yield number, key

    # --- rows ---

    def look(self, view: View, cluster: str) -> SourceReader:
        """Return what the rows of a cluster may be made of."""
        clusters = self._sharing.readable(cluster) if view.joins else (cluster,)
        return SourceReader(self._endpoints.values(), clusters)

    async def arrived(self, source: Source, key: Key, is_new: Callable[[Object | None], bool]) -> None:
        """Wait until the state of an object that a write left arrives here."""
        event = asyncio.Event()
        waiting = self._waiting.setdefault((source, key), [])
        waiting.append(event)
        try:
            while not is_new(SourceReader(self._endpoints.values(), (key.cluster,))(source, key)):
                event.clear()
                await event.wait()
        finally:
            waiting.remove(event)
            if not waiting:
                del self._waiting[source, key]

    async def run(self) -> None:
        """Compute rows until cancelled. Raises the error of a failed informer."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(WORKERS):
                tasks.create_task(work(self._views[0][0].name, self._queue, self._reconcile))
            await self._failed

    async def _first(self, row: RowKey) -> None:
        """Compute a row for the first time; a failed one goes to the workers and does not delay the others."""
        try:
            await self._reconcile(row)
        except Exception as error:
            log.warning("row failed", key=str(row[1]), error=f"{type(error).__name__}: {error}")
            self._queue.add(row, delay_s=1.0)

    async def _reconcile(self, row: RowKey) -> float | None:
        if self._synced:
            # Before that the informers are incomplete; `follow` computes every row once they are synced.
            await self.compute(*row)
        return None

    async def compute(self, number: int, key: Key) -> None:
        """Compute a row and store it. Raises the author's errors, RowRefused, and the store's."""
        view, rows = self._views[number]
        await rows.write(key, view.row(key, self.look(view, key.cluster)))
