"""Attributes of requests, texts of refusals, and effective users."""

from __future__ import annotations

import pytest

from atoll.machinery.apiserver.authorization.attributes import Attributes, attributes_of, pinned_name
from atoll.machinery.apiserver.authorization.effective_users import (
    MAX_USERS,
    SCOPES,
    WARRANT,
    EffectiveUser,
    effective_users,
)
from atoll.machinery.apiserver.authorization.refusal import forbidden
from atoll.machinery.apiserver.call.requestinfo import parse
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.objects import encode_json
from atoll.machinery.meta.user import AUTHENTICATED, CLUSTER_NAME, User

ALICE = User("alice", ("devs", AUTHENTICATED))
ANYBODY = EffectiveUser("system:anonymous", (AUTHENTICATED,))


def made(method: str, target: str) -> Attributes:
    return attributes_of(parse(method, target.encode()), ALICE, "2web")


class TestAttributes:
    def test_of_a_resource_request(self) -> None:
        found = made("PUT", "/clusters/root:web/apis/apps/v1/namespaces/n/deployments/d/status")
        assert (found.verb, found.group, found.version, found.resource) == ("update", "apps", "v1", "deployments")
        assert (found.subresource, found.namespace, found.name, found.cluster) == ("status", "n", "d", "2web")
        assert found.resource_path == "deployments/status"

    def test_of_a_path(self) -> None:
        found = made("GET", "/clusters/root:web/openapi/v3")
        assert (found.is_resource, found.verb, found.path) == (False, "get", "/openapi/v3")

    @pytest.mark.parametrize(
        ("selector", "name"),
        [
            ("metadata.name=c", "c"),
            ("metadata.name==c", "c"),
            ("a=b,metadata.name=c", "c"),
            ("metadata.name!=c", ""),
            ("metadata.namespace=c", ""),
            ("", ""),
            (r"metadata.name=a\,b", ""),
        ],
    )
    def test_take_the_name_that_a_field_selector_pins(self, selector: str, name: str) -> None:
        assert pinned_name(selector) == name
        assert made("GET", f"/api/v1/configmaps?watch=1&fieldSelector={selector.replace(',', '%2C')}").name == name

    def test_take_no_pinned_name_for_writes(self) -> None:
        target = "/api/v1/namespaces/n/configmaps?fieldSelector=metadata.name%3Dc"
        assert made("DELETE", target).name == ""


class TestRefusals:
    @pytest.mark.parametrize(
        ("method", "target", "text"),
        [
            (
                "GET",
                "/api/v1/namespaces/n/configmaps/c",
                'configmaps "c" is forbidden: User "alice" cannot get resource "configmaps" in API group "" '
                'in the namespace "n"',
            ),
            (
                "GET",
                "/apis/apps/v1/deployments",
                'deployments.apps is forbidden: User "alice" cannot list resource "deployments" in API group '
                '"apps" at the cluster scope',
            ),
            (
                "PATCH",
                "/apis/apps/v1/namespaces/n/deployments/d/scale",
                'deployments.apps "d" is forbidden: User "alice" cannot patch resource "deployments/scale" in '
                'API group "apps" in the namespace "n"',
            ),
            ("GET", "/openapi/v3", 'forbidden: User "alice" cannot get path "/openapi/v3"'),
            ("GET", "/a%3Cb%26", 'forbidden: User "alice" cannot get path "/a&lt;b&amp;"'),
        ],
    )
    def test_read_as_kubernetes_writes_them(self, method: str, target: str, text: str) -> None:
        assert forbidden(made(method, target)).message == text
        assert forbidden(made(method, target), "why").message == f"{text}: why"

    def test_carry_the_resource_in_details(self) -> None:
        status = forbidden(made("GET", "/apis/apps/v1/namespaces/n/deployments/d")).status()
        assert (status["code"], status["reason"]) == (403, "Forbidden")
        assert status["details"] == {"name": "d", "group": "apps", "kind": "deployments"}


def scoped(*values: str) -> User:
    return User("alice", ("devs", AUTHENTICATED), extra={SCOPES: values})


def warrant(user: str, **more: object) -> str:
    return encode_json({"user": user, **more}).decode()


class TestScopes:
    @pytest.mark.parametrize(
        ("values", "inside"),
        [
            (("cluster:a",), True),
            (("cluster:b",), False),
            (("cluster:b,cluster:a",), True),
            (("cluster:a", "cluster:b"), False),
            (("cluster:a", "cluster:b,cluster:a"), True),
            (("",), False),
            (("a",), False),
            (("namespace:a",), False),
            (("cluster:ab",), False),
            (("cluster:*",), False),
            ((), True),
        ],
    )
    def test_are_ors_within_and_ands_between_values(self, values: tuple[str, ...], inside: bool) -> None:
        found = effective_users(scoped(*values), "a")
        assert found.in_scope is inside
        assert (found.own.name == "alice") is inside

    def test_leave_somebody_authenticated_from_the_clusters_left_over(self) -> None:
        assert effective_users(scoped("cluster:b,cluster:c"), "a").users == (
            EffectiveUser("system:anonymous", (AUTHENTICATED, "system:cluster:b", "system:cluster:c")),
        )
        assert effective_users(scoped("cluster:b", "cluster:c"), "a").users == (ANYBODY,)
        nobody = User("x", (), extra={SCOPES: ("cluster:b",)})
        assert effective_users(nobody, "a").own == EffectiveUser("system:anonymous", ("system:unauthenticated",))


