"""Scheduling of new workspaces to shards: by reservation, selector, region, heartbeat and load.

Placement calls `choose` with the known Shards; admission calls `check_reserved` to reject a selector that can never be
satisfied. Pure: the random generator is an argument, and the same generator state over the same shards returns the same
shard. Invariant: a workspace is never scheduled to a shard reserved for other workspaces, nor outside the shards
reserved for it, whatever its selector.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Sequence

import msgspec

from atoll.machinery.kcp.sharding.shards import STORE, UNSCHEDULABLE, Load, load_of
from atoll.machinery.meta.objects import Object, annotations_of, labels_of, spec_of
from atoll.machinery.meta.selectors import LabelSelector, SelectorError, compile_label_selector
from atoll.machinery.meta.wellknown import REGION

#: Annotation of a Shard: comma-separated workspace paths. Only workspaces at or below these are scheduled there.
RESERVED_FOR = "scheduling.atoll.dev/reserved-for"
#: kcp's text; clients compare it.
NO_SHARDS = "No available shards to schedule the workspace"
#: Two heartbeats and the delay of replication, in seconds. A shard whose last heartbeat is older than that, counted
#: from the newest one of any shard, is used only if no other is available. It is not excluded: its load may be late.
FRESH_S = 23.0
#: A shard whose disk is fuller than this share is used only if every other one is too.
NEARLY_FULL = 0.9


class Unschedulable(Exception):
    """No shard is suitable now; the text is the reason. Scheduling is retried when a Shard changes."""


class Candidate(msgspec.Struct, frozen=True):
    """The fields of a Shard that scheduling uses. `is_own`: it is the scheduling shard itself. `store` is the uid of
    its store."""

    name: str
    labels: dict[str, str] = {}
    external_url: str = ""
    reserved_for: tuple[str, ...] = ()
    is_unschedulable: bool = False
    is_own: bool = False
    load: Load = Load()
    store: str = ""

    @property
    def fullness(self) -> float:
        """The used share of the shard's disk, from 0 to 1; 0 where the capacity is unknown."""
        return self.load.storage_bytes / self.load.capacity_bytes if self.load.capacity_bytes else 0.0

    def takes(self, path: str) -> bool:
        """Whether the shard is reserved for a workspace path."""
        return any(path == each or path.startswith(f"{each}:") for each in self.reserved_for)


class PlacementRequest(msgspec.Struct, frozen=True):
    """The workspace to schedule: canonical path, location selector, and the region of its parent's shard."""

    path: str
    selector: LabelSelector | None = None
    region: str = ""


def read_candidate(shard: Object, own: str) -> Candidate:
    """Return a Shard object as a Candidate; `own` is the name of the scheduling shard."""
    metadata, spec = shard["metadata"], spec_of(shard)
    annotations = annotations_of(shard)
    reserved = (each.strip() for each in annotations.get(RESERVED_FOR, "").split(","))
    return Candidate(
        name=metadata["name"],
        labels=labels_of(shard),
        external_url=spec.get("externalURL") or spec.get("baseURL", ""),
        reserved_for=tuple(each for each in reserved if each),
        is_unschedulable=UNSCHEDULABLE in annotations,
        is_own=metadata["name"] == own,
        store=annotations.get(STORE, ""),
        load=load_of(shard),
    )


def selector_of(workspace: Object) -> LabelSelector | None:
    """Return the location selector of a Workspace; None without one. Raises Unschedulable if it is invalid."""
    selector = (spec_of(workspace).get("location") or {}).get("selector")
    if selector is None:
        return None
    try:
        return compile_label_selector(selector)
    except SelectorError as error:
        raise Unschedulable(f"spec.location.selector is not valid: {error}") from error


def check_reserved(shards: Sequence[Candidate], path: str, selector: LabelSelector) -> str:
    """Return why a selector can never be satisfied (it matches only shards not for this workspace); else "".

    A selector that matches no shard is accepted, since shards come and go.
    """
    matching = [each for each in shards if selector.matches(each.labels)]
    allowed = _allowed(shards, path)
    if not matching or any(each in allowed for each in matching):
        return ""
    if any(each.takes(path) for each in shards):
        return f"spec.location.selector matches none of the shards that are reserved for {path}"
    return "spec.location.selector matches only shards that are reserved for other workspaces"


def choose(
    shards: Sequence[Candidate],
    wish: PlacementRequest,
    now_s: float,
    chance: random.Random,
    without: Collection[str] = (),
) -> Candidate:
    """Return the shard for a workspace; `without` names shards that failed before. Raises Unschedulable.

    The less loaded of two random candidates is chosen: loads are some seconds old, and choosing always the least loaded
    shard would send all workspaces to one shard until its load is updated.
    """
    ready = [each for each in _near(shards, wish) if each.name not in without]
    if not ready:
        raise Unschedulable(NO_SHARDS)
    # No heartbeats arrive while `root` is unreachable: then all shards are equally old. A clock ahead counts as now.
    newest_s = min(max(each.load.heartbeat_s for each in shards), now_s)
    least = min(_missed(each, newest_s) for each in ready)
    alive = [each for each in ready if _missed(each, newest_s) == least]
    pool = [each for each in alive if each.fullness < NEARLY_FULL] or alive
    return min(chance.sample(pool, min(len(pool), 2)), key=_pressure)


def _missed(shard: Candidate, newest_s: float) -> int:
    """Return how often FRESH_S passed since a shard's last heartbeat; 0 for the scheduling shard itself."""
    return 0 if shard.is_own else max(0, math.ceil((newest_s - shard.load.heartbeat_s) / FRESH_S) - 1)


def _near(shards: Sequence[Candidate], wish: PlacementRequest) -> list[Candidate]:
    """Return schedulable shards that are allowed and selected; without a region selector those of the parent's region.

    A region states where data may be stored: without a selector, a workspace stays in the region of its parent.
    """
    selector = wish.selector
    if selector is not None and (problem := check_reserved(shards, wish.path, selector)):
        raise Unschedulable(f"{NO_SHARDS}: {problem}")
    allowed = _allowed(shards, wish.path)
    if shards and not allowed:
        raise Unschedulable(f"{NO_SHARDS}: all of them are reserved for other workspaces")
    wanted = [each for each in allowed if selector is None or selector.matches(each.labels)]
    ready = [each for each in wanted if not each.is_unschedulable]
    if not wish.region or (selector is not None and _names_region(selector)):
        return ready
    near = [each for each in ready if each.labels.get(REGION) == wish.region]
    if ready and not near and selector is None and not any(each.reserved_for for each in ready):
        text = f'none is in region "{wish.region}" of its parent, and its location selector names no other'
        raise Unschedulable(f"{NO_SHARDS}: {text}")
    return near or ready


def _allowed(shards: Sequence[Candidate], path: str) -> list[Candidate]:
    """Return the shards reserved for a path, or else all unreserved shards."""
    own = [each for each in shards if each.takes(path)]
    return own or [each for each in shards if not each.reserved_for]


def _names_region(selector: LabelSelector) -> bool:
    return any(each.key == REGION for each in selector.requirements)


def _pressure(shard: Candidate) -> tuple[int, int, int]:
    """Sort key: tenths of the disk used, then number of workspaces, then of objects; the least loaded sorts first."""
    return int(shard.fullness * 10), shard.load.workspaces, shard.load.objects
