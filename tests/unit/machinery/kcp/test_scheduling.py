"""Reservations, regions, load and words of the choice of a shard."""

from __future__ import annotations

import random

import pytest

from atoll.machinery.kcp.sharding.scheduling import (
    FRESH_S,
    NO_SHARDS,
    Candidate,
    PlacementRequest,
    Unschedulable,
    check_reserved,
    choose,
    read_candidate,
    selector_of,
)
from atoll.machinery.kcp.sharding.shards import Load
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.selectors import LabelSelector, parse_label_selector

NOW_S = 1_000_000.0


def candidate(name: str, region: str = "", **fields: object) -> Candidate:
    labels = {"name": name, **({"region": region} if region else {})}
    given = {"load": Load(heartbeat_s=NOW_S), **fields}
    return Candidate(name, labels, **given)  # type: ignore[arg-type]


def chosen(shards: list[Candidate], path: str = "root:any", selector: str = "", region: str = "") -> set[str]:
    """Every shard that some chance gives."""
    wish = PlacementRequest(path, parse_label_selector(selector) if selector else None, region)
    return {choose(shards, wish, NOW_S, random.Random(seed)).name for seed in range(40)}


def refused(shards: list[Candidate], path: str = "root:any", selector: str = "", region: str = "") -> str:
    with pytest.raises(Unschedulable) as error:
        chosen(shards, path, selector, region)
    return str(error.value)


def test_without_a_word_any_shard_will_do() -> None:
    assert chosen([candidate("a"), candidate("b"), candidate("c")]) == {"a", "b", "c"}


def test_a_shard_that_is_drained_gets_nothing_new() -> None:
    drained = candidate("a", is_unschedulable=True)
    assert chosen([drained, candidate("b")]) == {"b"}
    assert refused([drained]) == NO_SHARDS
    assert refused([drained, candidate("b")], selector="name=a") == NO_SHARDS


def test_nothing_that_a_selector_matches_is_told_in_kcps_words() -> None:
    assert refused([candidate("a")], selector="cloud=moon") == NO_SHARDS
    assert refused([]) == NO_SHARDS


def test_a_reserved_shard_is_for_its_workspaces_and_they_for_it() -> None:
    shards = [candidate("a"), candidate("b", reserved_for=("root:acme", "root:beta:x"))]
    assert chosen(shards, "root:other") == {"a"}
    assert chosen(shards, "root:acmetwo") == {"a"}
    for path in ("root:acme", "root:acme:web:deep", "root:beta:x"):
        assert chosen(shards, path) == {"b"}


def test_a_reservation_outweighs_the_parents_region() -> None:
    shards = [candidate("a", "eu"), candidate("b", "us", reserved_for=("root:acme",))]
    assert chosen(shards, "root:acme", region="eu") == {"b"}


@pytest.mark.parametrize(
    ("path", "selector", "text"),
    [
        ("root:other", "name=b", "matches only shards that are reserved for other workspaces"),
        ("root:acme", "name=a", "matches none of the shards that are reserved for root:acme"),
        ("root:acme", "name=b", ""),
        ("root:other", "name in (a,b)", ""),
        ("root:other", "name=nowhere", ""),
    ],
)
def test_a_selector_outside_is_refused_and_one_that_matches_nothing_is_not(path: str, selector: str, text: str) -> None:
    shards = [candidate("a"), candidate("b", reserved_for=("root:acme",))]
    said = check_reserved(shards, path, parse_label_selector(selector))
    assert said == (f"spec.location.selector {text}" if text else "")
    if text:
        assert text in refused(shards, path, selector)


def test_where_everything_is_reserved_for_others_that_is_said() -> None:
    assert "reserved for other workspaces" in refused([candidate("b", reserved_for=("root:acme",))])


def test_the_region_of_the_parent_is_where_a_workspace_without_a_selector_stays() -> None:
    shards = [candidate("a", "eu"), candidate("b", "us"), candidate("c", "us")]
    assert chosen(shards, region="us") == {"b", "c"}
    assert chosen(shards, region="eu") == {"a"}
    assert 'region "asia"' in refused(shards, region="asia")


