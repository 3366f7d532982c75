"""Escalation: an author of RBAC can grant only the rights that the author holds."""

from __future__ import annotations

import pytest

from atoll.machinery.apiserver.authorization import escalation
from atoll.machinery.apiserver.authorization.authorizer import Authorizer
from atoll.machinery.apiserver.authorization.effective_users import SCOPES
from atoll.machinery.apiserver.authorization.escalation import Author, check_binding_write, check_role_write
from atoll.machinery.apiserver.authorization.rbac import Rule
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import Forbidden, NotFound
from atoll.machinery.meta.user import AUTHENTICATED, MASTERS, User
from harness.models.rbac_snapshot import FakeStore, binding, bootstrap, role, rule, urls, workspace

WEB = "2web"
BOB = User("bob", ("devs", AUTHENTICATED))
RBAC = "rbac.authorization.k8s.io"


@pytest.fixture
def store() -> FakeStore:
    made = FakeStore()
    bootstrap(made)
    workspace(made, WEB)
    made.put(WEB, binding("door", "system:kcp:workspace:access", "User:bob"))
    return made


def author(store: FakeStore, user: User = BOB) -> Author:
    return Author(Authorizer(), store, user, WEB)


def hold(store: FakeStore, *rules: Object, namespace: str = "") -> None:
    """Grant rules to bob, cluster-wide or in a namespace."""
    store.put(WEB, role("held", *rules))
    store.put(WEB, binding("held", "held", "User:bob", namespace=namespace))


def test_what_is_not_held_is_refused_with_the_missing_rules(store: FakeStore) -> None:
    hold(store, rule("get", "configmaps"))
    with pytest.raises(Forbidden) as refused:
        check_role_write(author(store), role("new", rule("get,list,watch", "configmaps,secrets")))
    assert refused.value.message == (
        'clusterroles.rbac.authorization.k8s.io "new" is forbidden: '
        'user "bob" (groups=["devs" "system:authenticated"]) is attempting to grant RBAC permissions not '
        "currently held:\n"
        '{APIGroups:[""], Resources:["configmaps"], Verbs:["list" "watch"]}\n'
        '{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list" "watch"]}'
    )


@pytest.mark.parametrize(
    ("held", "granted", "allowed"),
    [
        (rule("*", "*", "*"), rule("get", "pods/log", "apps"), True),
        (rule("get,list", "a,b"), rule("get", "b"), True),
        (rule("get", "a"), rule("*", "a"), False),
        (rule("get", "a"), rule("get", "*"), False),
        (rule("get", "a", "x"), rule("get", "a", "*"), False),
        (rule("get", "a"), rule("get", "a", names="n"), True),
        (rule("get", "a", names="n"), rule("get", "a"), False),
        (rule("get", "a", names="n,m"), rule("get", "a", names="m"), True),
        (rule("get", "a", names="n"), rule("get", "a", names="n,m"), False),
        (rule("get", "*/scale"), rule("get", "things/scale"), True),
        (rule("get", "*/scale"), rule("get", "things"), False),
        (rule("get", "things"), rule("get", "things/scale"), False),
        (urls("get", "/metrics"), urls("get", "/metrics"), True),
        (urls("get", "/api/*"), urls("get", "/api/x/*"), True),
        (urls("get", "/mine/*"), urls("get", "/mines"), False),
        (urls("get", "*"), urls("get", "/anything"), True),
        (urls("get", "/a"), urls("*", "/a"), False),
        (rule("*", "*", "apps"), urls("get", "/a"), False),
    ],
)
def test_rules_cover_rules(store: FakeStore, held: Object, granted: Object, allowed: bool) -> None:
    hold(store, held)
    if allowed:
        check_role_write(author(store), role("new", granted))
        return
    with pytest.raises(Forbidden):
        check_role_write(author(store), role("new", granted))


def test_rules_held_in_a_namespace_can_be_granted_there_only(store: FakeStore) -> None:
    hold(store, rule("get", "configmaps"), namespace="team")
    check_role_write(author(store), role("new", rule("get", "configmaps"), namespace="team"))
    for refused in (role("new", rule("get", "configmaps"), namespace="x"), role("new", rule("get", "configmaps"))):
        with pytest.raises(Forbidden):
            check_role_write(author(store), refused)


def test_the_verb_escalate_on_the_role_frees_from_the_check(store: FakeStore) -> None:
    hold(store, rule("escalate", "clusterroles", RBAC, "new"))
    check_role_write(author(store), role("new", rule("*", "*", "*")))
    with pytest.raises(Forbidden):
        check_role_write(author(store), role("other", rule("*", "*", "*")))
    with pytest.raises(Forbidden):
        check_role_write(author(store), role("new", rule("*", "*", "*"), namespace="team"))


def test_masters_grant_anything_but_only_in_scope(store: FakeStore) -> None:
    everything = role("new", rule("*", "*", "*"))
    check_role_write(author(store, User("root", (MASTERS,))), everything)
    scoped = User("root", (MASTERS,), extra={SCOPES: ("cluster:elsewhere",)})
    with pytest.raises(Forbidden):
        check_role_write(author(store, scoped), everything)


