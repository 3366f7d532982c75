"""Each rule by which a shard is, or is not, accepted as the owner of a cluster."""

from __future__ import annotations

import json
from typing import Any

import pytest

from atoll.machinery.kcp.sharding.ownership import Owner, claim_of, record_of
from atoll.machinery.meta import hashes, wellknown
from atoll.machinery.meta.names import ROOT
from atoll.machinery.meta.wellknown import BORN_ON, MOVED_GENERATION, MOVED_TO
from harness.models.cluster_ownership import CLUSTER, LIAR, WORKSPACE, Follower, Place, Said

SHARDS = ("root", "a", "b", LIAR)


class Hearing:
    """A follower and the events that it receives, one at a time."""

    def __init__(self, own: str = "") -> None:
        self.follower, self._revision = Follower(SHARDS, own), 0

    def says(self, shard: str, place: Place, value: dict[str, Any] | None) -> None:
        self._revision += 1
        data = json.dumps(value).encode() if value is not None else None
        list(self.follower.hear(shard, Said(place, self._revision, data), 1))

    def claims(self, shard: str, parent: str, name: str, cluster: str, to: str, uid: str = "") -> None:
        metadata = {"uid": uid, "annotations": {wellknown.SHARD: to}}
        self.says(shard, Place(WORKSPACE, parent, name), {"metadata": metadata, "spec": {"cluster": cluster}})

    def names(self, shard: str, parent: str, name: str, to: str) -> str:
        """A Workspace with the name that its cluster must have."""
        cluster = hashes.cluster_name_of(parent, f"uid-{name}", to)
        self.claims(shard, parent, name, cluster, to, f"uid-{name}")
        return cluster

    def stands(self, shard: str, cluster: str, spec: dict[str, Any] | None = None, **annotations: str) -> None:
        self.says(shard, Place(CLUSTER, cluster), {"metadata": {"annotations": annotations}, "spec": spec or {}})

    def gone(self, shard: str, cluster: str) -> None:
        self.says(shard, Place(CLUSTER, cluster), None)

    def of(self, cluster: str) -> str:
        seat = self.follower.seat(cluster)
        return seat.shard if seat is not None else ""


def moved(to: str, generation: int) -> dict[str, Any]:
    return {MOVED_TO: to, MOVED_GENERATION: str(generation)}


def test_a_workspace_names_the_shard_if_the_owner_of_its_own_cluster_sent_it() -> None:
    hearing = Hearing()
    shop = hearing.names("root", ROOT, "shop", "a")
    inner = hearing.names("a", shop, "inner", "b")
    assert (hearing.of(shop), hearing.of(inner)) == ("a", "b")


def test_a_workspace_of_a_strangers_says_nothing() -> None:
    hearing = Hearing()
    shop = hearing.names("root", ROOT, "shop", "a")
    assert hearing.of(hearing.names(LIAR, shop, "inner", LIAR)) == ""
    assert hearing.of(hearing.names(LIAR, ROOT, "other", LIAR)) == ""


def test_a_cluster_is_not_claimed_by_a_workspace_that_it_is_not_named_after() -> None:
    hearing = Hearing()
    own = hearing.names("root", ROOT, "theirs", LIAR)
    shop = hashes.cluster_name_of(ROOT, "uid-shop", "a")
    hearing.claims(LIAR, own, "lie", shop, LIAR, uid="anything")
    hearing.stands(LIAR, shop, {"owner": {"cluster": own, "name": "lie"}})
    assert hearing.of(shop) == ""
    assert hearing.names("root", ROOT, "shop", "a") == shop
    assert hearing.of(shop) == "a"


def test_what_root_names_needs_no_proof() -> None:
    hearing = Hearing()
    hearing.claims("root", ROOT, "old", "abcdefgh12345678", "b")
    assert hearing.of("abcdefgh12345678") == "b"


def test_the_cluster_of_a_workspace_that_moved_is_named_after_where_it_was_born() -> None:
    uid, cluster = "u", hashes.cluster_name_of("parent", "u", "a")
    metadata: dict[str, Any] = {"uid": uid, "annotations": {wellknown.SHARD: "b"}}
    value = {"metadata": metadata, "spec": {"cluster": cluster}}
    claim = claim_of("parent", json.dumps(value).encode())
    assert claim is not None
    assert not claim.proven
    metadata["annotations"][BORN_ON] = "a"
    claim = claim_of("parent", json.dumps(value).encode())
    assert claim is not None
    assert claim.proven


def test_a_second_claim_does_not_move_a_cluster() -> None:
    hearing = Hearing()
    hearing.claims("root", ROOT, "one", "abcdefgh12345678", "a")
    hearing.claims("root", ROOT, "two", "abcdefgh12345678", "b")
    assert hearing.of("abcdefgh12345678") == "a"


