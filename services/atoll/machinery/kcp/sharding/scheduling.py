"""Which shard a new workspace goes to: allowed, wanted, near, alive, and not fuller than others.

The workspace controller asks `choose` with the Shards as they are known; admission asks `check_reserved`, so that a
selector that can never be followed is refused while somebody is listening. Pure: chance is given, and the same chance
over the same shards gives the same shard. Invariant: a workspace never goes to a shard that is reserved for others, nor
outside those that are reserved for it, whatever its selector says.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence

import msgspec

from atoll.machinery.kcp.sharding.shards import UNSCHEDULABLE, Load, load_of
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.selectors import LabelSelector, SelectorError, compile_label_selector
from atoll.machinery.meta.wellknown import REGION

#: On a Shard: workspace paths, separated by commas, at and below which alone workspaces may go there.
RESERVED_FOR = "scheduling.atoll.dev/reserved-for"
#: kcp's words; clients know them.
NO_SHARDS = "No available shards to schedule the workspace"
#: Six heartbeats; a shard that was silent for longer comes last. Never a refusal: while `root` is away nobody's heart
#: is seen to beat.
FRESH_S = 60.0
#: What a disk holds beyond this share keeps workspaces away for as long as another shard has more room.
NEARLY_FULL = 0.9


class Unschedulable(Exception):
    """No shard will do now; the text says why. Another look is due when a Shard changes."""


class Candidate(msgspec.Struct, frozen=True):
    """A Shard, as far as scheduling goes by it. `is_own`: it is the one that asks."""

    name: str
    labels: dict[str, str] = {}
    external_url: str = ""
    reserved_for: tuple[str, ...] = ()
    is_unschedulable: bool = False
    is_own: bool = False
    load: Load = Load()

    @property
    def fullness(self) -> float:
        """The share of its disk that is used, from 0 to 1; 0 where it does not say."""
        return self.load.storage_bytes / self.load.capacity_bytes if self.load.capacity_bytes else 0.0

    def takes(self, path: str) -> bool:
        """Whether it is reserved for a workspace path."""
        return any(path == each or path.startswith(f"{each}:") for each in self.reserved_for)


class PlacementRequest(msgspec.Struct, frozen=True):
    """What is known of a workspace: canonical path, location selector, and the region of its parent's shard."""

    path: str
    selector: LabelSelector | None = None
    region: str = ""


def read_candidate(shard: Object, own: str) -> Candidate:
    """A Shard object, read; `own` is the name of the shard that asks."""
    metadata, spec = shard["metadata"], shard.get("spec") or {}
    annotations = metadata.get("annotations") or {}
    reserved = (each.strip() for each in annotations.get(RESERVED_FOR, "").split(","))
    return Candidate(
        name=metadata["name"],
        labels=metadata.get("labels") or {},
        external_url=spec.get("externalURL") or spec.get("baseURL", ""),
        reserved_for=tuple(each for each in reserved if each),
        is_unschedulable=UNSCHEDULABLE in annotations,
        is_own=metadata["name"] == own,
        load=load_of(shard),
    )


def selector_of(workspace: Object) -> LabelSelector | None:
    """The location selector of a Workspace; None where it has none. Raises Unschedulable where it is not valid."""
    selector = ((workspace.get("spec") or {}).get("location") or {}).get("selector")
    if selector is None:
        return None
    try:
        return compile_label_selector(selector)
    except SelectorError as error:
        raise Unschedulable(f"spec.location.selector is not valid: {error}") from error


def check_reserved(shards: Sequence[Candidate], path: str, selector: LabelSelector) -> str:
    """Why a selector can never be followed: all that it matches is not for this workspace; "" where it may be.

    One that matches nothing is not refused, since shards come and go.
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
    """The shard for a workspace; `without` names those that were tried in vain. Raises Unschedulable.

    Of two that are drawn, the less loaded is taken: loads are some seconds old, and whoever always took the least
    loaded would send everybody to the same shard until it says so.
    """
    ready = [each for each in _near(shards, wish) if each.name not in without]
    if not ready:
        raise Unschedulable(NO_SHARDS)
    alive = [each for each in ready if each.is_own or now_s - each.load.heartbeat_s <= FRESH_S]
    roomy = [each for each in alive or ready if each.fullness < NEARLY_FULL]
    pool = roomy or alive or ready
    return min(chance.sample(pool, min(len(pool), 2)), key=_pressure)


def _near(shards: Sequence[Candidate], wish: PlacementRequest) -> list[Candidate]:
    """Schedulable shards that the workspace wants and may have; those of its parent's region, if it says nothing else.

    A region is where data may lie: without a word of its owner, a workspace does not leave the one of its parent.
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
    """The shards that are reserved for a path, or else all that are reserved for nobody."""
    own = [each for each in shards if each.takes(path)]
    return own or [each for each in shards if not each.reserved_for]


def _names_region(selector: LabelSelector) -> bool:
    return any(each.key == REGION for each in selector.requirements)


def _pressure(shard: Candidate) -> tuple[int, int, int]:
    """By tenths of the disk, then by what lies there: the least loaded sorts first."""
    return int(shard.fullness * 10), shard.load.workspaces, shard.load.objects
