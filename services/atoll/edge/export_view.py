"""The export's view on every shard: control objects of all workspaces that bind the edge service, kept current.

Each controller has one, with its own account. It follows the URLs in the export's endpoint slice and watches its kinds
at each. Invariants: until every kind at every URL was complete once, `complete` is unset and nobody acts; an object is
gone only if its shard says so: one whose shard is not reached, or has no URL for a time, stays as it was seen last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from atoll.edge.endpoints import Endpoints
from atoll.edge.kinds import BINDINGS, ENDPOINT_SLICES
from atoll.machinery.client.client import Client
from atoll.machinery.client.informer import Handler, Head, Informer, Keep, Parts, head, key_of, unmanaged
from atoll.machinery.client.resource import Resource
from atoll.machinery.meta.objects import Object, status_of
from atoll.machinery.process.backoff import Backoff

#: When to look again at what waits for a workspace that was not read.
UNREAD = Backoff(1.0, 600.0)

#: Called with the resource, the old object (None: new) and the new one (None: gone).
Changed = Callable[[Resource, Object | None, Object | None], None]
#: Further work at each URL, for as long as it is served.
Beside = Callable[[Client], Coroutine[Any, Any, None]]


class ExportView:
    """Control objects of some kinds, and clients of the workspaces that hold them.

    `changed` is called on each change of these kinds, and of bindings to the export. Objects are without their
    managedFields; of bindings there are key and revision alone, and of the kinds in `keep`, which have spec and status
    beside their metadata, what that returns.
    """

    def __init__(
        self,
        home: Client,
        export: str,
        kinds: Sequence[Resource],
        changed: Changed,
        beside: Beside | None = None,
        keep: Mapping[Resource, Keep] | None = None,
    ) -> None:
        self._kinds, self._changed, self._beside = kinds, changed, beside
        self._keep = {BINDINGS: head, **(keep or {})}
        self._endpoints = Endpoints(home, (ENDPOINT_SLICES, export), _urls, self._serve)
        self._informers: dict[Client, dict[Resource, Informer]] = {}
        #: Logical cluster -> binding -> client of its shard.
        self._clients: dict[str, dict[str, Client]] = {}
        #: Logical cluster -> client of the shard that showed an object of it.
        self._shard_clients: dict[str, Client] = {}
        self.complete = asyncio.Event()

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._endpoints.run())
            await self._endpoints.applied.wait()
            for informers in list(self._informers.values()):
                for informer in informers.values():
                    await informer.synced.wait()
            self.complete.set()

    def client(self, cluster: str) -> Client | None:
        """Return a client of a workspace through the view; None while none of its bindings is known."""
        found = self._clients.get(cluster)
        return next(iter(found.values())).cluster(cluster) if found else None

    def has_read(self, cluster: str) -> bool:
        """Whether what is not here of a workspace is not there: its shard showed all objects, and some of it."""
        client = self._shard_clients.get(cluster)
        return client is not None and all(each.synced.is_set() for each in self._informers[client].values())

    def shard_of(self, cluster: str) -> Client | None:
        """Return the client of the shard that showed something of a workspace."""
        return self._shard_clients.get(cluster)

    def is_nowhere(self, cluster: str) -> bool:
        """Whether all shards with a URL showed all they have, and nothing of a workspace, since the start."""
        informers = [each for found in self._informers.values() for each in found.values()]
        is_whole = self.complete.is_set() and all(each.synced.is_set() for each in informers)
        return is_whole and cluster not in self._shard_clients

    @property
    def interruption(self) -> str:
        """Why not everything is seen now; empty if it is. A shard whose URL is gone does not count."""
        if not self.complete.is_set():
            return "not everything was seen yet"
        followed = (each for client in self._endpoints.served() for each in self._informers[client].values())
        return next((each.interruption for each in followed if each.interruption), "")

    def _serve(self, client: Client) -> Coroutine[Any, Any, None]:
        if client not in self._informers:
            self._informers[client] = {kind: self._informer(kind, client) for kind in (BINDINGS, *self._kinds)}
        return self._watch(client, self._informers[client])

    async def _watch(self, client: Client, informers: dict[Resource, Informer]) -> None:
        """Watch at one URL until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for informer in informers.values():
                tasks.create_task(informer.run())
            if self._beside is not None:
                tasks.create_task(self._beside(client))

    def _informer(self, kind: Resource, client: Client) -> Informer:
        keep = self._keep.get(kind)
        if keep is None:
            return Informer(client, kind, self._handler(kind, client), unmanaged)
        reduced = client.reduced(Head if keep is head else Parts)
        return Informer(reduced, kind, self._handler(kind, client), keep)

    def _handler(self, kind: Resource, client: Client) -> Handler:
        return lambda old, new: self._seen(kind, client, old, new)

    def _seen(self, kind: Resource, client: Client, old: Object | None, new: Object | None) -> None:
        self._shard_clients[key_of(new or old or {})[0]] = client
        if kind == BINDINGS:
            self._bound(client, old, new)
        self._changed(kind, old, new)

    def _bound(self, client: Client, old: Object | None, new: Object | None) -> None:
        cluster, _, name = key_of(new or old or {})
        found = self._clients.setdefault(cluster, {})
        if new is None:
            found.pop(name, None)
        else:
            found[name] = client
        if not found:
            del self._clients[cluster]


def _urls(slice: Object) -> set[str]:
    return {end["url"] for end in status_of(slice).get("endpoints") or ()}