class TestServiceAccounts:
    NAME = "system:serviceaccount:ns:sa"
    GROUPS = ("system:serviceaccounts", AUTHENTICATED)

    def account(self, *clusters: str, **extra: tuple[str, ...]) -> User:
        return User(self.NAME, self.GROUPS, extra={CLUSTER_NAME: clusters, **extra})

    def test_are_themselves_at_home_and_known_by_their_global_name(self) -> None:
        everywhere = EffectiveUser("system:kcp:serviceaccount:a:ns:sa", (AUTHENTICATED,))
        assert effective_users(self.account("a"), "a").users == (EffectiveUser(self.NAME, self.GROUPS), everywhere)

    def test_have_only_the_global_name_and_their_cluster_elsewhere(self) -> None:
        held = (AUTHENTICATED, "system:cluster:a")
        assert effective_users(self.account("a"), "b").users == (
            EffectiveUser("system:anonymous", held),
            EffectiveUser("system:kcp:serviceaccount:a:ns:sa", held),
        )

    def test_of_two_clusters_are_nobody_in_either(self) -> None:
        assert effective_users(self.account("a", "b"), "a").users == (ANYBODY,)

    def test_of_no_named_cluster_are_local(self) -> None:
        assert effective_users(User(self.NAME, self.GROUPS), "b").own.name == self.NAME

    def test_keep_within_their_scopes_under_either_name(self) -> None:
        found = effective_users(self.account("a", **{SCOPES: ("cluster:a",)}), "b")
        assert [identity.name for identity in found.users] == ["system:anonymous"]

    def test_keep_within_their_home_whatever_their_scopes_name(self) -> None:
        """A scope narrows, and where it names another cluster than the home, nothing is left."""
        account = self.account("a", **{SCOPES: ("cluster:b",)})
        for cluster in ("a", "b"):
            assert effective_users(account, cluster).own == ANYBODY


class TestWarrants:
    def with_warrants(self, *texts: str) -> User:
        return User("alice", (), extra={WARRANT: texts})

    def names(self, *texts: str) -> list[str]:
        return [identity.name for identity in effective_users(self.with_warrants(*texts), "a").users]

    def test_add_their_users_nested_ones_too(self) -> None:
        nested = warrant("bob", extra={WARRANT: [warrant("carol", groups=["x"])]})
        assert self.names(nested, warrant("dave")) == ["alice", "bob", "carol", "dave"]

    def test_are_scoped_themselves(self) -> None:
        assert self.names(warrant("bob", extra={SCOPES: ["cluster:b"]})) == ["alice", "system:anonymous"]

    def test_of_service_accounts_must_name_a_cluster(self) -> None:
        name = TestServiceAccounts.NAME
        assert self.names(warrant(name)) == ["alice"]
        assert self.names(warrant(name, extra={CLUSTER_NAME: ["a"]}))[1] == name

    @pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"user": 1}', '{"groups": "system:masters"}'])
    def test_that_cannot_be_read_warrant_nothing(self, text: str) -> None:
        assert self.names(text) == ["alice"]

    def test_do_not_make_a_master_of_their_holder(self) -> None:
        user = self.with_warrants(warrant("root", groups=["system:masters"]))
        assert not user.is_master

    def test_are_bounded_in_depth_and_number(self) -> None:
        text = warrant("deepest")
        for depth in range(8):
            text = warrant(f"u{depth}", extra={WARRANT: [text]})
        assert "deepest" not in self.names(text)
        assert len(self.names(*(warrant(f"u{n}") for n in range(1000)))) == MAX_USERS


class TestLruCache:
    def test_forgets_what_was_used_longest_ago(self) -> None:
        cache: LruCache[str, int] = LruCache(2)
        cache.put("a", 1)
        cache.put("b", 2)
        assert cache.get("a") == 1
        cache.put("c", 3)
        assert (cache.get("a"), cache.get("b"), cache.get("c"), len(cache)) == (1, None, 3, 2)

    def test_counts_by_weight_and_keeps_what_was_put_last(self) -> None:
        cache: LruCache[str, int] = LruCache(10, weight=lambda value: value)
        for key, value in (("a", 4), ("b", 4), ("a", 5), ("c", 4)):
            cache.put(key, value)
        assert (cache.get("a"), cache.get("b"), cache.get("c")) == (5, None, 4)
        cache.put("huge", 1000)
        assert (len(cache), cache.get("huge")) == (1, 1000)
        cache.drop("huge")
        cache.put("d", 10)
        assert cache.get("d") == 10
