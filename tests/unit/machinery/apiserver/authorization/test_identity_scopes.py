"""Users of one name count as one identity only if they are of the same clusters."""

from __future__ import annotations

import pytest

from atoll.machinery.apiserver.authorization.effective_users import SCOPES, WARRANT, scope_of
from atoll.machinery.meta.user import CLUSTER_NAME, User

ACCOUNT = "system:serviceaccount:default:a"


@pytest.mark.parametrize(
    ("user", "scope"),
    [
        (User("alice"), ""),
        (User("alice", ("admins",)), ""),
        (User("alice", extra={"example.com/team": ("a",)}), ""),
        (User("alice", extra={SCOPES: ("cluster:one",), CLUSTER_NAME: ("one",)}), "one"),
        (User(ACCOUNT, extra={CLUSTER_NAME: ("one",)}), "one"),
        (User(ACCOUNT, extra={CLUSTER_NAME: ("one",), SCOPES: ("cluster:one",)}), "one"),
    ],
    ids=str,
)
def test_a_user_of_one_cluster_is_told_by_it(user: User, scope: str) -> None:
    assert scope_of(user) == scope


@pytest.mark.parametrize(
    "extra",
    [
        {SCOPES: ("one",)},
        {SCOPES: ("cluster:one,cluster:two",)},
        {SCOPES: ("cluster:one", "cluster:two")},
        {SCOPES: ("cluster:",)},
        {SCOPES: ("cluster:one",), WARRANT: ("{}",)},
        {WARRANT: ("{}",)},
        {CLUSTER_NAME: ("one", "two")},
        {CLUSTER_NAME: ("one",), SCOPES: ("cluster:two",)},
    ],
    ids=str,
)
def test_other_scopes_and_warrants_make_an_identity_of_its_own(extra: dict[str, tuple[str, ...]]) -> None:
    found = scope_of(User(ACCOUNT, extra=extra))
    assert found.startswith("~") and found == scope_of(User(ACCOUNT, ("admins",), extra=extra))
