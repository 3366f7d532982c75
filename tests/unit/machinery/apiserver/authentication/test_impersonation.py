"""Impersonation: limited to one workspace, without privilege escalation."""

from __future__ import annotations

import json

import pytest

from atoll.machinery.apiserver.authentication.authenticator import Authenticator, BearerTokens
from atoll.machinery.apiserver.authentication.certificates import Certificates
from atoll.machinery.apiserver.authentication.impersonation import Impersonator
from atoll.machinery.apiserver.authentication.tokens import StaticTokens, parse_token_file
from atoll.machinery.apiserver.authorization import groups
from atoll.machinery.apiserver.authorization.attributes import Attributes
from atoll.machinery.apiserver.authorization.authorizer import Authorizer
from atoll.machinery.apiserver.authorization.effective_users import SCOPES, WARRANT, effective_users
from atoll.machinery.meta.status import BadRequest, Forbidden
from atoll.machinery.meta.user import AUTHENTICATED, CLUSTER_NAME, MASTERS, UNAUTHENTICATED, User
from atoll.machinery.wire.exchange import HttpRequest, Peer
from harness.models.rbac_snapshot import FakeStore, binding, bootstrap, role, rule, urls, workspace

WEB, OTHER = "2web", "2other"
AUDIENCE = "https://kcp.default.svc"
#: alice is admin of WEB; every privileged group has one member.
TOKENS = "alice,alice,1\nbob,bob,2\n" + "".join(
    f'member-{number},member-{number},{number},"{group}"\n' for number, group in enumerate(groups.PRIVILEGED_GROUPS)
)
RESERVED_GROUPS = (
    *(group for group in groups.PRIVILEGED_GROUPS if group != AUTHENTICATED),
    *(prefix + "anything" for prefix in groups.RESERVED_PREFIXES),
    *(prefix + "root:universal" for prefix in groups.LIFECYCLE_PREFIXES),
)


@pytest.fixture
def store() -> FakeStore:
    made = FakeStore()
    bootstrap(made)
    for cluster in (WEB, OTHER):
        workspace(made, cluster, owner="alice")
    for number in range(len(groups.PRIVILEGED_GROUPS)):
        made.put(WEB, binding(f"m{number}", "cluster-admin", f"User:member-{number}"))
    return made


@pytest.fixture
def authorizer() -> Authorizer:
    return Authorizer()


@pytest.fixture
def authenticator(authorizer: Authorizer) -> Authenticator:
    table = StaticTokens(parse_token_file(TOKENS), (AUDIENCE,))
    return Authenticator(BearerTokens((table,), (AUDIENCE,)), Certificates(), Impersonator(authorizer))


def send(token: str, **headers: str | list[str]) -> HttpRequest:
    sent = {"authorization": [f"Bearer {token}"]}
    for name, value in headers.items():
        key = "impersonate-" + name.replace("__", "-")
        sent[key] = [value] if isinstance(value, str) else value
    return HttpRequest("GET", b"/api", sent, b"", Peer("::1", 1))


def test_the_privileged_groups_are_kcps_and_complete() -> None:
    """Every group with a meaning of its own must be in the list that generates this table."""
    named = {
        value
        for name, value in vars(groups).items()
        if isinstance(value, str) and name.isupper() and not name.endswith("_PREFIX") and ":" in value
    }
    assert named - {groups.SERVICE_ACCOUNTS} == set(groups.PRIVILEGED_GROUPS)


def test_an_admin_acts_as_an_ordinary_user_here(authenticator: Authenticator, store: FakeStore) -> None:
    found = authenticator.identify(send("alice", user="carol", group=["devs"], uid="7"), WEB, store)
    assert found.user == User("carol", ("devs", AUTHENTICATED), "7", {SCOPES: (f"cluster:{WEB}",)})
    assert found.impersonator is not None
    assert found.impersonator.name == "alice"


def test_the_borrowed_identity_is_nobody_elsewhere(
    authenticator: Authenticator, authorizer: Authorizer, store: FakeStore
) -> None:
    carol = authenticator.authenticate(send("alice", user="carol"), WEB, store)
    for cluster in (WEB, OTHER):
        store.put(cluster, binding("carol", "cluster-admin", "User:carol"))

    def may(cluster: str) -> bool:
        question = Attributes(user=carol, verb="get", cluster=cluster, resource="secrets", namespace="n")
        return authorizer.authorize(store, question).allowed

    assert may(WEB)
    assert not may(OTHER)


@pytest.mark.parametrize("group", RESERVED_GROUPS)
def test_a_workspace_admin_does_not_get_a_privileged_group(
    authenticator: Authenticator, store: FakeStore, group: str
) -> None:
    for headers in ({"group": [group]}, {"group": ["devs", group]}, {"group": [group, AUTHENTICATED]}):
        with pytest.raises(Forbidden, match="impersonation is not allowed for the requestor"):
            authenticator.authenticate(send("alice", user="carol", **headers), WEB, store)