def test_a_home_belongs_to_root_and_is_named_after_its_user() -> None:
    hearing, home = Hearing(), hashes.home_cluster_name("ann")
    hearing.stands("root", home, {"createdBy": {"username": "bob"}})
    assert hearing.of(home) == ""
    hearing.stands("a", home, {"createdBy": {"username": "ann"}})
    assert hearing.of(home) == ""
    hearing.stands("root", home, {"createdBy": {"username": "ann"}})
    assert hearing.of(home) == "root"
    hearing.gone("root", home)
    assert hearing.of(home) == ""


def test_a_cluster_without_a_workspace_that_is_no_home_is_nobodys() -> None:
    hearing = Hearing()
    hearing.stands(LIAR, "abcdefgh12345678")
    assert hearing.of("abcdefgh12345678") == ""


def test_only_the_present_owner_sends_a_cluster_on() -> None:
    hearing = Hearing()
    shop = hearing.names("root", ROOT, "shop", "a")
    hearing.stands(LIAR, shop, **moved(LIAR, 9))
    assert hearing.of(shop) == "a"
    hearing.stands("a", shop, **moved("b", 1))
    assert hearing.follower.seat(shop) == Owner("b", 1)
    hearing.stands("b", shop, **moved("a", 1))
    assert hearing.of(shop) == "b", "that is no later move"
    hearing.stands("b", shop, **moved("a", 2))
    assert hearing.follower.seat(shop) == Owner("a", 2), "its marker is of an earlier move"


def test_only_the_owner_ends_a_cluster() -> None:
    hearing = Hearing()
    shop = hearing.names("root", ROOT, "shop", "a")
    hearing.stands("a", shop, {"owner": {"cluster": ROOT, "name": "shop"}})
    hearing.stands(LIAR, shop)
    hearing.gone(LIAR, shop)
    assert hearing.of(shop) == "a"
    hearing.says("root", Place(WORKSPACE, ROOT, "shop"), None)
    assert hearing.of(shop) == "a", "its content is still being deleted"
    hearing.gone("a", shop)
    assert hearing.of(shop) == ""


def test_a_workspace_that_goes_after_its_cluster_takes_the_route_along() -> None:
    hearing = Hearing()
    shop = hearing.names("root", ROOT, "shop", "a")
    hearing.stands("a", shop, {"owner": {"cluster": ROOT, "name": "shop"}})
    hearing.gone("a", shop)
    hearing.says("root", Place(WORKSPACE, ROOT, "shop"), None)
    assert hearing.of(shop) == ""


@pytest.mark.parametrize("cluster", [ROOT, "system:admin", "system:shard", "Not a name", ""])
def test_what_no_workspace_can_have_is_not_claimed(cluster: str) -> None:
    hearing = Hearing()
    hearing.claims("root", ROOT, "odd", cluster, "a")
    hearing.stands("a", cluster, {"createdBy": {"username": "ann"}})
    assert hearing.follower.seats == {}


def test_what_lies_here_is_not_given_away_by_others() -> None:
    hearing = Hearing(own="b")
    hearing.stands("b", "abcdefgh12345678", {"owner": {"cluster": ROOT, "name": "one"}})
    hearing.claims("root", ROOT, "one", "abcdefgh12345678", "a")
    assert hearing.of("abcdefgh12345678") == ""
    inner = hearing.names("a", "abcdefgh12345678", "inner", LIAR)
    assert hearing.of(inner) == ""
    assert hearing.names("b", "abcdefgh12345678", "inner", "a") != inner
    hearing.stands("b", "abcdefgh12345678", **moved("a", 1))
    assert hearing.of("abcdefgh12345678") == "a"
    assert hearing.of(inner) == LIAR, "what a said before it had the cluster counts from then on"


def test_what_cannot_be_read_says_nothing() -> None:
    for value in (b"", b"{", b"[]", b'{"spec": 3}', b'{"metadata": {"annotations": {"a": 1}}}'):
        assert claim_of(ROOT, value) is None
        assert record_of("abc", value) is None
    odd = json.dumps({"metadata": {"annotations": {MOVED_TO: "b", MOVED_GENERATION: "-1"}}}).encode()
    standing = record_of("abc", odd)
    assert standing is not None
    assert standing.successor == ""


def test_a_cluster_that_ended_after_a_move_is_not_found_where_it_came_from() -> None:
    """The Workspace's event of the move is late, and the marker of the source still exists."""
    hearing = Hearing()
    shop = hearing.names("root", ROOT, "shop", "a")
    owner = {"owner": {"cluster": ROOT, "name": "shop"}}
    hearing.stands("b", shop, owner)
    hearing.stands("a", shop, owner, **moved("b", 1))
    assert hearing.of(shop) == "b"
    hearing.gone("b", shop)
    assert hearing.of(shop) == ""
    hearing.says("root", Place(WORKSPACE, ROOT, "shop"), None)
    assert hearing.of(shop) == ""
