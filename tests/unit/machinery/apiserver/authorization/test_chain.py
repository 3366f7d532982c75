"""The chain of authorizers: its steps, and decisions on the present state of the store."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.machinery.apiserver.authorization import groups
from atoll.machinery.apiserver.authorization.attributes import Attributes, Decision
from atoll.machinery.apiserver.authorization.authorizer import Authorizer
from atoll.machinery.apiserver.authorization.chain import STEPS
from atoll.machinery.apiserver.authorization.effective_users import SCOPES, WARRANT, encode_warrant
from atoll.machinery.meta.user import ANONYMOUS_USER, AUTHENTICATED, CLUSTER_NAME, MASTERS, User
from harness.models.rbac_snapshot import (
    FakeStore,
    binding,
    bootstrap,
    logical_cluster,
    role,
    rule,
    subject,
    urls,
    workspace,
)

ALICE = User("alice", (AUTHENTICATED,))
BOB = User("bob", (AUTHENTICATED,))
KCP_ADMIN = User("kcp-admin", (groups.KCP_ADMIN, AUTHENTICATED))
MASTER = User("root", (MASTERS, AUTHENTICATED))
WEB = "2web"


@pytest.fixture
def store() -> FakeStore:
    made = FakeStore()
    bootstrap(made)
    workspace(made, "root", owner="nobody")
    workspace(made, WEB, owner="alice")
    return made


@pytest.fixture
def authorizer() -> Authorizer:
    return Authorizer()


def ask(user: User, verb: str = "get", cluster: str = WEB, **fields: Any) -> Attributes:
    if not fields:
        fields = {"resource": "configmaps", "namespace": "default", "name": "c"}
    return Attributes(user=user, verb=verb, cluster=cluster, **fields)


def account(cluster: str, name: str = "builder", *more_groups: str) -> User:
    held = ("system:serviceaccounts", "system:serviceaccounts:ns", AUTHENTICATED, *more_groups)
    return User(f"system:serviceaccount:ns:{name}", held, "u1", {CLUSTER_NAME: (cluster,)})


def step_of(decision: Decision) -> str:
    return decision.steps[-1].name


def test_the_order_of_the_steps_is_kcps() -> None:
    assert [name for name, _ in STEPS] == [
        "masters",
        "paths",
        "01-requiredgroups",
        "02-content",
        "03-systemcrd",
        "04-maxpermissionpolicy",
        "05-bootstrap",
        "05-local",
        "05-global",
    ]


def test_masters_may_do_everything_everywhere_even_where_no_workspace_is(
    store: FakeStore, authorizer: Authorizer
) -> None:
    for cluster in (WEB, "nowhere", "system:admin", ""):
        assert authorizer.authorize(store, ask(MASTER, "delete", cluster)).allowed


def test_health_is_open_to_all_but_nothing_below_it(store: FakeStore, authorizer: Authorizer) -> None:
    for path in ("/healthz", "/livez", "/readyz"):
        assert authorizer.authorize(store, ask(ANONYMOUS_USER, cluster="", path=path)).allowed
    assert not authorizer.authorize(store, ask(ANONYMOUS_USER, cluster="", path="/healthz/log")).allowed


def test_an_owner_is_admin_in_the_own_workspace_and_a_stranger_does_not_get_in(
    store: FakeStore, authorizer: Authorizer
) -> None:
    allowed = authorizer.authorize(store, ask(ALICE, "create"))
    assert allowed.allowed
    assert allowed.reason == (
        'RBAC: allowed by ClusterRoleBinding "workspace-admin" of ClusterRole "cluster-admin" to User "alice"'
    )
    refused = authorizer.authorize(store, ask(BOB))
    assert not refused.allowed
    assert not refused.denied
    assert refused.reason == "workspace access not permitted"


def test_unknown_and_forbidden_workspaces_are_refused_in_the_same_words(
    store: FakeStore, authorizer: Authorizer
) -> None:
    forbidden = authorizer.authorize(store, ask(BOB))
    unknown = authorizer.authorize(store, ask(BOB, cluster="nowhere"))
    assert (forbidden.allowed, forbidden.reason) == (unknown.allowed, unknown.reason)


def test_access_alone_lets_in_but_grants_nothing(store: FakeStore, authorizer: Authorizer) -> None:
    store.put(WEB, binding("door", "system:kcp:workspace:access", "User:bob"))
    refused = authorizer.authorize(store, ask(BOB))
    assert (refused.allowed, refused.reason, step_of(refused)) == (False, "access denied", "05-global")
    assert authorizer.authorize(store, ask(BOB, path="/api")).allowed  # discovery, by bootstrap


def test_rights_without_access_do_not_let_in(store: FakeStore, authorizer: Authorizer) -> None:
    store.put(WEB, binding("reader", "view", "User:bob"))
    assert step_of(authorizer.authorize(store, ask(BOB))) == "02-content"
    store.put(WEB, binding("door", "system:kcp:workspace:access", "User:bob"))
    assert authorizer.authorize(store, ask(BOB)).allowed
    assert not authorizer.authorize(store, ask(BOB, "create")).allowed


def test_access_by_a_rolebinding_does_not_open_the_door(store: FakeStore, authorizer: Authorizer) -> None:
    store.put(WEB, binding("door", "system:kcp:workspace:access", "User:bob", namespace="default"))
    assert not authorizer.authorize(store, ask(BOB)).allowed


def test_system_clusters_and_cluster_less_requests_are_for_masters(store: FakeStore, authorizer: Authorizer) -> None:
    for user in (KCP_ADMIN, ALICE, User("x", (groups.LOGICAL_CLUSTER_ADMIN,))):
        for cluster in ("system:admin", "system:shard", ""):
            assert not authorizer.authorize(store, ask(user, cluster=cluster)).allowed


def test_system_clusters_stay_closed_though_they_have_a_logical_cluster(
    store: FakeStore, authorizer: Authorizer
) -> None:
    store.put("system:admin", logical_cluster())
    assert not authorizer.authorize(store, ask(KCP_ADMIN, cluster="system:admin")).allowed


def test_metrics_of_the_shard_are_judged_by_the_rbac_of_root(store: FakeStore, authorizer: Authorizer) -> None:
    question = ask(BOB, cluster="", path="/metrics")
    assert not authorizer.authorize(store, question).allowed
    store.put("root", role("metrics", urls("get", "/metrics")))
    store.put("root", binding("metrics", "metrics", "User:bob"))
    assert authorizer.authorize(store, question).allowed
    assert not authorizer.authorize(store, ask(BOB, cluster=WEB, path="/metrics")).allowed


@pytest.mark.parametrize(
    ("phase", "open_"),
    [
        ("Scheduling", False),
        ("Unavailable", False),
        ("", False),
        ("Made up", False),
        ("Initializing", True),
        ("Ready", True),
        ("Inactive", True),
        ("Terminating", True),
        ("Deleting", True),
    ],
)
def test_only_some_phases_let_people_in(store: FakeStore, authorizer: Authorizer, phase: str, open_: bool) -> None:
    store.put(WEB, logical_cluster(phase))
    assert authorizer.authorize(store, ask(ALICE)).allowed is open_


def test_logical_cluster_admins_pass_the_door_but_still_need_rights(store: FakeStore, authorizer: Authorizer) -> None:
    controller = User("controller", (groups.LOGICAL_CLUSTER_ADMIN, AUTHENTICATED))
    rights = rule("*", "logicalclusters,logicalclusters/status", "core.kcp.io")
    store.put("system:admin", role("system:kcp:logical-cluster-admin", rights))
    role_name = "system:kcp:logical-cluster-admin"
    store.put("system:admin", binding(role_name, role_name, f"Group:{groups.LOGICAL_CLUSTER_ADMIN}"))
    wanted = {"group": "core.kcp.io", "resource": "logicalclusters", "name": "cluster"}
    assert authorizer.authorize(store, ask(controller, "create", "brandnew", **wanted)).allowed
    assert not authorizer.authorize(store, ask(controller)).allowed


@pytest.mark.parametrize("group", ["system:kcp:initializer:root:universal", "system:kcp:terminator:a:b"])
def test_lifecycle_groups_open_everything_in_their_phases_only(
    store: FakeStore, authorizer: Authorizer, group: str
) -> None:
    user = User("initializer", (group, AUTHENTICATED))
    for phase, open_ in [("Initializing", True), ("Ready", False), ("Terminating", True), ("Deleting", True)]:
        store.put(WEB, logical_cluster(phase))
        assert authorizer.authorize(store, ask(user, "create")).allowed is open_


def test_a_warrant_with_a_lifecycle_group_opens_nothing(store: FakeStore, authorizer: Authorizer) -> None:
    """The shard's views give the group to the caller itself; a warrant is what anybody may bring along."""
    store.put(WEB, logical_cluster("Initializing"))
    group = "system:kcp:initializer:root:universal"
    warranted = encode_warrant(User("initializer", (group, AUTHENTICATED)))
    assert authorizer.authorize(store, ask(User("i", (group, AUTHENTICATED)), "create")).allowed
    user = User("bob", (AUTHENTICATED,), extra={WARRANT: (warranted,)})
    assert not authorizer.authorize(store, ask(user, "create")).allowed


