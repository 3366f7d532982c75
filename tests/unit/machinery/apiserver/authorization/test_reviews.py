"""Access and token reviews: the authorizer's decisions in Kubernetes' format."""

from __future__ import annotations

import pytest

from atoll.machinery.apiserver.authentication.authenticator import BearerTokens
from atoll.machinery.apiserver.authentication.tokens import StaticTokens, parse_token_file
from atoll.machinery.apiserver.authorization.authorizer import Authorizer
from atoll.machinery.apiserver.authorization.effective_users import SCOPES
from atoll.machinery.apiserver.call.call import Call
from atoll.machinery.apiserver.call.preferences import DEEP_HEADER
from atoll.machinery.apiserver.call.requestinfo import parse
from atoll.machinery.apiserver.serving.reviews import Reviews, is_deep
from atoll.machinery.kinds import reviews as kinds
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import BadRequest, Invalid
from atoll.machinery.meta.user import AUTHENTICATED, CLUSTER_NAME, MASTERS, User
from atoll.machinery.wire.exchange import HttpRequest, Peer
from harness.models.rbac_snapshot import FakeStore, binding, bootstrap, role, rule, urls, workspace

WEB = "2web"
ALICE, BOB = User("alice", (AUTHENTICATED,)), User("bob", (AUTHENTICATED,))
MASTER = User("root", (MASTERS,))
CREATE_SECRETS = {"verb": "create", "resource": "secrets", "namespace": "n"}


@pytest.fixture
def store() -> FakeStore:
    made = FakeStore()
    bootstrap(made)
    workspace(made, WEB, owner="alice")
    return made


@pytest.fixture
def reviews() -> Reviews:
    table = StaticTokens(parse_token_file('good,carol,7,"devs"\n'), ("api",))
    return Reviews(Authorizer(), BearerTokens((table,), ("api",)))


def call(kind: Kind, user: User = ALICE, namespace: str = "") -> Call:
    where = f"namespaces/{namespace}/" if namespace else ""
    target = f"/apis/{kind.group}/v1/{where}{kind.plural}".encode()
    return Call(info=parse("POST", target), user=user, cluster=WEB, kind=kind)


def status(reviews: Reviews, store: FakeStore, kind: Kind, spec: Object, user: User = ALICE) -> Object:
    found: Object = reviews.review(call(kind, user), {"spec": spec}, store)["status"]
    return found


