"""Where resolution equals the rules written as loops, in whatever order the objects arrive."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.machinery.edge.placements import placement_of
from atoll.machinery.edge.slices import MAX_DESTINATIONS, destinations_of, plan_slices
from atoll.machinery.edge.where import Destination, Resolution, WhereIndex, location_of, sync_target_of
from harness.seeds import drawn

NOW_S = 1_000_000.0
PAST, FUTURE = "1970-01-01T00:00:01Z", "2036-01-01T00:00:00Z"
CLUSTERS = ("imw-a", "imw-b")
LABELS = st.dictionaries(st.sampled_from(("env", "tier")), st.sampled_from(("a", "b")))
SELECTORS = st.one_of(
    st.builds(lambda labels: {"matchLabels": labels}, LABELS),
    st.builds(
        lambda key, operator: {"matchExpressions": [{"key": key, "operator": operator}]},
        st.sampled_from(("env", "tier")),
        st.sampled_from(("Exists", "DoesNotExist")),
    ),
)
LOCATIONS = st.builds(
    lambda name, labels, selector: {
        "metadata": {"name": name, "labels": labels},
        "spec": {"instanceSelector": selector},
    },
    st.sampled_from(("l1", "l2", "l3")),
    LABELS,
    st.one_of(st.none(), SELECTORS),
)
TARGETS = st.builds(
    lambda name, life, labels, unschedulable, evict: {
        "metadata": {"name": name, "uid": f"{name}-{life}", "labels": labels},
        "spec": {"unschedulable": unschedulable, "evictAfter": evict},
    },
    st.sampled_from(("s1", "s2", "s3")),
    st.integers(1, 2),
    LABELS,
    st.booleans(),
    st.sampled_from((None, None, PAST, FUTURE)),
)
PLACEMENTS = st.builds(
    lambda name, selectors: {"metadata": {"name": name}, "spec": {"locationSelectors": selectors}},
    st.sampled_from(("p1", "p2")),
    st.lists(SELECTORS, max_size=2),
)
#: A change: what kind of object, its logical cluster, the object, and whether it is deleted.
CHANGES = st.one_of(
    st.tuples(st.just("location"), st.sampled_from(CLUSTERS), LOCATIONS, st.booleans()),
    st.tuples(st.just("target"), st.sampled_from(CLUSTERS), TARGETS, st.booleans()),
    st.tuples(st.just("placement"), st.just("wmw"), PLACEMENTS, st.booleans()),
)
Change = tuple[str, str, dict[str, Any], bool]
Rows = dict[tuple[str, str, str], dict[str, Any]]


def feed(index: WhereIndex, change: Change) -> set[tuple[str, str]]:
    kind, cluster, obj, is_deleted = change
    key = (cluster, obj["metadata"]["name"])
    if kind == "location":
        return index.set_location(key, None if is_deleted else location_of(cluster, obj))
    if kind == "target":
        return index.set_sync_target(key, None if is_deleted else sync_target_of(cluster, obj))
    index.set_placement(key, None if is_deleted else placement_of(obj).selectors)
    return {key}


def record(rows: Rows, change: Change) -> None:
    kind, cluster, obj, is_deleted = change
    key = (kind, cluster, obj["metadata"]["name"])
    if is_deleted:
        rows.pop(key, None)
    else:
        rows[key] = obj


def holds(selector: dict[str, Any] | None, labels: dict[str, str]) -> bool:
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    return all(
        (rule["key"] in labels) == (rule["operator"] == "Exists") for rule in selector.get("matchExpressions", ())
    )


def model(rows: Rows, name: str, held: set[tuple[str, str]], may_use: Callable[[str], bool]) -> list[Destination]:
    """The rules, one pair of Location and SyncTarget after the other."""
    selectors = rows.get(("placement", "wmw", name), {"spec": {"locationSelectors": []}})["spec"]["locationSelectors"]
    found: dict[tuple[str, str], Destination] = {}
    for (kind, cluster, location), place in sorted(rows.items()):
        if kind != "location" or not may_use(location):
            continue
        if not any(holds(each, place["metadata"]["labels"]) for each in selectors):
            continue
        for (other, home, target), obj in rows.items():
            if (other, home) != ("target", cluster):
                continue
            uid, spec = obj["metadata"]["uid"], obj["spec"]
            if not holds(place["spec"]["instanceSelector"], obj["metadata"]["labels"]) or spec["evictAfter"] == PAST:
                continue
            if not spec["unschedulable"] or (cluster, uid) in held:
                found.setdefault((cluster, uid), Destination(cluster, location, target, uid))
    return sorted(found.values())


def resolve(index: WhereIndex, name: str, held: list[Destination]) -> Resolution:
    return index.resolve(("wmw", name), NOW_S, held, lambda location: location.name != "l3")


def usable(location: str) -> bool:
    return location != "l3"


@settings(max_examples=drawn(50))
@given(st.lists(CHANGES, max_size=25))
def test_each_step_gives_the_destinations_of_the_rules_and_names_every_placement_that_it_changes(
    changes: list[Change],
) -> None:
    index, rows = WhereIndex(), Rows()
    assigned: dict[str, list[Destination]] = {"p1": [], "p2": []}
    for change in changes:
        concerned = feed(index, change)
        record(rows, change)
        for name, before in assigned.items():
            expected = model(rows, name, {each.sync_target for each in before}, usable)
            assert list(resolve(index, name, before).destinations) == expected
            assert expected == before or ("wmw", name) in concerned
            assigned[name] = expected


@settings(max_examples=drawn(30))
@given(st.lists(CHANGES, max_size=25), st.randoms(use_true_random=False))
def test_any_order_of_arrival_from_several_shards_ends_in_the_same_destinations(
    changes: list[Change], chance: random.Random
) -> None:
    """A shard's own changes stay in order; those of several shards mix."""
    first, second, rows = WhereIndex(), WhereIndex(), Rows()
    queues: dict[str, list[Change]] = {}
    for change in changes:
        feed(first, change)
        record(rows, change)
        queues.setdefault(change[1], []).append(change)
    while queues:
        shard = chance.choice(sorted(queues))
        feed(second, queues[shard].pop(0))
        queues = {name: left for name, left in queues.items() if left}
    for name in ("p1", "p2"):
        assert resolve(first, name, []) == resolve(second, name, [])
        assert list(resolve(second, name, []).destinations) == model(rows, name, set(), usable)


