"""The identity that a shard asserts when it forwards a request."""

from __future__ import annotations

from atoll.machinery.apiserver.authorization.effective_users import WARRANT
from atoll.machinery.apiserver.forwarded_identity import bare, spoken_for
from atoll.machinery.meta.user import AUTHENTICATED, CLUSTER_NAME, User


def test_a_service_account_is_in_no_group_of_another_place() -> None:
    groups = ("system:serviceaccounts", "system:serviceaccounts:team", AUTHENTICATED)
    account = User("system:serviceaccount:team:robot", groups, "", {CLUSTER_NAME: ("home",)})
    assert spoken_for(account) == [
        ("X-Remote-User", "system:kcp:serviceaccount:home:team:robot"),
        ("X-Remote-Group", AUTHENTICATED),
    ]


def test_others_keep_the_groups_that_are_no_power() -> None:
    found = spoken_for(User("ann", ("team", "system:masters", AUTHENTICATED)))
    assert found == [("X-Remote-User", "ann"), ("X-Remote-Group", "team"), ("X-Remote-Group", AUTHENTICATED)]


def test_a_warrant_is_left_behind_and_nothing_else() -> None:
    scoped = {"authentication.kcp.io/scopes": ("cluster:home",)}
    ann = User("ann", ("team",), "u", {**scoped, WARRANT: ('{"user":"root","groups":["system:kcp:admin"]}',)})
    assert bare(ann) == User("ann", ("team",), "u", scoped)