class TestRequiredGroups:
    def require(self, store: FakeStore, text: str) -> None:
        store.put(WEB, logical_cluster(authorization__x="", **{"authorization.kcp.io__required-groups": text}))

    @pytest.mark.parametrize(
        ("required", "held", "allowed"),
        [
            ("a", (), False),
            ("a", ("a",), True),
            ("a,b", ("a",), False),
            ("a,b", ("b", "a"), True),
            ("a,b;c", ("c",), True),
            ("a;b", ("b",), True),
            ("a;b", ("c",), False),
            ("", (), False),
        ],
    )
    def test_are_an_or_of_ands(
        self, store: FakeStore, authorizer: Authorizer, required: str, held: tuple[str, ...], allowed: bool
    ) -> None:
        self.require(store, required)
        decision = authorizer.authorize(store, ask(User("alice", (*held, AUTHENTICATED))))
        assert decision.allowed is allowed
        assert decision.denied is not allowed

    @pytest.mark.parametrize("group", [groups.KCP_ADMIN, groups.WORKSPACE_BOOTSTRAPPER])
    def test_are_passed_by_the_systems_own_administrators(
        self, store: FakeStore, authorizer: Authorizer, group: str
    ) -> None:
        self.require(store, "a")
        assert authorizer.authorize(store, ask(User("alice", (group, AUTHENTICATED)))).allowed

    def test_do_not_bind_service_accounts(self, store: FakeStore, authorizer: Authorizer) -> None:
        self.require(store, "a")
        store.put(WEB, binding("sa", "cluster-admin", "ServiceAccount:ns/builder"))
        assert authorizer.authorize(store, ask(account(WEB))).allowed

    def test_are_not_met_by_groups_that_are_out_of_scope(self, store: FakeStore, authorizer: Authorizer) -> None:
        self.require(store, "a")
        user = User("alice", ("a", AUTHENTICATED), extra={SCOPES: ("cluster:other",)})
        assert step_of(authorizer.authorize(store, ask(user))) == "01-requiredgroups"


