"""Ownership of clusters: in any order of arrival, with repetitions and delays, the same rows lead to the same owners,
and a shard that claims all clusters gets none.
"""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.machinery.kcp.sharding.ownership import Owner
from atoll.machinery.meta.wellknown import MOVED_GENERATION, MOVED_TO
from harness.models.cluster_ownership import CLUSTER, LIAR, SHARD, Follower, Place, Said, Site
from harness.models.needed_following import Decision, NeededFollower
from harness.seeds import drawn

SHARDS = ("root", "a", "b", LIAR)
NUMBERS = st.integers(0, 1 << 16)
ACTIONS = ("create", "create", "home", "root", "move", "delete", "lie")
STEPS = st.lists(st.tuples(st.sampled_from(ACTIONS), NUMBERS, NUMBERS))
TURNS = st.lists(st.tuples(st.sampled_from(["take", "take", "select", "seek", "forget"]), NUMBERS, NUMBERS))


def lived(steps: list[tuple[str, int, int]]) -> Site:
    """A site after a random history."""
    site = Site(SHARDS)
    for what, one, other in steps:
        known = list(site.clusters.values())
        cluster, shard = known[one % len(known)], SHARDS[other % len(SHARDS)]
        if what == "create":
            site.create(cluster, shard)
        elif what == "home":
            site.home(shard)
        elif what == "root":
            site.root(shard, late=one % 2 == 1)
        elif what == "move" and LIAR not in (cluster.shard, shard):
            site.move(cluster, shard)
        elif what == "delete":
            site.delete(cluster)
        elif what == "lie":
            site.lie(cluster.name, other % 7)
    return site


def checked(site: Site, follower: Follower, origin: str, message: Said, steps: int) -> None:
    for cluster, seat in follower.hear(origin, message, steps):
        assert seat is None or seat.shard in site.owners.get(cluster, ()), (cluster, seat)


def deliver(site: Site, follower: Follower, streams: dict[str, list[Said]], turns: list[tuple[int, int]]) -> None:
    """Deliver the messages of all streams, each in its order, interleaved and with repetitions; then the rest."""
    at = dict.fromkeys(streams, 0)
    for choice, back in turns:
        shard = SHARDS[choice % len(SHARDS)]
        if shard not in streams:
            continue
        if choice % 7 == 0:
            at[shard] = max(0, at[shard] - back % 5)
        for message in streams[shard][at[shard] : at[shard] + 1]:
            checked(site, follower, shard, message, 1 + back % 4)
            at[shard] += 1
    for shard, messages in streams.items():
        for message in messages[at[shard] :]:
            checked(site, follower, shard, message, 200)


def in_order(site: Site) -> list[tuple[str, Said]]:
    messages = [(shard, message) for shard, said in site.said.items() for message in said]
    return sorted(messages, key=lambda each: each[1].revision)


def owners(site: Site) -> dict[str, str]:
    return {name: cluster.shard for name, cluster in site.clusters.items() if name != "root"}


def found(follower: Follower) -> dict[str, str]:
    """Where clusters lie of which anything counts: a route may outlive what it led to, where all has gone by late."""
    return {
        cluster: seat.shard
        for cluster, seat in follower.seats.items()
        if follower.logical_cluster(seat.shard, cluster) is not None
    }


@settings(max_examples=drawn(300), deadline=None, derandomize=True)
@given(STEPS, st.lists(st.tuples(NUMBERS, NUMBERS)))
def test_whoever_follows_from_the_start_ends_with_the_true_owners(
    steps: list[tuple[str, int, int]], turns: list[tuple[int, int]]
) -> None:
    site, follower = lived(steps), Follower(SHARDS)
    deliver(site, follower, site.said, turns)
    assert found(follower) == owners(site)


