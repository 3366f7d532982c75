"""Who may use a Location: verb `place` on it in its workspace, asked for the group of the workload workspace.

The where resolver asks here. Reviews go through the export's view, which claims them, and are remembered until RBAC of
the Location's workspace changes, which is watched the same way. Invariant: all but an explicit yes is no; what was
asked before a change is not remembered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from atoll.edge.export_view import ExportView
from atoll.machinery.client.client import Client
from atoll.machinery.client.rbac_changes import CLUSTER_ROLES, follow_changes
from atoll.machinery.client.resource import Resource
from atoll.machinery.edge.names import GROUP, VERSION
from atoll.machinery.edge.where import Location
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.objects import Object, status_of
from atoll.machinery.meta.status import ApiError
from atoll.machinery.meta.user import AUTHENTICATED

REVIEWS = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", namespaced=False)
VERB, CLUSTER_GROUP = "place", "system:cluster:"
#: In place of the name of a Location.
ALL = ""
#: Bound of the remembered answers, with what Python takes for a row beside its texts.
MAX_BYTES, _ROW_BYTES = 16 << 20, 400
#: Workspaces whose changes are told apart.
MAX_CHANGES = 4096


class _Answer(NamedTuple):
    is_allowed: bool
    size_bytes: int

    def weight(self) -> int:
        return self.size_bytes


class LocationAccess:
    """Answers by Location and workload workspace. `changed` is called with a workspace whose RBAC changed, or "*"."""

    def __init__(self, view: ExportView, changed: Callable[[str], None]) -> None:
        self._view, self._notify = view, changed
        self._answers: LruCache[tuple[str, int, str, str], _Answer] = LruCache(MAX_BYTES, _Answer.weight)
        #: Number of the last change of RBAC in a workspace, the oldest first; below all of them, that in any other.
        self._changes: dict[str, int] = {}
        self._last, self._others = 0, 0

    async def allows(self, location: Location, workload: str) -> bool:
        """Whether placements of a workspace may use a Location. Raises ApiError and ClientError without an answer.

        Who may use all Locations of an inventory is not looked up for each.
        """
        for name in (ALL, location.name):
            if await self._answer(location.cluster, name, workload):
                return True
        return False

    async def _answer(self, inventory: str, name: str, workload: str) -> bool:
        key = inventory, self._generation(inventory), name, workload
        found = self._answers.get(key)
        if found is None:
            size_bytes = _ROW_BYTES + sum(map(len, (inventory, name, workload)))
            found = _Answer(await self._review(inventory, name, workload), size_bytes)
            self._answers.put(key, found)
        return found.is_allowed

    def _generation(self, cluster: str) -> int:
        return self._changes.get(cluster, self._others)

    async def _review(self, inventory: str, name: str, workload: str) -> bool:
        client = self._view.client(inventory)
        if client is None:
            return False
        attributes = {"verb": VERB, "group": GROUP, "version": VERSION, "resource": "locations", "name": name}
        spec = {"groups": [f"{CLUSTER_GROUP}{workload}", AUTHENTICATED], "resourceAttributes": attributes}
        review: Object = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        try:
            status = status_of(await client.create(REVIEWS, {**review, "metadata": {"name": ""}}))
        except ApiError as error:
            # The workspace does not accept the claim: nobody can say that it allows the use.
            if error.code in {403, 404}:
                return False
            raise
        return status.get("allowed") is True and not status.get("denied")

    async def follow(self, client: Client) -> None:
        """Watch the RBAC of the workspaces of one shard, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for resource in CLUSTER_ROLES:
                tasks.create_task(follow_changes(client, resource, self.changed))

    def changed(self, cluster: str) -> None:
        """Use no earlier answer for a workspace, "*": for any."""
        self._last += 1
        if cluster == "*":
            self._changes.clear()
            self._others = self._last
        else:
            self._changes.pop(cluster, None)
            self._changes[cluster] = self._last
        if len(self._changes) > MAX_CHANGES:
            # Answers for workspaces without a number of their own are asked for again.
            self._others = self._changes.pop(next(iter(self._changes)))
        self._notify(cluster)