PLACEMENT = {"metadata": {"name": "p", "uid": "u"}}


@settings(max_examples=drawn(20))
@given(st.lists(st.sets(st.integers(0, 60), max_size=60), max_size=6), st.integers(0, 3))
def test_slices_hold_every_destination_once_and_none_is_missed_between_two_writes(
    steps: list[set[int]], scale: int
) -> None:
    """Numbers stand for up to 50 destinations each, so several slices fill."""
    slices: dict[str, dict[str, Any]] = {}
    before: set[Destination] = set()
    size = 1 if scale else 50
    for step in steps:
        wanted = [Destination("c", "l", f"s{n:02}-{i:02}", f"{n}-{i}") for n in sorted(step) for i in range(size)]
        writes = plan_slices(PLACEMENT, wanted, slices.values())
        stays = before & set(wanted)
        for each in (*writes.create, *writes.update):
            slices[each["metadata"]["name"]] = each
            assert stays <= set(destinations_of(slices.values()))
        for each in writes.delete:
            del slices[each["metadata"]["name"]]
            assert stays <= set(destinations_of(slices.values()))
        assert destinations_of(slices.values()) == sorted(wanted)
        assert sum(len(each["destinations"]) for each in slices.values()) == len(wanted)
        assert all(len(each["destinations"]) <= MAX_DESTINATIONS for each in slices.values())
        again = plan_slices(PLACEMENT, wanted, slices.values())
        assert not (again.create or again.update or again.delete)
        before = set(wanted)
