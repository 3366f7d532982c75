"""For any Shards, a workspace is scheduled on a permitted one, and the same random value selects the same shard."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from atoll.machinery.kcp.sharding.scheduling import FRESH_S, Candidate, PlacementRequest, Unschedulable, choose
from atoll.machinery.kcp.sharding.shards import Load
from atoll.machinery.meta.selectors import parse_label_selector

NOW_S = 1_000_000.0
PATHS = ("root", "root:acme", "root:acme:web", "root:acmetwo", "root:zoo")
SELECTORS = ("", "region=eu", "region!=us", "tier", "!tier", "tier=fast,region in (eu,us)", "name=shard-1")


@st.composite
def candidates(draw: st.DrawFn) -> list[Candidate]:
    found = []
    for index in range(draw(st.integers(0, 6))):
        labels = {"name": f"shard-{index}"}
        labels |= draw(st.sampled_from(({}, {"region": "eu"}, {"region": "us"}, {"tier": "fast", "region": "eu"})))
        load = Load(
            workspaces=draw(st.integers(0, 50)),
            storage_bytes=draw(st.integers(0, 100)),
            capacity_bytes=100,
            heartbeat_s=NOW_S - draw(st.sampled_from((0, FRESH_S - 1, FRESH_S + 1, NOW_S))),
        )
        reserved = tuple(draw(st.lists(st.sampled_from(PATHS), max_size=2)))
        found.append(Candidate(f"shard-{index}", labels, "", reserved, draw(st.booleans()), index == 0, load))
    return found


@st.composite
def wishes(draw: st.DrawFn) -> PlacementRequest:
    text = draw(st.sampled_from(SELECTORS))
    region = draw(st.sampled_from(("", "eu", "us")))
    return PlacementRequest(draw(st.sampled_from(PATHS)), parse_label_selector(text) if text else None, region)


def may_hold(shard: Candidate, shards: list[Candidate], wish: PlacementRequest) -> bool:
    """The scheduling rules, implemented separately."""
    if shard.is_unschedulable or (wish.selector is not None and not wish.selector.matches(shard.labels)):
        return False
    mine = [each for each in shards if any(f"{wish.path}:".startswith(f"{path}:") for path in each.reserved_for)]
    return shard in mine if mine else not shard.reserved_for


@given(candidates(), wishes(), st.integers())
def test_a_workspace_goes_only_where_it_may_and_wants(
    shards: list[Candidate], wish: PlacementRequest, seed: int
) -> None:
    able = [each for each in shards if may_hold(each, shards, wish)]
    try:
        chosen = choose(shards, wish, NOW_S, random.Random(seed))
    except Unschedulable:
        near = [each for each in able if each.labels.get("region") == wish.region]
        assert not able or (wish.region and wish.selector is None and not near)
        return
    assert chosen in able
    assert choose(shards, wish, NOW_S, random.Random(seed)) == chosen


@given(candidates(), wishes(), st.integers())
def test_a_region_that_nobody_asks_about_is_the_parents(
    shards: list[Candidate], wish: PlacementRequest, seed: int
) -> None:
    wish = PlacementRequest(wish.path, None, wish.region)
    try:
        chosen = choose(shards, wish, NOW_S, random.Random(seed))
    except Unschedulable:
        return
    near = [each for each in shards if may_hold(each, shards, wish) and each.labels.get("region") == wish.region]
    assert chosen in near or not wish.region or chosen.reserved_for


@given(candidates(), wishes(), st.integers())
def test_a_silent_shard_is_the_last_resort(shards: list[Candidate], wish: PlacementRequest, seed: int) -> None:
    wish = PlacementRequest(wish.path, wish.selector, "")
    try:
        chosen = choose(shards, wish, NOW_S, random.Random(seed))
    except Unschedulable:
        return

    newest_s = max(each.load.heartbeat_s for each in shards)

    def alive(shard: Candidate) -> bool:
        return shard.is_own or newest_s - shard.load.heartbeat_s <= FRESH_S

    assert alive(chosen) or not any(alive(each) for each in shards if may_hold(each, shards, wish))


@given(candidates(), wishes(), st.integers())
def test_what_was_tried_in_vain_is_not_chosen_again(shards: list[Candidate], wish: PlacementRequest, seed: int) -> None:
    tried: list[str] = []
    for _ in range(len(shards)):
        try:
            tried.append(choose(shards, wish, NOW_S, random.Random(seed), tried).name)
        except Unschedulable:
            break
    assert len(tried) == len(set(tried))
    with pytest.raises(Unschedulable):
        choose(shards, wish, NOW_S, random.Random(seed), [each.name for each in shards])


@given(st.integers(2, 6), st.integers())
def test_workspaces_are_spread_as_loads_are_told(count: int, seed: int) -> None:
    chance = random.Random(seed)
    shards = [Candidate(f"shard-{index}", load=Load(heartbeat_s=NOW_S, capacity_bytes=100)) for index in range(count)]
    for _ in range(60 * count):
        chosen = choose(shards, PlacementRequest("root:any"), NOW_S, chance)
        shards = [
            replace(each, load=replace(each.load, workspaces=each.load.workspaces + 1)) if each == chosen else each
            for each in shards
        ]
    loads = [each.load.workspaces for each in shards]
    assert max(loads) - min(loads) <= 20
