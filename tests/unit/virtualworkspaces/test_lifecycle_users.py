"""Whom a lifecycle view acts as in a workspace: scopes of the caller and of the creator stay in force."""

from __future__ import annotations

from typing import Any

from atoll.machinery.apiserver.authorization.effective_users import SCOPES, effective_users
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.user import AUTHENTICATED, CLUSTER_NAME, MASTERS, User
from atoll.virtualworkspaces.lifecycle import _owner, _with_group

HERE, HOME, GROUP = "2waiting", "3home", "system:kcp:initializer:root:type"
ROBOT = "system:serviceaccount:default:robot"


def robot(*scopes: str) -> User:
    """A service account of another workspace."""
    extra: dict[str, tuple[str, ...]] = {CLUSTER_NAME: (HOME,)}
    return User(ROBOT, (AUTHENTICATED, "team"), "u", {**extra, SCOPES: scopes} if scopes else extra)


def created_by(**fields: Any) -> Object:
    return {"spec": {"createdBy": {"username": "alice", "uid": "u", **fields}}}


def test_a_service_account_of_another_workspace_enters_by_its_global_name_and_the_group_alone() -> None:
    acting = _with_group(robot(), HERE, GROUP)
    assert acting is not None and acting.groups == (AUTHENTICATED, GROUP)
    assert acting.name != ROBOT and HOME in acting.name


def test_a_caller_who_is_scoped_to_another_workspace_acts_as_nobody() -> None:
    for caller in (robot(f"cluster:{HOME}"), User("alice", (AUTHENTICATED,), "u", {SCOPES: (f"cluster:{HOME}",)})):
        assert _with_group(caller, HERE, GROUP) is None


def test_the_creator_is_held_to_the_scopes_of_the_creation() -> None:
    acting = _owner(created_by(), HERE)
    assert acting is not None and effective_users(acting, HERE).in_scope and not effective_users(acting, HOME).in_scope
    acting = _owner(created_by(extra={SCOPES: [f"cluster:{HOME}"]}), HERE)
    assert acting is not None and not effective_users(acting, HERE).in_scope


def test_no_creator_acts_as_a_master() -> None:
    acting = _owner(created_by(groups=[MASTERS, "team"]), HERE)
    assert acting is not None and acting.groups == ("team",)
    assert _owner({"spec": {}}, HERE) is None
