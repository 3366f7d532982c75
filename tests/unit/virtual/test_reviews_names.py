"""The names of users in access reviews: a service account has its local name in its home workspace only."""

from __future__ import annotations

import pytest

from atoll.machinery.meta.user import AUTHENTICATED, User
from atoll.virtualworkspace_sdk.reviews import at_home

ACCOUNT = "system:kcp:serviceaccount:home:team:robot"


def test_a_service_account_is_asked_about_by_its_own_name_at_home_only() -> None:
    found = at_home(User(ACCOUNT, (AUTHENTICATED,)), "home")
    assert found.name == "system:serviceaccount:team:robot"
    assert {"system:serviceaccounts", "system:serviceaccounts:team", AUTHENTICATED} == set(found.groups)
    assert found.extra["authentication.kcp.io/cluster-name"] == ("home",)
    assert at_home(User(ACCOUNT), "other") == User(ACCOUNT)
    assert at_home(User(ACCOUNT), "") == User(ACCOUNT)


@pytest.mark.parametrize(
    "name", ["ann", "system:serviceaccount:team:robot", "system:kcp:serviceaccount:homes:team:robot"]
)
def test_everybody_else_stays_who_he_is(name: str) -> None:
    assert at_home(User(name), "home") == User(name)
