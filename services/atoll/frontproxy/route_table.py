"""The proxy's routes, which depend on the types that Workspaces and Shards are stored under.

`handler` takes them for each request. The types come from the root shard's exports and are read again whenever rows
arrive, so that a proxy that began with an empty directory serves after the first rows, and one whose root shard was
restored follows the new types.
"""

from __future__ import annotations

import msgspec

from atoll.frontproxy.gone_workspaces import GoneWorkspaces
from atoll.frontproxy.path_fallback import IdentityHeaders, PathFallback, ShardGet
from atoll.frontproxy.workspace_locator import WorkspaceLocator
from atoll.machinery.storage.contract import Snapshot, Store
from atoll.replication.root_types import RootTypes, learn_root_types


class Routes(msgspec.Struct, frozen=True):
    """Locations of workspaces: from the store, from shards for paths that the store does not know, and of those that
    are deleted."""

    locator: WorkspaceLocator
    fallback: PathFallback
    gone: GoneWorkspaces


class RouteTable:
    """The current Routes. `get` and `identity_headers` are for requests to shards."""

    def __init__(self, store: Store, get: ShardGet, identity_headers: IdentityHeaders) -> None:
        self._store, self._get, self._identity_headers = store, get, identity_headers
        self._transaction = self._count = -1
        self._types: RootTypes | None = None
        self._routes: Routes | None = None

    def at(self, snapshot: Snapshot) -> Routes | None:
        """The routes of a snapshot; None before anything of the root shard arrived."""
        if snapshot.transaction == self._transaction:
            return self._routes
        replicas = snapshot.replicas
        if replicas.count != self._count:
            self._count = replicas.count
            types = learn_root_types(replicas)
            if types is not None and types != self._types:
                locator = WorkspaceLocator(types.workspaces, types.shards)
                fallback = PathFallback(locator, self._store, self._get, self._identity_headers)
                gone = GoneWorkspaces(locator, self._store, self._get)
                self._types, self._routes = types, Routes(locator, fallback, gone)
        self._transaction = snapshot.transaction
        return self._routes

    def ready(self) -> str | None:
        """A health check: None once requests can be routed, otherwise the reason."""
        with self._store.snapshot() as snapshot:
            return None if self.at(snapshot) is not None else "nothing of the root shard has arrived yet"