@settings(max_examples=drawn(300), deadline=None, derandomize=True)
@given(STEPS, st.lists(st.tuples(NUMBERS, NUMBERS)), st.permutations(SHARDS))
def test_whoever_comes_late_and_reads_what_stands_ends_with_the_true_owners(
    steps: list[tuple[str, int, int]], turns: list[tuple[int, int]], order: list[str]
) -> None:
    site, follower = lived(steps), Follower(SHARDS)
    streams = site.last_said()
    deliver(site, follower, {shard: streams[shard] for shard in order}, turns)
    assert found(follower) == owners(site)


@settings(max_examples=drawn(200), deadline=None, derandomize=True)
@given(STEPS, st.lists(st.tuples(NUMBERS, NUMBERS)), st.sampled_from(["root", "a"]))
def test_a_shard_counts_for_itself_and_others_never_for_what_is_its_own(
    steps: list[tuple[str, int, int]], turns: list[tuple[int, int]], own: str
) -> None:
    site, follower = lived([step for step in steps if step[0] != "move"]), Follower(SHARDS, own)
    for message in site.last_said()[own]:
        checked(site, follower, own, message, 200)
    others = {shard: said for shard, said in site.last_said().items() if shard != own}
    deliver(site, follower, others, turns)
    elsewhere = {name: shard for name, shard in owners(site).items() if shard != own}
    assert {name: shard for name, shard in found(follower).items() if shard != own} == elsewhere


def sound(site: Site, decisions: Iterable[Decision]) -> None:
    for cluster, seat in decisions:
        assert seat is None or seat.shard in site.owners.get(cluster, ()), (cluster, seat)


@settings(max_examples=drawn(300), deadline=None, derandomize=True)
@given(STEPS, TURNS, st.permutations(SHARDS), st.booleans())
def test_whoever_keeps_only_what_it_needs_ends_with_the_true_owners_of_that(
    steps: list[tuple[str, int, int]], turns: list[tuple[str, int, int]], order: list[str], everything: bool
) -> None:
    site = lived(steps)
    here, names = NeededFollower(order, {shard: site.said[shard] for shard in order}), sorted(site.owners)
    for name in names if everything else ():
        here.seek(name)
    for what, one, other in turns:
        shard = SHARDS[one % len(SHARDS)]
        if what == "take":
            sound(site, here.take(shard, other % 5 if other % 7 == 0 else 0, 1 + other % 4))
        elif what == "select":
            sound(site, here.select(shard, other % 3, 1 + other % 4))
        elif names:
            (here.seek if what == "seek" else here.forget)(names[one % len(names)])
    sound(site, here.settle())
    needed = {name for name in names if here.needed.needs(name)}
    assert found_of(here, needed) == {name: shard for name, shard in owners(site).items() if name in needed}
    for name in names:
        here.seek(name)
    sound(site, here.settle())
    assert found_of(here, set(names)) == owners(site), "and of everything, if it needs that"
    for name in names:
        here.forget(name)
    sound(site, here.settle())
    assert not [place for _, place in here.follower.rows if place.kind != SHARD], "it keeps no other row"


def found_of(here: NeededFollower, needed: set[str]) -> dict[str, str]:
    return {name: shard for name, shard in found(here.follower).items() if name in needed}


def test_a_move_goes_by_the_word_of_the_present_owner_and_its_generation() -> None:
    site, follower = Site(SHARDS), Follower(SHARDS)
    site.create(site.clusters["root"], "a")
    name = next(name for name in site.clusters if name != "root")
    cluster = site.clusters[name]
    for shard in ("b", "a", "b"):
        site.move(cluster, shard)
    for shard, message in in_order(site):
        checked(site, follower, shard, message, 200)
    assert follower.seats[name] == Owner("b", 3)
    # Messages of an earlier owner are repeated; at the end they have no effect.
    site.say("a", Place(CLUSTER, name), site.logical(cluster, {MOVED_TO: "root", MOVED_GENERATION: "3"}))
    site.say("a", Place(CLUSTER, name), None)
    for message in site.said["a"][-2:]:
        checked(site, follower, "a", message, 200)
    assert follower.seats[name] == Owner("b", 3)