@pytest.mark.parametrize("resource", ["apibindings", "apiexports"])
@pytest.mark.parametrize("verb", ["get", "update", "patch"])
def test_statuses_of_bindings_and_exports_are_closed_even_to_cluster_admins(
    store: FakeStore, authorizer: Authorizer, resource: str, verb: str
) -> None:
    wanted = {"group": "apis.kcp.io", "resource": resource, "name": "x"}
    assert authorizer.authorize(store, ask(KCP_ADMIN, verb, **wanted)).allowed
    decision = authorizer.authorize(store, ask(KCP_ADMIN, verb, **wanted, subresource="status"))
    assert decision.denied
    assert decision.reason == "access denied"
    assert authorizer.authorize(store, ask(MASTER, verb, **wanted, subresource="status")).allowed


class TestMaximalPermissionPolicy:
    WORKSPACES = {"group": "tenancy.kcp.io", "resource": "workspaces"}  # noqa: RUF012

    @pytest.fixture(autouse=True)
    def bound(self, store: FakeStore) -> None:
        policy: dict[str, Any] = {"maximalPermissionPolicy": {"local": {}}}
        store.put("root", {"kind": "APIExport", "metadata": {"name": "tenancy.kcp.io"}, "spec": policy})
        resources = [{"group": "tenancy.kcp.io", "resource": "workspaces"}]
        store.put(
            WEB,
            {
                "kind": "APIBinding",
                "metadata": {"name": "tenancy"},
                "spec": {"reference": {"export": {"path": "root", "name": "tenancy.kcp.io"}}},
                "status": {"apiExportClusterName": "root", "boundResources": resources},
            },
        )

    def allow(self, store: FakeStore, subject_: str) -> None:
        store.put("root", role("max", rule("*", "workspaces", "tenancy.kcp.io")))
        store.put("root", binding("max", "max", subject_))

    def test_stops_even_the_owner_while_the_export_grants_nothing(
        self, store: FakeStore, authorizer: Authorizer
    ) -> None:
        assert step_of(authorizer.authorize(store, ask(ALICE, "create", **self.WORKSPACES))) == (
            "04-maxpermissionpolicy"
        )
        assert authorizer.authorize(store, ask(ALICE)).allowed  # other kinds are not affected

    @pytest.mark.parametrize(
        "subject_", ["User:apis.kcp.io:binding:alice", f"Group:apis.kcp.io:binding:{AUTHENTICATED}"]
    )
    def test_lets_through_what_the_export_grants_to_prefixed_names(
        self, store: FakeStore, authorizer: Authorizer, subject_: str
    ) -> None:
        self.allow(store, subject_)
        assert authorizer.authorize(store, ask(ALICE, "create", **self.WORKSPACES)).allowed

    def test_begins_with_the_binding(self, store: FakeStore, authorizer: Authorizer) -> None:
        workspace(store, "later", owner="alice")
        question = ask(ALICE, "create", "later", **self.WORKSPACES)
        assert authorizer.authorize(store, question).allowed
        store.put(
            "later",
            {
                "kind": "APIBinding",
                "metadata": {"name": "tenancy"},
                "spec": {"reference": {"export": {"path": "root", "name": "tenancy.kcp.io"}}},
                "status": {
                    "apiExportClusterName": "root",
                    "boundResources": [{"group": "tenancy.kcp.io", "resource": "workspaces"}],
                },
            },
        )
        assert not authorizer.authorize(store, question).allowed

    def test_is_only_an_upper_bound(self, store: FakeStore, authorizer: Authorizer) -> None:
        self.allow(store, f"Group:apis.kcp.io:binding:{AUTHENTICATED}")
        store.put(WEB, binding("door", "system:kcp:workspace:access", "User:bob"))
        assert not authorizer.authorize(store, ask(BOB, "create", **self.WORKSPACES)).allowed

    def test_does_not_take_unprefixed_names(self, store: FakeStore, authorizer: Authorizer) -> None:
        self.allow(store, "User:alice")
        assert not authorizer.authorize(store, ask(ALICE, "create", **self.WORKSPACES)).allowed

    def test_names_service_accounts_globally(self, store: FakeStore, authorizer: Authorizer) -> None:
        store.put(WEB, binding("sa", "cluster-admin", "ServiceAccount:ns/builder"))
        question = ask(account(WEB), "create", **self.WORKSPACES)
        self.allow(store, "User:apis.kcp.io:binding:system:serviceaccount:ns:builder")
        assert not authorizer.authorize(store, question).allowed
        self.allow(store, f"User:apis.kcp.io:binding:system:kcp:serviceaccount:{WEB}:ns:builder")
        assert authorizer.authorize(store, question).allowed

    def test_follows_a_change_in_the_exports_cluster_at_once(self, store: FakeStore, authorizer: Authorizer) -> None:
        question = ask(ALICE, "create", **self.WORKSPACES)
        self.allow(store, "User:apis.kcp.io:binding:alice")
        assert authorizer.authorize(store, question).allowed
        store.delete("root", "ClusterRoleBinding", "max")
        assert not authorizer.authorize(store, question).allowed

    def test_is_skipped_where_the_export_sets_none_or_is_gone(self, store: FakeStore, authorizer: Authorizer) -> None:
        question = ask(ALICE, "create", **self.WORKSPACES)
        assert not authorizer.authorize(store, question).allowed
        store.put("root", {"kind": "APIExport", "metadata": {"name": "tenancy.kcp.io"}, "spec": {}})
        assert authorizer.authorize(store, question).allowed

    def test_a_binding_that_does_not_say_where_its_export_is_lets_nobody_through(
        self, store: FakeStore, authorizer: Authorizer
    ) -> None:
        store.put(
            WEB,
            {
                "kind": "APIBinding",
                "metadata": {"name": "tenancy"},
                "spec": {"reference": {"export": {"name": "tenancy.kcp.io"}}},
                "status": {"boundResources": [{"group": "tenancy.kcp.io", "resource": "workspaces"}]},
            },
        )
        assert not authorizer.authorize(store, ask(ALICE, "create", **self.WORKSPACES)).allowed


