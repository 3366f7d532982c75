"""What a shard needs of others follows from what happened, in any order, and nothing else stays."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.replication.needed_clusters import CHILD, ROWS, NeededClusters, Reason, Workspace
from harness.seeds import drawn

CLUSTERS = [letter * 8 for letter in "abcdefgh"]
ORIGINS = ["root", "east", "west"]
#: A tree: each cluster's parent is an earlier one, so that reasons do not support each other in a circle.
PARENT = {cluster: CLUSTERS[place // 2] for place, cluster in enumerate(CLUSTERS) if place}


class Model:
    """The same by definition: reasons from outside, LogicalClusters held, owners."""

    def __init__(self) -> None:
        self.outside: set[tuple[str, str]] = set()
        self.rows: set[tuple[str, str]] = set()
        self.seats: dict[str, str] = {}
        self.changed: set[str] = set()
        self.needed = NeededClusters(lambda cluster: self.seats.get(cluster, ""), self.held_of, self.changed.add)

    def held_of(self, cluster: str) -> Iterable[tuple[str, Workspace | None]]:
        return [(origin, owner(cluster)) for origin, held in self.rows if held == cluster]

    def closure(self) -> dict[str, set[str]]:
        """The needed clusters, with the names of the Workspaces needed in each."""
        found: dict[str, set[str]] = {cluster: set() for _, cluster in self.outside}
        work = list(found)
        while work:
            cluster = work.pop()
            named = owner(cluster)
            if named is not None and any(held == cluster for _, held in self.rows):
                if named[0] not in found:
                    found[named[0]] = set()
                    work.append(named[0])
                found[named[0]].add(named[1])
        return found

    def followed(self, origin: str) -> set[str]:
        return {
            cluster
            for cluster in self.closure()
            if self.seats.get(cluster, "") in ("", origin) or (origin, cluster) in self.rows
        }


def owner(cluster: str) -> Workspace | None:
    return (PARENT[cluster], f"w-{cluster}") if cluster in PARENT else None


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["need", "need not", "hold", "drop", "seat"]),
        st.sampled_from(ORIGINS),
        st.sampled_from(CLUSTERS),
    ),
    max_size=60,
)


def apply(model: Model, action: str, origin: str, cluster: str) -> None:
    needed = model.needed
    if action == "need":
        model.outside.add((origin, cluster))
        needed.add(cluster, Reason(ROWS, origin, cluster))
    elif action == "need not":
        model.outside.discard((origin, cluster))
        needed.remove(cluster, Reason(ROWS, origin, cluster))
    elif action == "hold":
        model.rows.add((origin, cluster))
        needed.held(origin, cluster, owner(cluster))
    elif action == "drop":
        model.rows.discard((origin, cluster))
        needed.dropped(origin, cluster)
    else:
        model.seats[cluster] = "" if model.seats.get(cluster) == origin else origin
        needed.seated(cluster)


@settings(max_examples=drawn(200))
@given(STEPS)
def test_needs_are_the_closure_of_the_reasons(steps: list[tuple[str, str, str]]) -> None:
    model = Model()
    for step in steps:
        before = {origin: model.followed(origin) for origin in ORIGINS}
        model.changed.clear()
        apply(model, *step)
        closure = model.closure()
        assert {cluster for cluster in CLUSTERS if model.needed.needs(cluster)} == set(closure)
        for cluster in CLUSTERS:
            for child in CLUSTERS:
                expected = f"w-{child}" in closure.get(cluster, set())
                assert model.needed.needs_workspace(cluster, f"w-{child}") is expected
        for origin in ORIGINS:
            now = model.followed(origin)
            assert set(model.needed.clusters_of(origin)) == now
            assert now == before[origin] or model.changed & {"", origin}, "a change is reported"
            expected_names = {
                (cluster, name)
                for cluster, names in closure.items()
                if model.seats.get(cluster, "") == origin
                for name in names
            }
            assert set(model.needed.workspaces_of(origin)) == expected_names


def test_a_long_chain_of_parents_is_no_recursion() -> None:
    names = [f"c{number:07d}" for number in range(5000)]
    parents = dict(pairwise(names))

    def held_of(cluster: str) -> Iterable[tuple[str, Workspace | None]]:
        return [("east", (parents[cluster], "w"))] if cluster in parents else []

    needed = NeededClusters(lambda _: "east", held_of, lambda _: None)
    needed.add(names[0], Reason(CHILD, "", "own"), "w")
    assert len(needed) == len(names)
    needed.remove(names[0], Reason(CHILD, "", "own"))
    assert len(needed) == 0
