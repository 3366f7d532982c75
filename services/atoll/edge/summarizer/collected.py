"""The StatusCollectors of workspaces, compiled, and the controller that writes what fails of them into their status.

`rows` evaluates them and takes failures down here. Keys are StatusCollectors. Invariants: one that does not compile
takes no part; failures are of rows as they are now, and of each collector at most MAX_FAILING.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress

from atoll.edge.export_view import ExportView
from atoll.edge.kinds import STATUS_COLLECTORS
from atoll.machinery.control.queue import Requeue, WorkQueue
from atoll.machinery.edge.summaries.collectors import Collector, InvalidCollector, collector_of
from atoll.machinery.edge.summaries.summary import MAX_TABLES
from atoll.machinery.edge.where import Key
from atoll.machinery.meta.objects import Object, spec_of, status_of
from atoll.machinery.meta.status import Conflict, NotFound

#: Objects with failures that are remembered, and texts that a status has.
MAX_FAILING, MAX_ERRORS = 1000, 20
#: Collectors of a workspace that count, the first by name: a row is evaluated for all of them in one go.
MAX_COLLECTORS = MAX_TABLES
TOO_MANY = f"it does not count: the workspace has more than {MAX_COLLECTORS} collectors, of which the first by name do"
#: How long a status waits for more failures.
BURST_S = 1.0


class Collected:
    """The controller. `changed` is told with a workspace whose collectors are others; `complete` once all are known."""

    name = "status-summarizer-collectors"

    def __init__(self, view: ExportView, changed: Callable[[str], None], complete: Callable[[], None]) -> None:
        self._view, self._changed, self._complete = view, changed, complete
        self.queue: WorkQueue[Key] = WorkQueue()
        self._objects: dict[Key, Object] = {}
        #: All that compile, and those that count.
        self._compiled: dict[str, dict[str, Collector]] = {}
        self._active: dict[str, dict[str, Collector]] = {}
        self._versions: dict[str, int] = {}
        #: Those that were not compiled yet, and whether all were once.
        self._fresh: set[Key] = set()
        self.is_complete = False
        #: Collector -> row or summary -> field -> text.
        self._failing: dict[Key, dict[Hashable, Mapping[str, str]]] = defaultdict(dict)

    def put(self, cluster: str, name: str, obj: Object | None) -> None:
        """Take over a StatusCollector, None if it is gone."""
        if obj is None:
            self._objects.pop((cluster, name), None)
        else:
            self._objects[cluster, name] = obj
            self._fresh.add((cluster, name))
        self.queue.add((cluster, name))

    def of(self, cluster: str) -> Mapping[str, Collector]:
        """Return the collectors of a workspace that count."""
        return self._active.get(cluster, {})

    def asks(self, cluster: str) -> bool:
        """Whether a workspace asks for associated objects."""
        return any(each.associated for each in self.of(cluster).values())

    def version(self, cluster: str) -> int:
        """Return a number that rises with each change of a workspace's collectors."""
        return self._versions.get(cluster, 0)

    def failed(self, collector: Key, row: Hashable, errors: Mapping[str, str]) -> None:
        """Take down what fails of a row now; nothing takes it back."""
        found = self._failing[collector]
        if errors == found.get(row, {}):
            return
        if not errors:
            del found[row]
        elif row in found or len(found) < MAX_FAILING:
            found[row] = errors
        self.queue.add(collector, delay_s=BURST_S)

    async def synced(self) -> None:
        """Wait until all were seen."""
        await self._view.complete.wait()
        self.check_complete()

    def check_complete(self) -> None:
        """Tell it once all that is there counts."""
        if not self.is_complete and self._view.complete.is_set() and not self._fresh:
            self.is_complete = True
            self._complete()

    async def reconcile(self, key: Key) -> Requeue:
        """Compile a collector if it is new, and write its status if that differs."""
        cluster, name = key
        obj, client = self._objects.get(key), self._view.client(cluster)
        await self._compile(key, obj)
        if obj is self._objects.get(key):
            self._fresh.discard(key)
        self.check_complete()
        if obj is None or client is None:
            self._failing.pop(key, None)
            return None
        texts = sorted({f"{field}: {text}" for row in self._failing[key].values() for field, text in row.items()})
        if name in self._compiled.get(cluster, {}) and name not in self.of(cluster):
            texts = [TOO_MANY]
        status = {"observedGeneration": obj["metadata"]["generation"], "errors": texts[:MAX_ERRORS]}
        if status != status_of(obj):
            body = {"metadata": {"resourceVersion": obj["metadata"]["resourceVersion"]}, "status": status}
            with suppress(NotFound, Conflict):
                await client.patch(STATUS_COLLECTORS, name, body, subresource="status")
        return None

    async def _compile(self, key: Key, obj: Object | None) -> None:
        cluster, name = key
        before = self._compiled.get(cluster, {}).get(name)
        found = before
        if obj is None or before is None or before.spec != spec_of(obj):
            found = None
            if obj is not None:
                with suppress(InvalidCollector):
                    found = await asyncio.to_thread(collector_of, obj)
        if found is before:
            return
        every = self._compiled.setdefault(cluster, {})
        every.pop(name, None)
        if found is not None:
            every[name] = found
        if not every:
            del self._compiled[cluster]
        self._failing.pop(key, None)
        active, self._active[cluster] = self._active.get(cluster, {}), dict(sorted(every.items())[:MAX_COLLECTORS])
        self._versions[cluster] = self._versions.get(cluster, 0) + 1
        for each in active.keys() ^ self._active[cluster].keys():
            self.queue.add((cluster, each))
        self._changed(cluster)