@pytest.mark.parametrize("group", groups.PRIVILEGED_GROUPS)
def test_a_member_may_lend_the_group_on_but_never_a_higher_one(
    authenticator: Authenticator, store: FakeStore, group: str
) -> None:
    number = groups.PRIVILEGED_GROUPS.index(group)
    found = authenticator.authenticate(send(f"member-{number}", user="carol", group=[group]), WEB, store)
    assert group in found.groups
    if group == MASTERS:
        assert SCOPES not in found.extra
        return
    assert found.extra[SCOPES] == (f"cluster:{WEB}",)
    for other in RESERVED_GROUPS:
        if other != group:
            with pytest.raises(Forbidden):
                authenticator.authenticate(send(f"member-{number}", user="x", group=[other]), WEB, store)


@pytest.mark.parametrize("prefix", groups.RESERVED_PREFIXES)
def test_names_that_the_system_makes_cannot_be_borrowed(
    authenticator: Authenticator, store: FakeStore, prefix: str
) -> None:
    with pytest.raises(Forbidden, match="not allowed for the requestor"):
        authenticator.authenticate(send("alice", user=prefix + "x"), WEB, store)


@pytest.mark.parametrize(
    "key", [CLUSTER_NAME, "anything.kcp.io/x", "experimental.authorization.kcp.io/y", f"{SCOPES}x", f"x{WARRANT}"]
)
@pytest.mark.parametrize(
    "spell",
    [
        str,
        lambda key: key.replace("/", "%2F"),
        lambda key: key.replace(".", "%2e").upper(),
        lambda key: "".join(f"%{ord(c):02x}" for c in key),
    ],
)
def test_extras_that_carry_authority_cannot_be_set(
    authenticator: Authenticator, store: FakeStore, key: str, spell: object
) -> None:
    assert callable(spell)
    with pytest.raises(Forbidden, match=r"impersonating the extra key .* is not allowed for the requestor"):
        authenticator.authenticate(send("alice", user="carol", **{f"extra__{spell(key)}": "x"}), WEB, store)


def test_scopes_only_restrict(authenticator: Authenticator, store: FakeStore) -> None:
    found = authenticator.authenticate(send("alice", user="carol", **{f"extra__{SCOPES}": "cluster:else"}), WEB, store)
    assert found.extra == {SCOPES: ("cluster:else", f"cluster:{WEB}")}
    assert not effective_users(found, WEB).in_scope and not effective_users(found, "else").in_scope
    found = authenticator.authenticate(
        send("alice", user="carol", **{f"extra__{SCOPES}": f"cluster:{WEB}"}), WEB, store
    )
    assert effective_users(found, WEB).in_scope


def test_a_warrant_is_scoped_with_all_in_it(authenticator: Authenticator, store: FakeStore) -> None:
    inner = json.dumps({"user": "erin"})
    sent = json.dumps({"user": "dave", "groups": ["devs"], "extra": {WARRANT: [inner]}})
    found = authenticator.authenticate(send("alice", user="carol", **{f"extra__{WARRANT}": sent}), WEB, store)
    assert {user.name for user in effective_users(found, WEB).users} == {"carol", "dave", "erin"}
    # In another workspace each of them is anonymous.
    assert {user.name for user in effective_users(found, "else").users} == {"system:anonymous"}


@pytest.mark.parametrize(
    "warrant",
    [
        {"user": "dave", "groups": ["system:masters"]},
        {"user": "system:kcp:x"},
        {"user": "dave", "extra": {CLUSTER_NAME: ["else"]}},
        {"user": "dave", "extra": {WARRANT: ['{"user":"x","groups":["system:kcp:admin"]}']}},
    ],
)
def test_a_warrant_carries_nothing_that_cannot_be_borrowed(
    authenticator: Authenticator, store: FakeStore, warrant: dict[str, object]
) -> None:
    with pytest.raises(Forbidden):
        sent = send("alice", user="carol", **{f"extra__{WARRANT}": json.dumps(warrant)})
        authenticator.authenticate(sent, WEB, store)


@pytest.mark.parametrize("warrant", ["", "[]", "{", '{"user":""}'])
def test_a_malformed_warrant_is_refused(authenticator: Authenticator, store: FakeStore, warrant: str) -> None:
    with pytest.raises(BadRequest):
        authenticator.authenticate(send("alice", user="carol", **{f"extra__{WARRANT}": warrant}), WEB, store)


def test_who_is_in_a_warrant_is_impersonated_by_permission(authenticator: Authenticator, store: FakeStore) -> None:
    rules = [
        rule("impersonate", "users", names="carol"),
        rule("impersonate", f"userextras/{WARRANT}", "authentication.k8s.io"),
        urls("access", "/"),
    ]
    store.put(WEB, role("helper", *rules))
    store.put(WEB, binding("helper", "helper", "User:bob"))
    for name, allowed in (("carol", True), ("dave", False)):
        sent = send("bob", user="carol", **{f"extra__{WARRANT}": json.dumps({"user": name})})
        if allowed:
            assert authenticator.authenticate(sent, WEB, store).name == "carol"
        else:
            with pytest.raises(Forbidden):
                authenticator.authenticate(sent, WEB, store)