class TestSubjectAccessReview:
    KIND = kinds.SUBJECTACCESSREVIEWS

    def test_asks_for_somebody_else(self, reviews: Reviews, store: FakeStore) -> None:
        spec = {"user": "alice", "resourceAttributes": CREATE_SECRETS}
        assert status(reviews, store, self.KIND, spec) == {
            "allowed": True,
            "reason": 'RBAC: allowed by ClusterRoleBinding "workspace-admin" of ClusterRole "cluster-admin" to '
            'User "alice"',
        }
        spec = {"user": "bob", "resourceAttributes": CREATE_SECRETS}
        assert status(reviews, store, self.KIND, spec) == {"allowed": False, "reason": "access denied"}

    def test_takes_groups_and_extra_into_account(self, reviews: Reviews, store: FakeStore) -> None:
        store.put(WEB, binding("devs", "cluster-admin", "Group:devs"))
        spec: Object = {"groups": ["devs"], "resourceAttributes": CREATE_SECRETS}
        assert status(reviews, store, self.KIND, spec)["allowed"] is True
        spec["extra"] = {SCOPES: ["cluster:other"]}
        assert status(reviews, store, self.KIND, spec)["allowed"] is False

    def test_asks_about_paths(self, reviews: Reviews, store: FakeStore) -> None:
        spec = {"user": "alice", "nonResourceAttributes": {"verb": "get", "path": "/metrics"}}
        assert status(reviews, store, self.KIND, spec)["allowed"] is True

    def test_says_denied_where_it_is(self, reviews: Reviews, store: FakeStore) -> None:
        attributes = {"verb": "update", "group": "apis.kcp.io", "resource": "apibindings", "subresource": "status"}
        found = status(reviews, store, self.KIND, {"user": "alice", "resourceAttributes": attributes})
        assert found == {"allowed": False, "denied": True, "reason": "access denied"}

    @pytest.mark.parametrize(
        ("spec", "text"),
        [
            ({"user": "a"}, "exactly one of nonResourceAttributes or resourceAttributes must be specified"),
            (
                {"user": "a", "resourceAttributes": {}, "nonResourceAttributes": {}},
                "cannot be specified in combination with resourceAttributes",
            ),
            ({"resourceAttributes": {}}, "at least one of user or group must be specified"),
        ],
    )
    def test_must_be_about_one_thing_and_somebody(
        self, reviews: Reviews, store: FakeStore, spec: Object, text: str
    ) -> None:
        with pytest.raises(Invalid, match=text):
            status(reviews, store, self.KIND, spec)

    def test_that_cannot_be_read_is_a_bad_request(self, reviews: Reviews, store: FakeStore) -> None:
        with pytest.raises(BadRequest):
            status(reviews, store, self.KIND, {"user": "a", "resourceAttributes": {"verb": 1}})

    def test_is_sent_back_with_its_spec(self, reviews: Reviews, store: FakeStore) -> None:
        spec = {"user": "alice", "resourceAttributes": CREATE_SECRETS}
        answer = reviews.review(call(self.KIND), {"metadata": {"labels": {"a": "b"}}, "spec": spec}, store)
        assert (answer["kind"], answer["apiVersion"]) == ("SubjectAccessReview", "authorization.k8s.io/v1")
        assert answer["spec"] == spec
        assert answer["metadata"]["labels"] == {"a": "b"}

    def test_asked_deeply_skips_the_door(self, reviews: Reviews, store: FakeStore) -> None:
        store.put(WEB, role("maker", rule("create", "secrets")))
        store.put(WEB, binding("maker", "maker", "User:bob"))
        obj = {"spec": {"user": "bob", "resourceAttributes": CREATE_SECRETS}}
        assert reviews.review(call(self.KIND, MASTER), obj, store)["status"]["allowed"] is False
        assert reviews.review(call(self.KIND, MASTER), obj, store, deep=True)["status"]["allowed"] is True


@pytest.mark.parametrize(
    ("user", "value", "deep"), [(MASTER, "true", True), (MASTER, "false", False), (ALICE, "true", False)]
)
def test_only_masters_ask_deeply(user: User, value: str, deep: bool) -> None:
    request = HttpRequest("POST", b"/", {DEEP_HEADER: [value]}, b"", Peer("::1", 1))
    assert is_deep(request, user) is deep


class TestLocalSubjectAccessReview:
    KIND = kinds.LOCALSUBJECTACCESSREVIEWS

    def ask(self, reviews: Reviews, store: FakeStore, attributes: Object, **metadata: str) -> Object:
        obj: Object = {"spec": {"user": "alice", "resourceAttributes": attributes}}
        if metadata:
            obj["metadata"] = metadata
        answer: Object = reviews.review(call(self.KIND, namespace="n"), obj, store)["status"]
        return answer

    def test_is_about_its_own_namespace(self, reviews: Reviews, store: FakeStore) -> None:
        assert self.ask(reviews, store, CREATE_SECRETS)["allowed"] is True
        assert self.ask(reviews, store, CREATE_SECRETS, namespace="n")["allowed"] is True
        with pytest.raises(Invalid, match=r"must match metadata\.namespace"):
            self.ask(reviews, store, {**CREATE_SECRETS, "namespace": "other"})
        with pytest.raises(BadRequest, match="must match namespace: n"):
            self.ask(reviews, store, {**CREATE_SECRETS, "namespace": "other"}, namespace="other")

    def test_is_not_about_paths(self, reviews: Reviews, store: FakeStore) -> None:
        obj = {"spec": {"user": "a", "nonResourceAttributes": {"path": "/", "verb": "get"}}}
        with pytest.raises(Invalid, match="disallowed on this kind of request"):
            reviews.review(call(self.KIND, namespace="n"), obj, store)


