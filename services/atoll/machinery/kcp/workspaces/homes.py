"""Homes: the LogicalCluster of one on the shard chosen for it, and the marker of that choice on the shard `root`. Pure.

`shard.handlers.home_placement` chooses and creates; `controllers.workspaces.home_markers` keeps markers and
`controllers.workspaces.late_homes` homes in step with each other. Invariant: a later choice has a higher generation,
also where the marker of the one before is gone.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from atoll.machinery.kcp.sharding.forgotten_stores import ForgottenStore
from atoll.machinery.meta import hashes
from atoll.machinery.meta.objects import Object, annotations_of, spec_of
from atoll.machinery.meta.wellknown import (
    HOME_CREATED,
    HOME_STORE,
    MOVED_GENERATION,
    MOVED_TO,
    OWNER,
    PATH,
    SHARD,
    SINGLETON,
    TYPE,
)

HOME_TYPE = "root:home"
#: Generations are seconds since 2020, so that they rise although nobody keeps the last one of a home that is gone.
FIRST_S = 1_577_836_800


class HomeUser(msgspec.Struct, frozen=True):
    """A user and the home: its logical cluster, its path, and its owner annotation."""

    name: str
    cluster: str
    path: str
    owner: str


class Seat(msgspec.Struct, frozen=True):
    """The shard that was chosen for a home, the number of that choice, and the uid of its store, "" where it is not
    known. `is_created`: the shard created the home."""

    shard: str
    generation: int
    store: str = ""
    is_created: bool = False

    def is_lost(self, forgotten: Iterable[ForgottenStore], shards: Iterable[str]) -> bool:
        """Whether the store was forgotten; by the name of the shard where the choice does not say its store."""
        if self.store:
            return any(each.store == self.store for each in forgotten)
        return self.shard not in shards and any(each.shard == self.shard for each in forgotten)


def seat_of(obj: Object) -> Seat | None:
    """Return what a marker says; None for any other LogicalCluster."""
    annotations = annotations_of(obj)
    shard = annotations.get(MOVED_TO, "")
    if not shard:
        return None
    is_created = annotations.get(HOME_CREATED) == "true"
    return Seat(shard, generation_of(obj), annotations.get(HOME_STORE, ""), is_created)


def generation_of(obj: Object) -> int:
    """Return the generation of a home or of its marker; 0 where it has none."""
    text = annotations_of(obj).get(MOVED_GENERATION, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def next_generation(before: int, now_s: float) -> int:
    """Return the generation of a choice behind another one, 0 for none that is known."""
    return max(before + 1, int(now_s) - FIRST_S)


def is_outdated(home: Object, generation: int) -> bool:
    """Whether a home was created for an earlier choice than that of a generation. One without a generation is not."""
    return 0 < generation_of(home) < generation


def home(user: HomeUser, seat: Seat) -> Object:
    """Return the LogicalCluster of a home to create on its shard."""
    annotations = {PATH: user.path, TYPE: HOME_TYPE, OWNER: user.owner, SHARD: seat.shard}
    return _cluster({**annotations, MOVED_GENERATION: str(seat.generation)}, user.name)


def marker(user: HomeUser, seat: Seat) -> Object:
    """Return the LogicalCluster that says, on the shard where homes begin, which shard has a home."""
    annotations = {PATH: user.path, MOVED_TO: seat.shard, MOVED_GENERATION: str(seat.generation)}
    if seat.store:
        annotations[HOME_STORE] = seat.store
    return _cluster(annotations, user.name)


def created(obj: Object) -> Object:
    """Return a marker that says that its home is there."""
    annotations = {**annotations_of(obj), HOME_CREATED: "true"}
    return {**obj, "metadata": {**obj["metadata"], "annotations": annotations}}


def is_home(obj: Object, cluster: str, shard: str) -> bool:
    """Whether a LogicalCluster is that of a home which is to be created on a shard."""
    annotations, creator = annotations_of(obj), spec_of(obj).get("createdBy") or {}
    named = hashes.home_cluster_name(str(creator.get("username") or "")) == cluster
    return named and (annotations.get(TYPE), annotations.get(SHARD)) == (HOME_TYPE, shard)


def _cluster(annotations: dict[str, str], username: str) -> Object:
    return {
        "apiVersion": "core.kcp.io/v1alpha1",
        "kind": "LogicalCluster",
        "metadata": {"name": SINGLETON, "annotations": annotations},
        "spec": {"createdBy": {"username": username}},
    }