def test_masters_may_set_them_and_are_not_scoped(authenticator: Authenticator, store: FakeStore) -> None:
    sent = send("member-0", user="carol", group=["system:kcp:admin"], **{f"extra__{WARRANT}": "{}"})
    found = authenticator.authenticate(sent, WEB, store)
    assert found.extra == {WARRANT: ("{}",)}
    assert found.groups == ("system:kcp:admin", AUTHENTICATED)


def test_without_the_verb_each_part_is_refused_by_name(authenticator: Authenticator, store: FakeStore) -> None:
    with pytest.raises(Forbidden) as refused:
        authenticator.authenticate(send("bob", user="carol"), WEB, store)
    assert refused.value.message == (
        'users "carol" is forbidden: User "bob" cannot impersonate resource "users" in API group "" at the '
        "cluster scope: workspace access not permitted"
    )
    rules = [rule("impersonate", "users", names="carol"), urls("access", "/")]
    store.put(WEB, role("helper", *rules))
    store.put(WEB, binding("helper", "helper", "User:bob"))
    assert authenticator.authenticate(send("bob", user="carol"), WEB, store).name == "carol"
    refused_ones: tuple[dict[str, str | list[str]], ...] = (
        {"user": "dave"},
        {"user": "carol", "group": ["devs"]},
        {"user": "carol", "uid": "7"},
        {"user": "carol", "extra__color": "red"},
        {"user": "system:serviceaccount:ns:x"},
    )
    for headers in refused_ones:
        with pytest.raises(Forbidden):
            authenticator.authenticate(send("bob", **headers), WEB, store)


def test_each_part_has_its_own_permission(authenticator: Authenticator, store: FakeStore) -> None:
    rules = [
        rule("impersonate", "users,groups", names="carol,devs"),
        rule("impersonate", "uids", "authentication.k8s.io", "7"),
        rule("impersonate", "userextras/color", "authentication.k8s.io", "red"),
        urls("access", "/"),
    ]
    store.put(WEB, role("helper", *rules))
    store.put(WEB, binding("helper", "helper", "User:bob"))
    sent = send("bob", user="carol", group=["devs"], uid="7", extra__color="red")
    assert authenticator.authenticate(sent, WEB, store).extra["color"] == ("red",)
    for change in ({"uid": "8"}, {"extra__color": "blue"}, {"group": ["ops"]}):
        parts: dict[str, str | list[str]] = {"user": "carol", **change}
        with pytest.raises(Forbidden):
            authenticator.authenticate(send("bob", **parts), WEB, store)


def test_a_service_account_comes_with_its_groups_unless_others_are_named(
    authenticator: Authenticator, store: FakeStore
) -> None:
    name = "system:serviceaccount:ns:builder"
    found = authenticator.authenticate(send("alice", user=name), WEB, store)
    assert found.groups == ("system:serviceaccounts", "system:serviceaccounts:ns", AUTHENTICATED)
    assert CLUSTER_NAME not in found.extra
    found = authenticator.authenticate(send("alice", user=name, group=["devs"]), WEB, store)
    assert found.groups == ("devs", AUTHENTICATED)


def test_anonymous_is_unauthenticated(authenticator: Authenticator, store: FakeStore) -> None:
    found = authenticator.authenticate(send("alice", user="system:anonymous"), WEB, store)
    assert found.groups == (UNAUTHENTICATED,)


@pytest.mark.parametrize(
    "headers",
    [
        {"group": ["devs"]},
        {"uid": "1"},
        {"extra__color": "red"},
        {"user": ""},
        {"user": ["a", "b"]},
        {"user": "a", "uid": ["1", "2"]},
        {"user": "a", "nonsense": "x"},
    ],
)
def test_headers_that_make_no_identity_are_a_bad_request(
    authenticator: Authenticator, store: FakeStore, headers: dict[str, str | list[str]]
) -> None:
    with pytest.raises(BadRequest):
        authenticator.authenticate(send("member-0", **headers), WEB, store)


@pytest.mark.parametrize("name", ["impersonate_user", "impersonate%2duser", "Impersonate_Group", "impersonate-_group"])
def test_headers_that_only_look_like_it_are_a_bad_request(
    authenticator: Authenticator, store: FakeStore, name: str
) -> None:
    headers = {"authorization": ["Bearer alice"], "impersonate-user": ["carol"], name: [MASTERS]}
    with pytest.raises(BadRequest):
        authenticator.authenticate(HttpRequest("GET", b"/", headers, b"", Peer("::1", 1)), WEB, store)


def test_nobody_but_masters_impersonates_outside_a_workspace(authenticator: Authenticator, store: FakeStore) -> None:
    for cluster in ("", "system:admin", "nowhere"):
        with pytest.raises(Forbidden):
            authenticator.authenticate(send("alice", user="carol"), cluster, store)
        assert authenticator.authenticate(send("member-0", user="carol"), cluster, store).name == "carol"