def test_a_self_access_review_is_about_the_caller(reviews: Reviews, store: FakeStore) -> None:
    kind = kinds.SELFSUBJECTACCESSREVIEWS
    spec = {"resourceAttributes": CREATE_SECRETS, "user": "alice"}
    assert status(reviews, store, kind, spec, ALICE)["allowed"] is True
    assert status(reviews, store, kind, spec, BOB)["allowed"] is False
    scoped = User("alice", (AUTHENTICATED,), extra={SCOPES: ("cluster:other",)})
    assert status(reviews, store, kind, spec, scoped)["allowed"] is False


class TestSelfSubjectRulesReview:
    KIND = kinds.SELFSUBJECTRULESREVIEWS

    def test_lists_rules_of_both_sorts(self, reviews: Reviews, store: FakeStore) -> None:
        store.put(WEB, role("mine", rule("get", "secrets", names="a"), urls("get", "/x")))
        store.put(WEB, binding("mine", "mine", "User:bob"))
        found = status(reviews, store, self.KIND, {"namespace": "n"}, BOB)
        assert found["resourceRules"] == [
            {"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a"]}
        ]
        assert {"verbs": ["get"], "nonResourceURLs": ["/x"]} in found["nonResourceRules"]
        assert found["incomplete"] is False

    def test_says_when_a_role_is_missing(self, reviews: Reviews, store: FakeStore) -> None:
        store.put(WEB, binding("ghost", "ghost", "User:bob"))
        found = status(reviews, store, self.KIND, {"namespace": "n"}, BOB)
        assert found["incomplete"] is True
        assert found["evaluationError"] == '[clusterroles.rbac.authorization.k8s.io "ghost" not found]'

    def test_needs_a_namespace(self, reviews: Reviews, store: FakeStore) -> None:
        with pytest.raises(BadRequest, match="no namespace on request"):
            status(reviews, store, self.KIND, {})


class TestTokenReview:
    KIND = kinds.TOKENREVIEWS

    def test_names_the_user_of_a_good_token(self, reviews: Reviews, store: FakeStore) -> None:
        user = {"username": "carol", "uid": "7", "groups": ["devs", AUTHENTICATED]}
        assert status(reviews, store, self.KIND, {"token": "good"}) == {
            "authenticated": True,
            "user": user,
            "audiences": ["api"],
        }

    def test_says_no_to_others(self, reviews: Reviews, store: FakeStore) -> None:
        refused = {"user": {}, "error": "invalid bearer token"}
        assert status(reviews, store, self.KIND, {"token": "bad"}) == refused
        assert status(reviews, store, self.KIND, {"token": "good", "audiences": ["vault"]}) == refused

    def test_needs_a_token(self, reviews: Reviews, store: FakeStore) -> None:
        with pytest.raises(Invalid, match=r"spec.token: Required value"):
            status(reviews, store, self.KIND, {})


def test_a_self_review_says_who_one_counts_as_here(reviews: Reviews, store: FakeStore) -> None:
    def who(user: User) -> Object:
        found: Object = status(reviews, store, kinds.SELFSUBJECTREVIEWS, {}, user)["userInfo"]
        return found

    assert who(User("alice", (AUTHENTICATED,), "u", {"k": ("v",)})) == {
        "username": "alice",
        "uid": "u",
        "groups": [AUTHENTICATED],
        "extra": {"k": ["v"]},
    }
    account = User("system:serviceaccount:n:a", (AUTHENTICATED,), extra={CLUSTER_NAME: ("other",)})
    assert who(account) == {"username": "system:anonymous", "groups": [AUTHENTICATED, "system:cluster:other"]}