class TestDeepReview:
    def test_skips_the_door_but_not_rbac(self, store: FakeStore, authorizer: Authorizer) -> None:
        store.put(WEB, binding("reader", "view", "User:bob"))
        assert authorizer.authorize(store, ask(BOB), deep=True).allowed
        assert not authorizer.authorize(store, ask(BOB)).allowed  # not cached for ordinary requests
        assert not authorizer.authorize(store, ask(BOB, "create"), deep=True).allowed


class TestForeignIdentities:
    def test_a_service_account_is_itself_in_its_own_cluster_only(
        self, store: FakeStore, authorizer: Authorizer
    ) -> None:
        workspace(store, "other", owner="x")
        for cluster in (WEB, "other"):
            store.put(cluster, binding("sa", "cluster-admin", "ServiceAccount:ns/builder"))
            store.put(cluster, binding("all", "cluster-admin", "Group:system:serviceaccounts"))
        assert authorizer.authorize(store, ask(account(WEB), cluster=WEB)).allowed
        assert not authorizer.authorize(store, ask(account(WEB), cluster="other")).allowed

    def test_a_foreign_service_account_does_not_get_in_as_somebody_authenticated(
        self, store: FakeStore, authorizer: Authorizer
    ) -> None:
        store.put(WEB, binding("all", "view", f"Group:{AUTHENTICATED}"))
        assert step_of(authorizer.authorize(store, ask(account("other")))) == "02-content"

    def test_a_foreign_service_account_has_what_its_global_name_was_granted(
        self, store: FakeStore, authorizer: Authorizer
    ) -> None:
        workspace(store, "other", owner="x")
        store.put("other", binding("sa", "cluster-admin", f"User:system:kcp:serviceaccount:{WEB}:ns:builder"))
        assert authorizer.authorize(store, ask(account(WEB), cluster="other")).allowed
        assert not authorizer.authorize(store, ask(account("third"), cluster="other")).allowed

    def test_users_out_of_scope_count_as_somebody_authenticated_from_a_cluster(
        self, store: FakeStore, authorizer: Authorizer
    ) -> None:
        scoped = User("alice", ("devs", AUTHENTICATED), extra={SCOPES: ("cluster:other",)})
        assert not authorizer.authorize(store, ask(scoped)).allowed
        store.put(WEB, binding("guests", "cluster-admin", "Group:system:cluster:other"))
        assert authorizer.authorize(store, ask(scoped)).allowed

    def test_scoped_masters_are_masters_in_scope_only(self, store: FakeStore, authorizer: Authorizer) -> None:
        scoped = User("root", (MASTERS, AUTHENTICATED), extra={SCOPES: (f"cluster:{WEB}",)})
        assert authorizer.authorize(store, ask(scoped, "delete")).allowed
        assert not authorizer.authorize(store, ask(scoped, "delete", cluster="root")).allowed
        assert not authorizer.authorize(store, ask(scoped, "list", cluster="")).allowed

    def test_a_warrant_adds_the_rights_of_its_user(self, store: FakeStore, authorizer: Authorizer) -> None:
        warrant = '{"user": "alice", "groups": ["system:authenticated"]}'
        helper = User("helper", (AUTHENTICATED,), extra={WARRANT: (warrant,)})
        assert authorizer.authorize(store, ask(helper)).allowed
        scoped = '{"user": "alice", "extra": {"authentication.kcp.io/scopes": ["cluster:other"]}}'
        helper = User("helper", (AUTHENTICATED,), extra={WARRANT: (scoped,)})
        assert not authorizer.authorize(store, ask(helper)).allowed


