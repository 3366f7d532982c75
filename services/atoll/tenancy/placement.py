"""Placement of new workspaces: the cached list of Shards, and the choice among them.

The workspace controller calls `choose`, admission calls `refusal`. Shards are read from root, from replicas if root is
remote, and cached until one of them changes. Invariant: if this shard cannot call other shards, it chooses only itself.
"""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Sequence

from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.federation.federated_view import federated
from atoll.machinery.kcp.sharding.forgotten_stores import ForgottenStore, forgotten_stores, is_lost
from atoll.machinery.kcp.sharding.ownership import ROOT_SHARD
from atoll.machinery.kcp.sharding.scheduling import (
    Candidate,
    PlacementRequest,
    check_reserved,
    choose,
    read_candidate,
    selector_of,
)
from atoll.machinery.kcp.workspaces.homes import Seat
from atoll.machinery.meta.names import ROOT, ObjectKey
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.wellknown import REGION
from atoll.machinery.storage.contract import Scope, Store
from atoll.machinery.storage.pages import each_record
from atoll.tenancy.lookups import Lookups


class ShardPlacement:
    """Chooses shards. `own` is the name of this shard, `type` that of Shards; `reaches`: it can call other shards."""

    def __init__(self, facts: Lookups, own: str, *, reaches: bool) -> None:
        self.type, self.own, self._reaches = facts.identities.shard_objects, own, reaches
        self._chance = random.Random()
        self._candidates: tuple[int, tuple[Candidate, ...]] = (-1, ())

    def shards(self, view: View) -> Sequence[Candidate]:
        """Return the Shards for workspaces of this shard; only this shard if it cannot call others."""
        view = federated(view) if self._reaches else view
        last = view.last(self.type, ROOT)
        if self._candidates[0] != last:
            records = each_record(view, Scope(self.type, ROOT))
            found = tuple(read_candidate(decode(record.value), self.own) for record in records)
            self._candidates = last, found if self._reaches else self._alone(found)
        return self._candidates[1]

    def _alone(self, found: Sequence[Candidate]) -> tuple[Candidate, ...]:
        """Return this shard only; its Shard object may be absent."""
        return tuple(each for each in found if each.is_own) or (Candidate(self.own, is_own=True),)

    def others(self, store: Store) -> Collection[str]:
        """Return the names of all other known shards."""
        with store.snapshot() as snapshot:
            return [each.name for each in self.shards(snapshot) if not each.is_own]

    def lost(self, store: Store) -> Collection[str]:
        """Return the names of the shards whose stores were struck off."""
        with store.snapshot() as snapshot:
            return {each.shard for each in self.forgotten(snapshot)}

    def shard(self, view: View, name: str) -> Candidate | None:
        """Return a shard by name; None if it is unknown."""
        return next((each for each in self.shards(view) if each.name == name), None)

    def is_lost(self, view: View, workspace: Object, shard: str) -> bool:
        """Return whether a Workspace's logical cluster was on a store that was struck off."""
        return is_lost(self.forgotten(view), shard, workspace)

    def is_lost_home(self, view: View, seat: Seat) -> bool:
        """Return whether a home is on a store that was struck off."""
        return seat.is_lost(self.forgotten(view), [each.name for each in self.shards(view)])

    def forgotten(self, view: View) -> tuple[ForgottenStore, ...]:
        """Return the stores that were struck off."""
        root = federated(view).get(ObjectKey(self.type, ROOT, "", ROOT_SHARD)) if self._reaches else None
        return forgotten_stores(decode(root.value)) if root is not None else ()

    def choose_home(self, view: View, path: str, region: str, without: Collection[str] = ()) -> Candidate:
        """Return the shard for a home, of the region that its user came in at if one is there. Raises Unschedulable."""
        shards = self.shards(view)
        if not self._reaches:
            return shards[0]
        if not any(each.labels.get(REGION) == region for each in shards):
            region = ""
        return choose(shards, PlacementRequest(path, None, region), time.time(), self._chance, without)

    def choose(self, view: View, workspace: Object, path: str, without: Collection[str] = ()) -> Candidate:
        """Return the shard for a Workspace of this shard; `path` is its canonical path. Raises Unschedulable."""
        shards = self.shards(view)
        region = next((each.labels.get(REGION, "") for each in shards if each.is_own), "")
        wish = PlacementRequest(path, selector_of(workspace), region)
        return choose(shards, wish, time.time(), self._chance, without)

    def refusal(self, view: View, workspace: Object, path: str) -> str:
        """Return why a Workspace's location selector can never be satisfied, else "". Raises Unschedulable."""
        selector = selector_of(workspace)
        return check_reserved(self.shards(view), path, selector) if selector is not None else ""
