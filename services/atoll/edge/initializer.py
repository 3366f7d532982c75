"""The initializer of a WorkspaceType of the service: the RBAC that a new workspace begins with.

The owner of the workspace sees it and may narrow it later. It works with the permissions of the type, while the
workspace waits. Invariant: a workspace is let go only after all of it was written.
"""

from __future__ import annotations

from collections.abc import Collection, Coroutine
from typing import Any

from atoll.edge.endpoints import Endpoints
from atoll.edge.objects import WORKSPACE_TYPES, grants
from atoll.machinery.client.client import Client
from atoll.machinery.client.informer import Informer, key_of
from atoll.machinery.client.resource import Resource
from atoll.machinery.control.queue import Requeue, WorkQueue
from atoll.machinery.meta.objects import Object, annotations_of, status_of
from atoll.machinery.meta.status import NotFound
from atoll.machinery.meta.wellknown import CLUSTER, SINGLETON

_CLUSTERS = Resource("core.kcp.io", "v1alpha1", "logicalclusters", namespaced=False)


class Initializer:
    """The initializer of one type."""

    name = "initializer"

    def __init__(self, client: Client, type_name: str) -> None:
        self._home, self._type = client, type_name
        self.queue: WorkQueue[str] = WorkQueue()
        self._endpoints = Endpoints(client, (WORKSPACE_TYPES, type_name), _urls, self._serve)
        #: Waiting logical cluster -> client of the view that shows it.
        self._waiting: dict[str, Client] = {}

    async def run(self) -> None:
        """Watch for workspaces that wait, until cancelled."""
        await self._endpoints.run()

    async def synced(self) -> None:
        """Every workspace is initialized by itself, so nothing has to be complete before."""
        await self._endpoints.applied.wait()

    def _serve(self, view: Client) -> Coroutine[Any, Any, None]:
        def changed(old: Object | None, new: Object | None) -> None:
            cluster = key_of(new or old or {})[0]
            if new is None:
                self._waiting.pop(cluster, None)
            else:
                self._waiting[cluster] = view
                self.queue.add(cluster)

        return Informer(view, _CLUSTERS, changed).run()

    def keys(self) -> Collection[str]:
        """The workspaces that wait."""
        return self._waiting.keys()

    async def reconcile(self, cluster: str) -> Requeue:
        """Write the content, then take the initializer off."""
        view = self._waiting.get(cluster)
        if view is None:
            return None
        inside = view.cluster(cluster)
        try:
            waiting = await inside.get(_CLUSTERS, SINGLETON)
        except NotFound:
            # It waits no longer.
            return None
        home = annotations_of(await self._home.get(WORKSPACE_TYPES, self._type))[CLUSTER]
        for manifest in grants(self._type, home):
            await inside.apply(manifest.resource, manifest.object)
        own = f"{home}:{self._type}"
        left = [each for each in status_of(waiting)["initializers"] if each != own]
        waiting["status"]["initializers"] = left
        await inside.update(_CLUSTERS, waiting, subresource="status")
        return None


def _urls(type_object: Object) -> set[str]:
    urls = status_of(type_object).get("virtualWorkspaces") or ()
    return {each["url"] for each in urls if each["type"] == "initializing"}
