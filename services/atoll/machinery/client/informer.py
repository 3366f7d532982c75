"""A watch-list informer: the current state of a resource, kept current, with a handler for changes.

One task: open a watch that begins with the state, take the annotated bookmark as the end of it, follow; on any end or
error begin again from the last revision, or from state when that is gone. Third parties and controllers outside a
shard feed a `control.queue.WorkQueue` from its handler. Invariant: after any interruption the handler has seen, for
each object, a change from its last state to the current one (deletions included); states between may be skipped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypedDict

import structlog

from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import Resource, WatchEvent
from atoll.machinery.meta import wellknown
from atoll.machinery.meta.objects import Object, annotations_of
from atoll.machinery.meta.status import ApiError
from atoll.machinery.process.backoff import Backoff
from atoll.machinery.wire.pending_response import ClientError

log = structlog.get_logger()

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
MAX_DELAY_S = 30.0
#: Logical clusters whose objects share their annotations.
MAX_SHARED = 16_384
BACKOFF = Backoff(0.2, MAX_DELAY_S, least=0.75)

Key = tuple[str, str, str]
#: What to keep of an object: its key and revision at least.
Keep = Callable[[Object], Object]
#: Called with the old object (None: new) and the new one (None: gone). Must not block; an exception ends `run`.
Handler = Callable[[Object | None, Object | None], None]


def key_of(obj: Object) -> Key:
    """(logical cluster, namespace, name) of an object; empty where it has none."""
    metadata = obj["metadata"]
    cluster = annotations_of(obj).get(wellknown.CLUSTER, "")
    return cluster, metadata.get("namespace", ""), metadata["name"]


def whole(obj: Object) -> Object:
    """Return an object as it is."""
    return obj


def unmanaged(obj: Object) -> Object:
    """Return an object without the notes of who manages its fields, which are most of a small object."""
    return {**obj, "metadata": {key: value for key, value in obj["metadata"].items() if key != "managedFields"}}


def head(obj: Object, *names: str) -> Object:
    """Return the key of an object and its revision alone, and further fields of its metadata."""
    metadata, cluster = obj["metadata"], key_of(obj)[0]
    found = {key: metadata[key] for key in ("name", "namespace", "resourceVersion", *names) if key in metadata}
    if cluster and ("annotations" not in names or len(found["annotations"]) == 1):
        found["annotations"] = _mark_of(cluster)
    return {"metadata": found}


@lru_cache(MAX_SHARED)
def _mark_of(cluster: str) -> Object:
    """Return the annotations of what is kept of a logical cluster, one dict for all of it."""
    return {wellknown.CLUSTER: cluster}


class _Metadata(TypedDict, total=False):
    """Metadata of an object without its managedFields."""

    name: Any
    generateName: Any
    namespace: Any
    uid: Any
    resourceVersion: Any
    generation: Any
    creationTimestamp: Any
    deletionTimestamp: Any
    deletionGracePeriodSeconds: Any
    labels: Any
    annotations: Any
    ownerReferences: Any
    finalizers: Any


class Head(TypedDict):
    """All that `head` may return of an object: for `Client.reduced`."""

    metadata: _Metadata


class Parts(Head, total=False):
    """An object whose kind has a spec and a status alone, as `unmanaged` returns it: for `Client.reduced`."""

    apiVersion: Any
    kind: Any
    spec: Any
    status: Any


class Informer:
    """The state of one resource in the cluster of the client (or `*`), as a dict by key.

    `objects` is complete once `synced` is set; its values are read-only. `options` go into every watch
    (labelSelector, fieldSelector). Memory: of every object what `keep` returns, decoded. The handler gets the same; it
    has to have the object's key and revision.
    """

    def __init__(
        self, client: Client, resource: Resource, handler: Handler, keep: Keep = whole, **options: str
    ) -> None:
        self._client, self._resource = client, resource
        self._handler, self._keep, self._options = handler, keep, options
        self.objects: dict[Key, Object] = {}
        self.synced = asyncio.Event()
        #: Why nothing is watched now; empty while something is.
        self.interruption = "not begun"
        self._revision = ""
        #: Keys received since the state began to arrive; None once it is complete.
        self._seen: set[Key] | None = None
        self._failures = 0

    async def run(self) -> None:
        """Follow until cancelled. Ends and errors of watches back off up to 30 s; an event resets that."""
        while True:
            wait_s, reason = 0.0, "ended by the server"
            try:
                await self._follow()
            except ApiError as error:
                # The revision was compacted: only the state shows the changes since.
                if error.code == 410:
                    self._revision = ""
                wait_s, reason = float(error.details.retry_after_s), error.message
            except (ClientError, TimeoutError) as error:
                reason = str(error) or type(error).__name__
            self.interruption = reason
            delay_s = min(max(wait_s, BACKOFF.delay_s(self._failures)), MAX_DELAY_S)
            self._failures += 1
            log.info("watch interrupted", resource=self._resource.plural, reason=reason, again_s=round(delay_s, 3))
            await asyncio.sleep(delay_s)

    async def _follow(self) -> None:
        options = dict(self._options)
        if self._revision:
            options["resourceVersion"] = self._revision
            self._seen = None
        else:
            options |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
            self._seen = set()
        async with self._client.watch(self._resource, **options) as events:
            self.interruption = ""
            async for event in events:
                self._failures = 0
                self._take(event)

    def _take(self, event: WatchEvent) -> None:
        metadata = event.object["metadata"]
        if event.type == "BOOKMARK":
            self._bookmark(metadata)
            return
        new = self._keep(event.object)
        key = key_of(new)
        old = self.objects.get(key)
        if event.type == "DELETED":
            self._forget(key, new)
        else:
            self.objects[key] = new
            if old is None or old["metadata"]["resourceVersion"] != metadata["resourceVersion"]:
                self._handler(old, new)
        if self._seen is None:
            self._revision = metadata["resourceVersion"]
        else:
            # The state is not ordered by revision: a watch must not resume from it before it is complete.
            self._seen.add(key)

    def _bookmark(self, metadata: Object) -> None:
        if self._seen is None:
            self._revision = metadata["resourceVersion"]
        elif (metadata.get("annotations") or {}).get(INITIAL_EVENTS_END) == "true":
            self._sweep(self._seen)
            self._seen, self._revision = None, metadata["resourceVersion"]
            self.synced.set()

    def _sweep(self, seen: set[Key]) -> None:
        """Remove objects that the complete state does not contain."""
        for key in [key for key in self.objects if key not in seen]:
            self._forget(key)

    def _forget(self, key: Key, last: Object | None = None) -> None:
        """Drop an object. An unknown one had no handler call and gets none now."""
        old = self.objects.pop(key, None)
        if old is not None:
            self._handler(last or old, None)
