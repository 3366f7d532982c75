"""Placement of new workspaces: the known Shards, and the choice among them.

The workspace controller calls `choose`, admission calls `refusal`. Shards are read from root, from replicas where root
is remote, and cached until one of them changes. Invariant: where no other shard can be called, only the own shard is
chosen.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Sequence

from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.federation.federated_view import federated
from atoll.machinery.kcp.sharding.scheduling import (
    Candidate,
    PlacementRequest,
    check_reserved,
    choose,
    read_candidate,
    selector_of,
)
from atoll.machinery.meta.names import ROOT
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.wellknown import REGION
from atoll.machinery.storage.contract import Scope, Store
from atoll.machinery.storage.pages import each_record
from atoll.tenancy.lookups import Lookups


class ShardPlacement:
    """Chooses shards. `own` is the name of the shard that asks; `reaches` says whether it can call others."""

    def __init__(
        self,
        facts: Lookups,
        own: str,
        *,
        reaches: bool,
        chance: random.Random | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._type, self.own, self._reaches = facts.identities.shard_objects, own, reaches
        self._chance, self._clock = chance or random.Random(), clock
        self._known: tuple[int, tuple[Candidate, ...]] = (-1, ())

    def shards(self, view: View) -> Sequence[Candidate]:
        """The Shards that workspaces of this shard may go to, as far as they can be reached."""
        view = federated(view) if self._reaches else view
        last = view.last(self._type, ROOT)
        if self._known[0] != last:
            records = each_record(view, Scope(self._type, ROOT))
            found = tuple(read_candidate(decode(record.value), self.own) for record in records)
            self._known = last, found if self._reaches else self._alone(found)
        return self._known[1]

    def _alone(self, found: Sequence[Candidate]) -> tuple[Candidate, ...]:
        """The own shard; it needs no object for that."""
        return tuple(each for each in found if each.is_own) or (Candidate(self.own, is_own=True),)

    def others(self, store: Store) -> Collection[str]:
        """Names of all other shards that are known now."""
        with store.snapshot() as snapshot:
            return [each.name for each in self.shards(snapshot) if not each.is_own]

    def shard(self, view: View, name: str) -> Candidate | None:
        """A shard by name; None where it is not known."""
        return next((each for each in self.shards(view) if each.name == name), None)

    def choose(self, view: View, workspace: Object, path: str, without: Collection[str] = ()) -> Candidate:
        """The shard for a Workspace of this shard; `path` is its canonical one. Raises Unschedulable."""
        shards = self.shards(view)
        region = next((each.labels.get(REGION, "") for each in shards if each.is_own), "")
        wish = PlacementRequest(path, selector_of(workspace), region)
        return choose(shards, wish, self._clock(), self._chance, without)

    def refusal(self, view: View, workspace: Object, path: str) -> str:
        """Why a Workspace's location selector can never be followed; "" where it may be. Raises Unschedulable."""
        selector = selector_of(workspace)
        return check_reserved(self.shards(view), path, selector) if selector is not None else ""
