"""The watches that are open in this process, and their end when what they watch is served differently or no more.

Kubernetes closes the watches of a custom resource when its definition changes, so that clients list again under the new
one. One task follows definitions and bindings in all clusters; a watch costs one entry here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from atoll.machinery.apiserver.call import View
from atoll.machinery.apiserver.catalog import Catalogs
from atoll.machinery.apiserver.rest.watch import Watch
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.types import API_BINDINGS, CRDS, LOGICAL_CLUSTERS
from atoll.machinery.storage.contract import Cursor, GateState, Scope, Store

READ_LIMIT = 500

#: Whether a watch may go on, asked whenever its logical cluster changes.
Still = Callable[[View], bool]


class OpenWatches:
    """Watches by cluster. Wildcard watches live under "" and outlast the definitions of single clusters."""

    def __init__(self, store: Store, catalogs: Catalogs) -> None:
        self._store, self._catalogs = store, catalogs
        self._open: dict[str, dict[Watch, tuple[Kind, Still | None]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._open.values()))

    def add(self, cluster: str, kind: Kind, watch: Watch, still: Still | None = None) -> None:
        """Remember an open watch until `drop`."""
        self._open.setdefault(cluster, {})[watch] = kind, still

    def drop(self, cluster: str, watch: Watch) -> None:
        """Forget a watch that ended."""
        watches = self._open.get(cluster)
        if watches is None:
            return
        watches.pop(watch, None)
        if not watches:
            del self._open[cluster]

    async def follow(self) -> None:
        """End watches whose kind changed, for ever. Run it once a process."""
        with self._store.snapshot() as snapshot:
            revision = snapshot.revision
        cursors = [self._store.cursor(Scope(type), revision) for type in (CRDS, API_BINDINGS, LOGICAL_CLUSTERS)]
        try:
            await asyncio.gather(*(self._follow(cursor) for cursor in cursors))
        finally:
            for cursor in cursors:
                cursor.close()

    async def _follow(self, cursor: Cursor) -> None:
        while True:
            for cluster in {change.key.cluster for change in cursor.read(READ_LIMIT)}:
                self._judge(cluster)
            await cursor.wait()

    def _judge(self, cluster: str) -> None:
        """End the watches of a cluster whose kind is served differently now, or whose gate closed."""
        with self._store.snapshot() as snapshot:
            gate = snapshot.gate(cluster)
            catalog = self._catalogs.of(snapshot, cluster) if cluster in self._open else None
            over = [watch for watch, (_, still) in self._open.get(cluster, {}).items() if still and not still(snapshot)]
        for watch in over:
            watch.end()
        if gate.state in {GateState.INACTIVE, GateState.MOVING}:
            # kcp cuts every connection through which the cluster could be seen, wildcard ones too.
            for watch in (*self._open.get(cluster, ()), *self._open.get("", ())):
                watch.end()
        elif catalog is not None:
            for watch, (kind, _) in tuple(self._open[cluster].items()):
                if not _same(catalog.find(kind.group, kind.version, kind.plural), kind):
                    watch.end()


def _same(now: Kind | None, then: Kind) -> bool:
    """Whether events of a kind still look as they did; the start of its deletion changes nothing about them."""
    if now is None or now.type != then.type:
        return False
    return now.mark == then.mark if then.mark else (now.schema, now.columns) == (then.schema, then.columns)