def test_a_selector_that_names_a_region_has_the_word_and_any_other_prefers_the_parents() -> None:
    shards = [candidate("a", "eu"), candidate("b", "us"), candidate("c", "us")]
    assert chosen(shards, selector="region=us", region="eu") == {"b", "c"}
    assert chosen(shards, selector="region", region="us") == {"a", "b", "c"}
    assert chosen(shards, selector="name!=z", region="us") == {"b", "c"}
    assert chosen(shards, selector="name=a", region="us") == {"a"}


def test_a_shard_that_is_silent_comes_last() -> None:
    silent = candidate("a", load=Load(heartbeat_s=NOW_S - FRESH_S - 1))
    never = candidate("b", load=Load())
    assert chosen([silent, never, candidate("c")]) == {"c"}
    assert chosen([silent, never, candidate("c", load=Load(heartbeat_s=NOW_S - 9))], selector="name in (a,b)") == {"a"}
    assert chosen([silent, candidate("own", is_own=True)]) == {"own"}


def test_shards_are_not_silent_where_root_hears_of_none() -> None:
    quiet = [candidate(name, load=Load(heartbeat_s=NOW_S - 900 - age)) for name, age in (("a", 0), ("b", 9))]
    own = candidate("own", is_own=True, load=Load(heartbeat_s=NOW_S - 905))
    assert chosen([*quiet, own]) == {"a", "b", "own"}
    assert chosen([*quiet, candidate("c", load=Load(heartbeat_s=NOW_S - 900 - 2 * FRESH_S))]) == {"a", "b"}


def test_a_clock_that_is_ahead_does_not_make_the_others_silent() -> None:
    assert chosen([candidate("a", load=Load(heartbeat_s=NOW_S + 500)), candidate("b")]) == {"a", "b"}


def test_a_disk_that_is_nearly_full_keeps_workspaces_away_while_there_is_room_elsewhere() -> None:
    full = candidate("a", load=Load(storage_bytes=95, capacity_bytes=100, heartbeat_s=NOW_S))
    busy = candidate("b", load=Load(workspaces=5000, storage_bytes=10, capacity_bytes=100, heartbeat_s=NOW_S))
    assert chosen([full, busy]) == {"b"}
    assert chosen([full]) == {"a"}


def test_of_two_the_less_loaded_is_taken() -> None:
    few = candidate("a", load=Load(workspaces=3, heartbeat_s=NOW_S))
    many = candidate("b", load=Load(workspaces=9, heartbeat_s=NOW_S))
    assert chosen([few, many]) == {"a"}


def test_a_shard_object_is_read() -> None:
    shard: Object = {
        "metadata": {
            "name": "west",
            "labels": {"region": "us"},
            "annotations": {
                "scheduling.atoll.dev/reserved-for": " root:acme, root:beta ,,",
                "experimental.core.kcp.io/unschedulable": "",
            },
        },
        "spec": {"baseURL": "https://west", "externalURL": "https://front"},
        "status": {"capacity": {"used.atoll.dev/workspaces": "7"}},
    }
    found = read_candidate(shard, "west")
    assert found.reserved_for == ("root:acme", "root:beta")
    assert found.is_unschedulable
    assert found.is_own
    assert (found.external_url, found.labels, found.load.workspaces) == ("https://front", {"region": "us"}, 7)


def test_a_selector_that_is_not_valid_is_told_and_not_raised_at_everybody() -> None:
    broken: Object = {
        "spec": {"location": {"selector": {"matchExpressions": [{"key": "a", "operator": "Near", "values": []}]}}}
    }
    with pytest.raises(Unschedulable, match=r"spec\.location\.selector is not valid"):
        selector_of(broken)
    assert selector_of({"spec": {}}) is None
    assert isinstance(selector_of({"spec": {"location": {"selector": {}}}}), LabelSelector)
