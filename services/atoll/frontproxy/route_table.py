"""The routes of a proxy once it knows what Workspaces are stored under, which root's exports tell.

`doors` asks for each request. The types are looked at again whenever anything arrived, so that a proxy that began with
an empty directory serves with the first rows, and one whose root was restored goes by the new ones.
"""

from __future__ import annotations

import msgspec

from atoll.frontproxy.path_fallback import IdentityHeaders, PathFallback, ShardGet
from atoll.frontproxy.workspace_locator import WorkspaceLocator
from atoll.machinery.storage.contract import Snapshot, Store
from atoll.replication.rows import Types, learned


class Routes(msgspec.Struct, frozen=True):
    """WorkspaceLocator, and who is asked for what they do not know."""

    routes: WorkspaceLocator
    misses: PathFallback


class RouteTable:
    """Makes them. `ask` and `says` are for `PathFallback`."""

    def __init__(self, store: Store, ask: ShardGet, says: IdentityHeaders) -> None:
        self._store, self._ask, self._says = store, ask, says
        self._count = -1
        self._types: Types | None = None
        self._way: Routes | None = None

    def of(self, snapshot: Snapshot) -> Routes | None:
        """The routes of a snapshot; None while nothing of root has arrived yet."""
        there = snapshot.there
        if there.count != self._count:
            self._count = there.count
            types = learned(there)
            if types is not None and types != self._types:
                routes = WorkspaceLocator(types.workspaces, types.shards)
                self._types, self._way = types, Routes(routes, PathFallback(routes, self._store, self._ask, self._says))
        return self._way

    def ready(self) -> str | None:
        """A health check: whether anything can be routed."""
        with self._store.snapshot() as snapshot:
            return None if self.of(snapshot) is not None else "nothing of the root shard has arrived yet"
