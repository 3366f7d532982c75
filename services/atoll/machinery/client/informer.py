"""A watch-list informer: the current state of a resource, kept current, with a handler for changes.

One task: open a watch that begins with the state, take the annotated bookmark as the end of it, follow; on any end or
error begin again from the last revision, or from state when that is gone. The store of an informer is a dict by
(cluster, namespace, name); handlers see each change once.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import structlog

from atoll.machinery.client.client import Client, Resource, WatchEvent
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import ApiError, from_status
from atoll.machinery.wire.incoming import ClientError

log = structlog.get_logger()

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
CLUSTER = "kcp.io/cluster"
BASE_DELAY_S, MAX_DELAY_S = 0.2, 30.0

Key = tuple[str, str, str]
#: Called with the old object (None: new) and the new one (None: gone).
Handler = Callable[[Object | None, Object | None], None]


def key_of(obj: Object) -> Key:
    """(cluster, namespace, name) of an object."""
    metadata = obj["metadata"]
    cluster = (metadata.get("annotations") or {}).get(CLUSTER, "")
    return cluster, metadata.get("namespace", ""), metadata["name"]


class Informer:
    """State of one resource in one cluster (or `*`, by the client's view). `run` until cancelled."""

    def __init__(self, client: Client, resource: Resource, handler: Handler, namespace: str = "", **options: str) -> None:
        self._client, self._resource, self._namespace = client, resource, namespace
        self._handler, self._options = handler, options
        self.objects: dict[Key, Object] = {}
        self.synced = asyncio.Event()
        self._revision = ""
        self._seen: set[Key] | None = None

    async def run(self) -> None:
        """Follow for ever; failures back off up to 30 s."""
        failures = 0
        while True:
            try:
                await self._follow()
                failures = 0
            except ApiError as error:
                if error.code == 410:
                    self._revision = ""
                failures += 1
                log.warning("informer interrupted", resource=self._resource.plural, error=error.message)
            except (ClientError, TimeoutError) as error:
                failures += 1
                log.warning("informer interrupted", resource=self._resource.plural, error=str(error))
            if failures:
                delay = min(BASE_DELAY_S * 2 ** min(failures - 1, 10), MAX_DELAY_S)
                await asyncio.sleep(delay * random.uniform(0.75, 1.25))

    async def _follow(self) -> None:
        options = dict(self._options)
        if self._revision:
            options["resourceVersion"] = self._revision
            self._seen = None
        else:
            options |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
            self._seen = set()
        async with self._client.watch(self._resource, self._namespace, **options) as events:
            async for event in events:
                self._take(event)

    def _take(self, event: WatchEvent) -> None:
        if event.type == "ERROR":
            raise from_status(event.object)
        metadata = event.object["metadata"]
        if event.type == "BOOKMARK":
            self._revision = metadata["resourceVersion"]
            if (metadata.get("annotations") or {}).get(INITIAL_EVENTS_END) == "true":
                self._sweep()
            return
        key = key_of(event.object)
        old = self.objects.get(key)
        if event.type == "DELETED":
            self.objects.pop(key, None)
            self._handler(old or event.object, None)
        else:
            self.objects[key] = event.object
            if old is None or old["metadata"]["resourceVersion"] != metadata["resourceVersion"]:
                self._handler(old, event.object)
        if self._seen is not None:
            self._seen.add(key)
        else:
            self._revision = metadata["resourceVersion"]

    def _sweep(self) -> None:
        """The state is complete: what was known and not seen again is gone."""
        assert self._seen is not None
        for key in [key for key in self.objects if key not in self._seen]:
            self._handler(self.objects.pop(key), None)
        self._seen = None
        self.synced.set()
