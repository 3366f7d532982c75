"""The routes of a proxy once it knows what Workspaces are stored under, which root's exports tell.

`doors` asks for each request. The types are looked at again whenever anything arrived, so that a proxy that began with
an empty directory serves with the first rows, and one whose root was restored goes by the new ones.
"""

from __future__ import annotations

import msgspec

from atoll.frontproxy.misses import Ask, Misses, Says
from atoll.frontproxy.routing import Routes
from atoll.machinery.storage.contract import Snapshot, Store
from atoll.replication.ownership_rows import RootTypes, learn_root_types


class Way(msgspec.Struct, frozen=True):
    """Routes, and who is asked for what they do not know."""

    routes: Routes
    misses: Misses


class Ways:
    """Makes them. `ask` and `says` are for `Misses`."""

    def __init__(self, store: Store, ask: Ask, says: Says) -> None:
        self._store, self._ask, self._says = store, ask, says
        self._count = -1
        self._types: RootTypes | None = None
        self._way: Way | None = None

    def of(self, snapshot: Snapshot) -> Way | None:
        """The routes of a snapshot; None while nothing of root has arrived yet."""
        replicas = snapshot.replicas
        if replicas.count != self._count:
            self._count = replicas.count
            types = learn_root_types(replicas)
            if types is not None and types != self._types:
                routes = Routes(types.workspaces, types.shards)
                self._types, self._way = types, Way(routes, Misses(routes, self._store, self._ask, self._says))
        return self._way

    def ready(self) -> str | None:
        """A health check: whether anything can be routed."""
        with self._store.snapshot() as snapshot:
            return None if self.of(snapshot) is not None else "nothing of the root shard has arrived yet"