def test_taking_owners_or_finalizers_off_grants_nothing(store: FakeStore) -> None:
    old = role("new", rule("*", "*", "*"))
    old["metadata"] |= {"finalizers": ["x"], "ownerReferences": [{"uid": "1"}]}
    new = {**old, "metadata": {"name": "new"}}
    check_role_write(author(store), new, old)
    with pytest.raises(Forbidden):
        check_role_write(author(store), {**new, "rules": [rule("get", "*")]}, old)
    with pytest.raises(Forbidden):
        # A label can make another role aggregate this one.
        check_role_write(author(store), {**new, "metadata": {"name": "new", "labels": {"aggregate": "yes"}}}, old)


def test_aggregation_takes_full_authority(store: FakeStore) -> None:
    aggregated = role("new") | {"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}}
    hold(store, rule("*", "*", "apps"))
    with pytest.raises(Forbidden, match="must have cluster-admin privileges to use the aggregationRule"):
        check_role_write(author(store), aggregated)
    with pytest.raises(Forbidden):
        check_role_write(author(store), role("new"), aggregated)
    hold(store, rule("*", "*", "*"), urls("*", "*"))
    check_role_write(author(store), aggregated)


def test_what_is_not_compared_is_refused(store: FakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    hold(store, rule("get", "a,b"), rule("list", "a,b"))
    check_role_write(author(store), role("new", rule("get,list", "a,b"), rule("get", "a")))
    monkeypatch.setattr(escalation, "MAX_COMPARISONS", 9)
    for rules in ([rule("get,list", "a,b"), rule("get", "a")], [rule("get", "a")] * 10):
        with pytest.raises(Forbidden, match="not currently held"):
            check_role_write(author(store), role("new", *rules))


def test_comparisons_are_bounded_over_all_rules_of_a_role(store: FakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """An author with many rules, and a role of many rules: their product would hold the event loop for seconds."""
    hold(store, *(rule("get", f"held{number}") for number in range(300)))
    compared: list[Rule] = []
    covers = escalation._covers

    def counted(owned: Rule, other: Rule) -> bool:
        compared.append(other)
        return covers(owned, other)

    monkeypatch.setattr(escalation, "_covers", counted)
    with pytest.raises(Forbidden):
        check_role_write(author(store), role("new", *(rule("get,list", f"x{number},y") for number in range(5000))))
    assert 0 < len(compared) <= escalation.MAX_COMPARISONS


class TestBindings:
    def test_need_the_rules_of_the_role(self, store: FakeStore) -> None:
        hold(store, rule("get,list", "configmaps"))
        with pytest.raises(Forbidden, match=r'clusterrolebindings.* "new" is forbidden: user "bob"'):
            check_binding_write(author(store), binding("new", "view", "User:eve"))
        hold(store, rule("get,list,watch", "configmaps"))
        check_binding_write(author(store), binding("new", "view", "User:eve"))

    def test_or_the_verb_bind_on_it(self, store: FakeStore) -> None:
        hold(store, rule("bind", "clusterroles", RBAC, "cluster-admin"))
        check_binding_write(author(store), binding("new", "cluster-admin", "User:eve"))
        check_binding_write(author(store), binding("new", "cluster-admin", "User:eve", namespace="team"))
        with pytest.raises(Forbidden):
            check_binding_write(author(store), binding("new", "view", "User:eve"))

    def test_bind_in_a_namespace_does_not_reach_the_cluster(self, store: FakeStore) -> None:
        hold(store, rule("bind", "clusterroles", RBAC), namespace="team")
        check_binding_write(author(store), binding("new", "cluster-admin", "User:eve", namespace="team"))
        with pytest.raises(Forbidden):
            check_binding_write(author(store), binding("new", "cluster-admin", "User:eve"))

    def test_to_a_missing_role_need_bind(self, store: FakeStore) -> None:
        with pytest.raises(NotFound, match=r'clusterroles.rbac.authorization.k8s.io "ghost" not found'):
            check_binding_write(author(store), binding("new", "ghost", "User:eve"))
        hold(store, rule("bind", "clusterroles", RBAC))
        check_binding_write(author(store), binding("new", "ghost", "User:eve"))

    def test_of_a_role_are_judged_by_the_role_of_their_namespace(self, store: FakeStore) -> None:
        store.put(WEB, role("team", rule("get", "secrets"), namespace="team"))
        wanted = binding("new", "team", "User:eve", namespace="team", role_kind="Role")
        with pytest.raises(Forbidden):
            check_binding_write(author(store), wanted)
        hold(store, rule("get", "secrets"), namespace="team")
        check_binding_write(author(store), wanted)

    def test_missing_roles_of_the_author_are_told(self, store: FakeStore) -> None:
        store.put(WEB, binding("gone", "gone", "User:bob"))
        with pytest.raises(Forbidden, match=r'; resolution errors: \[clusterroles.* "gone" not found\]'):
            check_binding_write(author(store), binding("new", "view", "User:eve"))
