"""Subjects: any name becomes one token and comes back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.machinery.meta.names import CORE, LOCAL, ObjectKey, ResourceType
from atoll.machinery.stream import subjects

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
HOSTILE = st.text(alphabet=".*>= \t\r\n_-$:core", max_size=12)
NAMES = ANY_TEXT | HOSTILE


@given(NAMES)
def test_any_text_becomes_one_safe_token_and_comes_back(text: str) -> None:
    token = subjects.escape(text)
    assert token
    assert not set(token) & set(".*> \t\r\n\0")
    assert token.isascii()
    assert token.isprintable()
    assert subjects.unescape(token) == text


@given(NAMES)
def test_any_group_becomes_one_token_and_comes_back(group: str) -> None:
    token = subjects.escape_group(group)
    assert token
    assert "." not in token
    assert subjects.unescape_group(token) == group


@given(NAMES, NAMES)
def test_two_groups_never_share_a_token(one: str, other: str) -> None:
    assert (subjects.escape_group(one) == subjects.escape_group(other)) == (one == other)


@given(NAMES, NAMES, NAMES, NAMES, NAMES, NAMES)
def test_a_subject_parses_back_to_what_it_was_made_of(
    group: str, resource: str, identity: str, cluster: str, namespace: str, name: str
) -> None:
    key = ObjectKey(ResourceType(group, resource, identity), cluster, namespace, name)
    changes = subjects.parse(subjects.changes_subject("s1", key.type, cluster))
    assert changes == subjects.Subject("changes", "s1", key.type, cluster)
    state = subjects.parse(subjects.state_subject("s1", key))
    assert state == subjects.Subject("state", "s1", key.type, cluster, subjects.name_digest(namespace, name))


@given(st.text(alphabet="abc=._-:*> 0123456789ABCDEF", max_size=12))
def test_only_the_one_spelling_of_a_token_is_accepted(token: str) -> None:
    try:
        text = subjects.unescape(token)
    except ValueError:
        return
    assert subjects.escape(text) == token


def test_names_of_kubernetes_stay_readable() -> None:
    gateway = ResourceType("gateway.networking.k8s.io", "httproutes", LOCAL)
    assert subjects.changes_subject("root", gateway, "2x9k") == (
        "atoll.changes.root.local.gateway_networking_k8s_io.httproutes.2x9k"
    )
    assert subjects.changes_subject("root", ResourceType("", "configmaps"), "system:admin") == (
        "atoll.changes.root.core.core.configmaps.system:admin"
    )


def test_the_control_subject_belongs_to_no_type() -> None:
    assert subjects.parse("atoll.state.root.-") == subjects.Subject("state", "root")


def test_a_state_subject_does_not_show_the_objects_name_and_differs_by_namespace() -> None:
    pods = ResourceType("", "pods", CORE)
    one, other = (subjects.state_subject("root", ObjectKey(pods, "c", space, "secret-name")) for space in "ab")
    assert one != other
    assert "secret-name" not in one


@pytest.mark.parametrize(
    "subject",
    [
        "",
        "atoll",
        "atoll.changes.root",
        "kcp.changes.root.-",
        "atoll.other.root.-",
        "atoll.changes.root.core.core.pods",
        "atoll.changes.root.core.core.pods.c.d",
        "atoll.state.root.core.core.pods.c",
        "atoll.changes.Root.-",
        "atoll.changes.a_b.-",
        "atoll.changes..-",
        "atoll.changes.root.core.core.po*s.c",
        "atoll.changes.root.core..pods.c",
        "atoll.changes.root.core.=63ore=2E.pods.c",
    ],
)
def test_a_subject_that_no_publisher_writes_is_refused(subject: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        subjects.parse(subject)


@pytest.mark.parametrize("shard", ["", "A", "a.b", "a*", "-a", "a-", "a" * 64, "a b"])
def test_a_shard_must_be_one_dns_label(shard: str) -> None:
    with pytest.raises(ValueError, match="DNS label"):
        subjects.check_shard(shard)


def test_filters_name_what_is_wanted_and_the_control_subject() -> None:
    role = ResourceType("rbac.authorization.k8s.io", "roles")
    assert subjects.filters("changes", "root") == ("atoll.changes.root.>",)
    assert subjects.filters("changes", "root", cluster="c1") == ("atoll.changes.root.*.*.*.c1", "atoll.changes.root.-")
    assert subjects.filters("changes", "root", identity="ab12") == (
        "atoll.changes.root.ab12.*.*.*",
        "atoll.changes.root.-",
    )
    assert subjects.filters("state", "root", type=role) == (
        "atoll.state.root.core.rbac_authorization_k8s_io.roles.*.*",
        "atoll.state.root.-",
    )
