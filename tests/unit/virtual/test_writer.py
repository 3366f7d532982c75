"""How a view names the caller of a write to the shard, and what it never sends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import pytest

from atoll.machinery.kinds.custom import kinds_of_resource_schema
from atoll.machinery.meta.names import LOCAL
from atoll.machinery.meta.status import Forbidden, InternalError
from atoll.machinery.meta.user import AUTHENTICATED, User
from atoll.virtualworkspace_sdk import Change, Key, Look, Source, View, Write, WriteRefused
from atoll.virtualworkspace_sdk.projection import Projection
from atoll.virtualworkspace_sdk.rows import Rows
from atoll.virtualworkspace_sdk.writer import Writer, impersonation
from harness.clients.exports import schema

DEFINITION = schema("circles")
KIND = kinds_of_resource_schema(DEFINITION, LOCAL)[0]
CIRCLES, OTHERS = Source("shapes.example.com", "v1", "circles"), Source("", "v1", "configmaps")
KEY = Key("home", "default", "north")
NEW = {"metadata": {"name": "north"}}


class _Projection:
    def look(self, view: View, cluster: str) -> Look:
        return cast(Look, None)


def changes(write: Any) -> list[Change]:
    view = View(name="v", definition=DEFINITION, sources=(CIRCLES,), row=lambda key, look: None, write=write)
    writer = Writer([(view, Rows(cast(Any, None), KIND))], cast(Projection, _Projection()))
    return writer._changes(KIND, Write(key=KEY, new=NEW, old=None))


@pytest.mark.parametrize(
    "change", [Change(CIRCLES, KEY._replace(cluster="other"), NEW), Change(OTHERS, KEY, NEW)], ids=["cluster", "kind"]
)
def test_a_change_elsewhere_is_not_made(change: Change) -> None:
    def write(write: Write, look: Look) -> Iterable[Change]:
        return [Change(CIRCLES, KEY, NEW), change]

    with pytest.raises(InternalError):
        changes(write)


def test_nothing_is_done_for_what_is_neither_there_nor_wanted() -> None:
    assert changes(lambda write, look: [Change(CIRCLES, KEY, None, None)]) == []


def test_an_author_refuses_with_a_text() -> None:
    def write(write: Write, look: Look) -> Iterable[Change]:
        raise WriteRefused("not on Sundays")

    with pytest.raises(Forbidden, match="not on Sundays"):
        changes(write)


def test_privileges_stay_where_they_were_given() -> None:
    groups = (AUTHENTICATED, "team", "system:masters", "system:kcp:admin", "system:cluster:x")
    extra = {"example.com/team": ("a", "b"), "authentication.kcp.io/scopes": ("cluster:home",)}
    found = impersonation(User("ann", groups, "u-1", extra), "home")
    assert [value for name, value in found if name == "Impersonate-Group"] == [AUTHENTICATED, "team"]
    assert ("Impersonate-User", "ann") in found
    assert ("Impersonate-Uid", "u-1") in found
    extras = [each for each in found if each[0].startswith("Impersonate-Extra")]
    assert extras == [("Impersonate-Extra-example.com%2Fteam", "a"), ("Impersonate-Extra-example.com%2Fteam", "b")]


def test_a_service_account_writes_at_home_only() -> None:
    account = User("system:kcp:serviceaccount:home:team:robot", (AUTHENTICATED,))
    assert ("Impersonate-User", "system:serviceaccount:team:robot") in impersonation(account, "home")
    with pytest.raises(Forbidden):
        impersonation(account, "other")


@pytest.mark.parametrize("name", ["ann ", " ann", "a\nb", ""])
def test_a_name_that_would_be_read_as_another_is_refused(name: str) -> None:
    with pytest.raises(Forbidden):
        impersonation(User(name, (AUTHENTICATED,)), "home")
