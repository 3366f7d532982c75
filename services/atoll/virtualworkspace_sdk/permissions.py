"""Judges open watches again when permissions may have changed, so that a withdrawn one ends its watch.

RBAC objects are followed where the view may read them: through the export's view, if the export claims them and the
workspace accepts, and in the export's own workspace. A change there, or of a workspace's binding, makes `reviews` ask
again and judges the watches of that workspace at once. What is not followed is judged every POLL_S, everything every
SWEEP_S. Invariant: watches are judged beside each other, so a shard that does not answer ends its own watches after
the time limit of a review, and delays no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from atoll.machinery.apiserver.authentication.oidc.issuer_keys import AuthenticationPending
from atoll.machinery.apiserver.serving.open_watches import OpenWatches, StillAllowed, Watch
from atoll.machinery.client.client import Client
from atoll.machinery.client.rbac_changes import CLUSTER_ROLES, ROLES, follow_changes
from atoll.machinery.client.resource import Resource
from atoll.machinery.storage.contract import Store
from atoll.virtualworkspace_sdk.projection import Projection
from atoll.virtualworkspace_sdk.reviews import Reviews

POLL_S, SWEEP_S = 5.0, 60.0
#: Reviews that one judgement waits for; each change meanwhile costs one.
MAX_REVIEWS = 16
RBAC = (*CLUSTER_ROLES, *ROLES)


class _Followed:
    """The RBAC of one client: of the consumers of a shard, or of the export's workspace."""

    def __init__(self, client: Client, changed: Callable[[str], None]) -> None:
        self._open: set[Resource] = set()
        self.tasks = [
            asyncio.create_task(follow_changes(client, each, changed, partial(self._note, each))) for each in RBAC
        ]

    @property
    def whole(self) -> bool:
        """Whether every change is seen."""
        return len(self._open) == len(RBAC)

    def _note(self, resource: Resource, is_open: bool) -> None:
        (self._open.add if is_open else self._open.discard)(resource)


class Permissions:
    """Judges the open watches of a view's process."""

    def __init__(
        self, home: Client, projection: Projection, reviews: Reviews, watches: OpenWatches, store: Store
    ) -> None:
        self._home, self._projection, self._reviews = home, projection, reviews
        self._watches, self._store = watches, store
        self._followed: dict[Client, _Followed] = {}
        self._rechecking: dict[Watch, asyncio.Task[None]] = {}
        self._again: set[Watch] = set()
        projection.on_binding = self.changed
        projection.on_endpoints = self._follow_endpoints

    async def run(self) -> None:
        """Judge until cancelled."""
        self._follow_endpoints()
        swept = 0.0
        try:
            while True:
                await asyncio.sleep(POLL_S)
                swept = swept + POLL_S if swept < SWEEP_S else 0.0
                for cluster in self._watches.clusters():
                    if not swept or not self._is_followed(cluster):
                        self._recheck_all(cluster)
        finally:
            for task in (
                *self._rechecking.values(),
                *(task for each in self._followed.values() for task in each.tasks),
            ):
                task.cancel()

    def changed(self, cluster: str) -> None:
        """Judge the watches of a cluster, "" for those of all clusters, by new reviews."""
        self._reviews.changed(cluster)
        self._recheck_all(cluster)

    def _changed_at_home(self, cluster: str) -> None:
        self.changed("")

    def _changed_at_shard(self, client: Client, cluster: str) -> None:
        if cluster != "*":
            self.changed(cluster)
            return
        for each in self._watches.clusters():
            if each and self._projection.home(each) is client:
                self.changed(each)

    def _follow_endpoints(self) -> None:
        """Follow the permissions at the current URLs, and at home."""
        current = self._projection.clients()
        for client in [client for client in self._followed if client not in (*current, self._home)]:
            for task in self._followed.pop(client).tasks:
                task.cancel()
        if self._home not in self._followed:
            self._followed[self._home] = _Followed(self._home, self._changed_at_home)
        for client in current:
            if client not in self._followed:
                self._followed[client] = _Followed(client, partial(self._changed_at_shard, client))

    def _is_followed(self, cluster: str) -> bool:
        client = self._projection.home(cluster) if cluster else self._home
        followed = self._followed.get(client) if client is not None else None
        return followed is not None and followed.whole

    def _recheck_all(self, cluster: str) -> None:
        for watch, still in self._watches.conditional(cluster):
            if watch in self._rechecking:
                self._again.add(watch)
            else:
                task = self._rechecking[watch] = asyncio.create_task(self._recheck(watch, still))
                task.add_done_callback(partial(self._rechecked, watch))

    def _rechecked(self, watch: Watch, task: asyncio.Task[None]) -> None:
        self._rechecking.pop(watch, None)

    async def _recheck(self, watch: Watch, still: StillAllowed) -> None:
        try:
            while True:
                self._again.discard(watch)
                if not await self._holds(still):
                    watch.end()
                    return
                if watch not in self._again:
                    return
        finally:
            self._again.discard(watch)

    async def _holds(self, still: StillAllowed) -> bool:
        for _ in range(MAX_REVIEWS):
            try:
                with self._store.snapshot() as snapshot:
                    return still.holds(snapshot)
            except AuthenticationPending as pending:
                await pending.complete()
        return False
