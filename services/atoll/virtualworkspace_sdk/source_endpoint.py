"""One URL of the export's view: the consumers of one shard, their source objects and their bindings.

`projection` opens one for each URL of the endpoint slice. Invariant: `objects` holds what the shard showed last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from atoll.machinery.client.client import Client
from atoll.machinery.client.informer import Handler, Informer, key_of
from atoll.machinery.client.resource import Resource
from atoll.machinery.meta.objects import Object
from atoll.virtualworkspace_sdk.view import Source

log = structlog.get_logger()

BINDINGS = Resource("apis.kcp.io", "v1alpha2", "apibindings", namespaced=False)


class SourceEndpoint:
    """A watched URL. `followers` are tasks to run beside the informers; `failed` gets the error of any of them."""

    def __init__(
        self,
        client: Client,
        sources: Sequence[Source],
        handler: Callable[[Source], Handler],
        bound: Callable[[str, str, Object | None], None],
    ) -> None:
        self.client = client
        self.informers = {source: Informer(client, source.resource, handler(source)) for source in sources}
        self._bindings: dict[str, set[str]] = {}
        self._bound = bound
        self._binding_informer = Informer(client, BINDINGS, self._binding)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, failed: Callable[[BaseException], None]) -> None:
        """Begin to watch."""

        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                failed(error)

        for informer in (*self.informers.values(), self._binding_informer):
            task = asyncio.create_task(informer.run())
            task.add_done_callback(ended)
            self._tasks.append(task)

    async def synced(self) -> None:
        """Wait until everything at the URL is known."""
        for informer in (*self.informers.values(), self._binding_informer):
            await informer.synced.wait()

    def has(self, cluster: str) -> bool:
        """Return whether a workspace of this shard binds the export."""
        return cluster in self._bindings

    async def close(self) -> None:
        """Stop watching, and forget the bindings."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.client.close()
        for cluster, names in self._bindings.items():
            for name in names:
                self._bound(cluster, name, None)

    def _binding(self, old: Object | None, new: Object | None) -> None:
        cluster, _, name = key_of(new or old or {})
        names = self._bindings.setdefault(cluster, set())
        (names.discard if new is None else names.add)(name)
        if not names:
            del self._bindings[cluster]
        self._bound(cluster, name, new)