class TestFreshness:
    """Caches are keyed by the versions in the request's own snapshot."""

    def test_a_revoked_binding_is_gone_in_the_next_request(self, store: FakeStore, authorizer: Authorizer) -> None:
        assert authorizer.authorize(store, ask(ALICE)).allowed
        store.delete(WEB, "ClusterRoleBinding", "workspace-admin")
        assert not authorizer.authorize(store, ask(ALICE)).allowed

    @pytest.mark.parametrize("cluster", [WEB, "system:admin"])
    def test_a_changed_role_counts_in_the_next_request(
        self, store: FakeStore, authorizer: Authorizer, cluster: str
    ) -> None:
        store.put(cluster, role("editor", rule("create", "configmaps"), urls("access", "/")))
        store.put(WEB, binding("editor", "editor", "User:bob"))
        assert authorizer.authorize(store, ask(BOB, "create")).allowed
        store.put(cluster, role("editor", rule("get", "configmaps"), urls("access", "/")))
        assert not authorizer.authorize(store, ask(BOB, "create")).allowed
        assert authorizer.authorize(store, ask(BOB, "get")).allowed

    def test_a_local_cluster_role_hides_the_one_of_system_admin(self, store: FakeStore, authorizer: Authorizer) -> None:
        assert authorizer.authorize(store, ask(ALICE, "create")).allowed
        store.put(WEB, role("cluster-admin", rule("get", "*", "*"), urls("*", "*")))
        assert not authorizer.authorize(store, ask(ALICE, "create")).allowed
        assert authorizer.authorize(store, ask(ALICE, "get")).allowed

    def test_a_new_grant_counts_in_the_next_request(self, store: FakeStore, authorizer: Authorizer) -> None:
        assert not authorizer.authorize(store, ask(BOB)).allowed
        store.put(WEB, binding("second", "cluster-admin", "User:bob"))
        assert authorizer.authorize(store, ask(BOB)).allowed

    def test_a_deleted_workspace_is_closed_in_the_next_request(self, store: FakeStore, authorizer: Authorizer) -> None:
        assert authorizer.authorize(store, ask(ALICE)).allowed
        store.delete(WEB, "LogicalCluster", "cluster")
        assert not authorizer.authorize(store, ask(ALICE)).allowed

    def test_an_older_snapshot_is_answered_as_of_then_and_spoils_nothing(
        self, store: FakeStore, authorizer: Authorizer
    ) -> None:
        before = store.frozen()
        store.delete(WEB, "ClusterRoleBinding", "workspace-admin")
        for _ in range(2):
            assert not authorizer.authorize(store, ask(ALICE)).allowed
            assert authorizer.authorize(before, ask(ALICE)).allowed

    def test_a_name_that_one_rule_allows_is_not_remembered_for_others(
        self, store: FakeStore, authorizer: Authorizer
    ) -> None:
        store.put(WEB, role("one", rule("get", "configmaps", names="c"), urls("access", "/")))
        store.put(WEB, binding("one", "one", "User:bob"))
        wanted = {"resource": "configmaps", "namespace": "default"}
        for _ in range(2):
            assert authorizer.authorize(store, ask(BOB, **wanted, name="c")).allowed
            assert not authorizer.authorize(store, ask(BOB, **wanted, name="d")).allowed
            assert not authorizer.authorize(store, ask(BOB, **wanted)).allowed

    @pytest.mark.parametrize("fields", [{}, {"names": "cluster"}], ids=["every name", "its name"])
    def test_access_on_the_logical_cluster_lets_in_as_the_path_does(
        self, store: FakeStore, authorizer: Authorizer, fields: dict[str, str]
    ) -> None:
        reads = rule("get", "configmaps")
        store.put(WEB, binding("enters", "enters", "User:bob"))
        enter = rule("access", "logicalclusters", "core.kcp.io", **fields)
        store.put(WEB, role("enters", reads, enter))
        decision = authorizer.authorize(store, ask(BOB))
        assert decision.allowed
        assert decision.lasting
        for other in (
            rule("get", "logicalclusters", "core.kcp.io", **fields),
            rule("access", "logicalclusters", "other.kcp.io", **fields),
            rule("access", "logicalclusters/status", "core.kcp.io", **fields),
            rule("access", "logicalclusters", "core.kcp.io", names="other"),
        ):
            store.put(WEB, role("enters", reads, other))
            assert not authorizer.authorize(store, ask(BOB)).allowed

    def test_a_decision_once_made_reads_no_objects_again(self, store: FakeStore, authorizer: Authorizer) -> None:
        authorizer.authorize(store, ask(ALICE))
        store.put(WEB, {"kind": "ConfigMap", "metadata": {"name": "unrelated", "namespace": "default"}})
        store.reads.clear()
        authorizer.authorize(store, ask(ALICE))
        assert store.reads["scan"] == store.reads["get"] == 0

    def test_workspaces_with_the_same_rbac_share_one_policy(self, store: FakeStore, authorizer: Authorizer) -> None:
        clusters = [f"w{n}" for n in range(20)]
        for cluster in clusters:
            workspace(store, cluster, owner="alice")
            assert authorizer.authorize(store, ask(ALICE, cluster=cluster)).allowed
        policies = authorizer.policies
        states = [policies.state(store, name, authorizer.versions.of(store, name)) for name in clusters]
        assert len({id(state.policy) for state in states}) == 1
        assert len({id(state.bound) for state in states}) == 1

    def test_what_is_allowed_of_the_shard_itself_is_not_allowed_of_all_clusters(
        self, store: FakeStore, authorizer: Authorizer
    ) -> None:
        store.put("root", role("metrics", urls("get", "/metrics")))
        store.put("root", binding("metrics", "metrics", "User:bob"))
        for wildcard, allowed in ((False, True), (True, False), (False, True)):
            question = ask(BOB, cluster="", path="/metrics", wildcard=wildcard)
            assert authorizer.authorize(store, question).allowed is allowed


