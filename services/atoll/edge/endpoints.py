"""Follows URLs that a status names, one for each shard, with a task for each URL.

`export_view` and `initializer` use it. Invariant: at most one task runs for a URL; a URL that is gone has none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from atoll.machinery.client.client import WILDCARD, Client
from atoll.machinery.client.informer import Informer
from atoll.machinery.client.resource import Resource
from atoll.machinery.meta.objects import Object


class Endpoints:
    """Watches one object by name; `serve` is called with a client of each new URL, and what it returns is run.

    A URL that comes back is served with the same client.
    """

    def __init__(
        self,
        home: Client,
        watched: tuple[Resource, str],
        urls: Callable[[Object], set[str]],
        serve: Callable[[Client], Coroutine[Any, Any, None]],
    ) -> None:
        resource, name = watched
        self._home, self._urls, self._serve = home, urls, serve
        self._informer = Informer(home, resource, self._changed, fieldSelector=f"metadata.name={name}")
        self._moved = asyncio.Event()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        #: By URL, kept while a URL is gone, as it may come back.
        self._clients: dict[str, Client] = {}
        #: Set once the first URLs are served.
        self.applied = asyncio.Event()

    def _changed(self, old: Object | None, new: Object | None) -> None:
        self._moved.set()

    async def run(self) -> None:
        """Follow until cancelled. Raises what a task raises."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._informer.run())
                await self._informer.synced.wait()
                while True:
                    self._moved.clear()
                    await self._apply(tasks)
                    self.applied.set()
                    await self._moved.wait()
        finally:
            for client in self._clients.values():
                await client.close()

    def served(self) -> list[Client]:
        """The clients of the URLs that are there now."""
        return [self._clients[url] for url in self._tasks]

    async def _apply(self, tasks: asyncio.TaskGroup) -> None:
        urls = {url for each in self._informer.objects.values() for url in self._urls(each)}
        gone = [self._tasks.pop(url) for url in self._tasks.keys() - urls]
        for task in gone:
            task.cancel()
        await asyncio.gather(*gone, return_exceptions=True)
        for url in sorted(urls - self._tasks.keys()):
            if url not in self._clients:
                self._clients[url] = self._home.view(url, WILDCARD)
            self._tasks[url] = tasks.create_task(self._serve(self._clients[url]))
