"""Which rule matches a request, and in which of the roles a binding finds it."""

from __future__ import annotations

import pytest

from atoll.machinery.apiserver.authorization.attributes import Attributes
from atoll.machinery.apiserver.authorization.effective_users import EffectiveUser
from atoll.machinery.apiserver.authorization.rbac import ROLE, Grant, Policy, Rule, Subjects, first_match
from atoll.machinery.meta.user import User

ALICE = User("alice")
GRANT = Grant("RoleBinding", "b", "ns", ROLE, "reader", 'User "alice"')


def policy(rule: Rule, *, cluster_role: bool = False) -> Policy:
    """A binding of the namespace `ns` to the role `reader`, which is where the rule stands unless it is elsewhere."""
    roles = {} if cluster_role else {("ns", "reader"): (rule,)}
    subjects = Subjects({"alice": (GRANT,)})
    return Policy({"reader": (rule,)} if cluster_role else {}, roles, subjects, {"ns": subjects}, 1)


def is_granted(rule: Rule, attributes: Attributes, *, cluster_role: bool = False) -> bool:
    held = policy(rule, cluster_role=cluster_role)
    return first_match(held, (held,), [EffectiveUser("alice", ())], attributes).grant is not None


@pytest.mark.parametrize(
    ("url", "path", "granted"),
    [
        ("/api/*", "/api/v1", True),
        ("/api/*", "/api/", True),
        ("/api/*", "/api", False),
        ("/api/*", "/apis", False),
        ("/api*", "/apis", True),
        ("/api", "/api/v1", False),
    ],
)
def test_a_pattern_of_paths_covers_what_follows_its_slash(url: str, path: str, granted: bool) -> None:
    assert is_granted(Rule(("get",), urls=(url,)), Attributes(user=ALICE, verb="get", path=path)) is granted


def test_names_of_objects_do_not_narrow_paths() -> None:
    rule = Rule(("get",), names=("a",), urls=("/version",))
    assert is_granted(rule, Attributes(user=ALICE, verb="get", path="/version"))


def test_a_binding_to_a_role_finds_no_cluster_role_of_its_name() -> None:
    rule = Rule(("get",), ("",), ("configmaps",))
    attributes = Attributes(user=ALICE, verb="get", resource="configmaps", namespace="ns", name="c")
    assert is_granted(rule, attributes)
    assert not is_granted(rule, attributes, cluster_role=True)