class TestAudit:
    def test_every_step_names_itself(self, store: FakeStore, authorizer: Authorizer) -> None:
        said = authorizer.authorize(store, ask(ALICE)).annotations()
        assert said["authorization.k8s.io/decision"] == "allow"
        assert said["request.auth.kcp.io/01-requiredgroups-decision"] == "Allowed"
        assert said["request.auth.kcp.io/02-content-reason"] == "delegating due to user logical cluster access"
        assert said["request.auth.kcp.io/05-bootstrap-decision"] == "NoOpinion"
        assert said["request.auth.kcp.io/05-local-decision"] == "Allowed"
        assert said["request.auth.kcp.io/05-local-reason"].startswith("RBAC: allowed by")

    def test_a_refusal_says_where_and_why(self, store: FakeStore, authorizer: Authorizer) -> None:
        said = authorizer.authorize(store, ask(BOB)).annotations("sar.auth.kcp.io")
        assert said["authorization.k8s.io/decision"] == "forbid"
        assert said["sar.auth.kcp.io/01-requiredgroups-decision"] == "NoOpinion"
        assert said["sar.auth.kcp.io/02-content-reason"] == "no verb=access permission on /"


def test_rules_list_what_is_held_in_a_namespace(store: FakeStore, authorizer: Authorizer) -> None:
    store.put(WEB, role("mine", rule("update", "secrets"), namespace="default"))
    store.put(WEB, binding("mine", "mine", "User:bob", namespace="default", role_kind="Role"))
    store.put(WEB, binding("ghost", "ghost", "User:bob"))
    found = authorizer.rules(store, BOB, WEB, "default")
    assert [(r.verbs, r.resources) for r in found.rules if r.resources] == [(("update",), ("secrets",))]
    assert found.errors == ['clusterroles.rbac.authorization.k8s.io "ghost" not found']
    assert all("secrets" not in r.resources for r in authorizer.rules(store, BOB, WEB, "kube-system").rules)
    assert authorizer.rules(store, MASTER, WEB, "").rules[0].verbs == ("*",)


def test_a_binding_of_unknown_subject_kind_grants_nothing(store: FakeStore, authorizer: Authorizer) -> None:
    odd = binding("odd", "cluster-admin")
    odd["subjects"] = [{"kind": "Robot", "name": "bob"}, subject("ServiceAccount:bob"), {"name": "bob"}]
    store.put(WEB, odd)
    assert not authorizer.authorize(store, ask(BOB)).allowed


def test_cached_decisions_are_weighed_with_the_texts_of_their_users(store: FakeStore) -> None:
    authorizer = Authorizer(max_bytes=100_000)
    for number in range(200):
        many = tuple(f"group-{number}-{index}" for index in range(100))
        authorizer.authorize(store, ask(User("alice", (AUTHENTICATED, *many))))
    # A key holds some 1,300 characters of groups.
    assert 0 < len(authorizer._decisions) <= 100_000 // 1300
