"""The version of copies is one that a workspace and a mailbox serve."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from atoll.edge.placement_translator.composition import Composition
from atoll.edge.placement_translator.content import Content
from atoll.edge.placement_translator.topology import Topology
from atoll.edge.placement_translator.versions import Unserved, VersionConflict, Versions
from atoll.machinery.client.client import Client
from atoll.machinery.client.discovery import ServedKind
from atoll.machinery.client.resource import Resource
from atoll.machinery.edge.versions import Agreement
from atoll.machinery.edge.what import Selection
from atoll.machinery.meta.objects import Object

GAUGES = ("x.example.com", "gauges")


class Mailbox:
    """A client of a mailbox that serves gauges at some versions."""

    def __init__(self, *versions: str) -> None:
        self.versions, self.calls = versions, 0

    def cluster(self, name: str) -> Mailbox:
        return self

    async def discover(self, path: str) -> Object:
        self.calls += 1
        row = {"resource": "gauges", "scope": "Namespaced", "verbs": ["get"]}
        rows = [{"version": each, "resources": [row]} for each in self.versions]
        return {"items": [{"metadata": {"name": "x.example.com"}, "versions": rows}] if path == "/apis" else []}


def choose(versions: Versions, mailbox: str, offered: tuple[str, ...]) -> str:
    """The choice for one workspace."""
    return versions.choose(mailbox, GAUGES, {"w": offered}).version


async def test_the_first_version_of_the_workspace_that_the_mailbox_serves_counts() -> None:
    mailbox = Mailbox("v2", "v1")
    versions = Versions(cast(Client, mailbox))
    assert choose(versions, "m", ("v3", "v2", "v1")) == "v3", "nothing says otherwise"
    assert await versions.read("m", GAUGES, "v3")
    assert choose(versions, "m", ("v3", "v2", "v1")) == "v2"
    assert choose(versions, "other", ("v3", "v2", "v1")) == "v3"
    with pytest.raises(Unserved, match=r"serves gauges\.x\.example\.com at v3, the mailbox at v2, v1"):
        choose(versions, "m", ("v3",))


async def test_a_mailbox_that_serves_the_version_or_nothing_is_not_remembered() -> None:
    versions = Versions(cast(Client, Mailbox("v2")))
    assert not await versions.read("m", GAUGES, "v2")
    assert not await Versions(cast(Client, Mailbox())).read("m", GAUGES, "v2")
    assert versions.served("m", GAUGES) == ()


async def test_new_definitions_of_a_mailbox_are_looked_at_once_and_tell_whether_copies_may_move() -> None:
    mailbox = Mailbox("v1")
    versions = Versions(cast(Client, mailbox))
    assert await versions.refresh("m", {GAUGES: ("v2", "v1")})
    assert mailbox.calls == 2, "both documents once"
    assert not await versions.refresh("m", {GAUGES: ("v2", "v1")})
    mailbox.versions = ("v2", "v1")
    assert await versions.refresh("m", {GAUGES: ("v2", "v1")})
    assert choose(versions, "m", ("v2", "v1")) == "v2"


def test_the_choice_for_a_group_is_written_recalled_and_told_when_it_changes() -> None:
    versions = Versions(cast(Client, Mailbox()))
    group = GAUGES[0]

    def sent(**served: str) -> dict[str, dict[str, frozenset[str]]]:
        return {group: {cluster: frozenset(each.split(",")) for cluster, each in served.items()}}

    assert versions.settle("m", sent(a="v1")) == set()
    assert versions.written("m") == "", "there was no choice"
    assert versions.settle("m", sent(a="v1,v3", b="v1,v4")) == {group}
    assert versions.settle("m", sent(a="v1,v2,v3", b="v1,v2,v4")) == set(), "it stays while it is possible"
    assert versions.written("m") == f"{group}=v1"
    again = Versions(cast(Client, Mailbox()))
    again.recall("m", f"{group}=v1,apps=v1")
    again.settle("m", sent(a="v1,v2,v3", b="v1,v2,v4"))
    assert again.written("m") == f"{group}=v1"
    again.recall("m", f"{group}=v2")
    assert again.settle("m", sent(a="v1,v2,v3", b="v1,v2,v4")) == set(), "its own choice counts"
    assert again.settle("m", {}) == {group}
    assert again.written("m") == ""


def test_a_workspace_that_does_not_count_for_a_group_sends_nothing_of_it() -> None:
    versions = Versions(cast(Client, Mailbox()))
    versions.settle("m", {GAUGES[0]: {"a": frozenset({"v1"}), "b": frozenset({"v2"})}})
    assert versions.left("m", GAUGES[0]) == ("a",)
    assert versions.choose("m", GAUGES, {"a": ("v1",), "b": ("v2",)}) == Agreement("v2", "b", ("a",))
    with pytest.raises(VersionConflict, match=r"workspace b has v2 of x\.example\.com") as raised:
        versions.choose("m", GAUGES, {"a": ("v1",)})
    assert raised.value.winner == "b"
    other = GAUGES[0], "others"
    versions.settle("m", {GAUGES[0]: {"a": frozenset({"v1", "v2"}), "b": frozenset({"v2"})}})
    assert versions.choose("m", other, {"a": ("v1",)}).version == "v1", "the group has v2, and this kind does not"


class Counted(Versions):
    """Counts agreements."""

    count = 0

    def settle(self, mailbox: str, sent: Mapping[str, Mapping[str, frozenset[str]]]) -> set[str]:
        self.count += 1
        return super().settle(mailbox, sent)


async def test_workspaces_agree_anew_only_when_one_of_them_or_the_mailbox_offers_something_else() -> None:
    versions, contents = Counted(cast(Client, Mailbox("v2"))), {name: sending("v1", "v2") for name in "ab"}
    topology, senders = Topology(), {"a": {"p"}, "b": {"p"}}
    topology.senders = lambda mailbox: senders  # type: ignore[method-assign]
    composition = Composition(versions, topology, cast(Any, contents), cast(Any, None), lambda *_: None)
    assert composition.settle("m") == {GAUGES[0]}
    contents["a"].select({GAUGES: Selection(("p",)), ("other", "things"): Selection(("q",))})
    contents["b"].select({GAUGES: Selection(("p",))})
    composition.settle("m")
    assert versions.count == 2, "a group more, though nothing of it goes here"
    contents["a"].select(dict(contents["a"].selected))
    assert composition.settle("m") == set()
    assert versions.count == 2, "the same as before"
    contents["b"].kinds[GAUGES] = served("v1")
    contents["b"].select(contents["b"].selected)
    composition.settle("m")
    assert (versions.count, versions.written("m")) == (3, f"{GAUGES[0]}=v1")
    senders["b"] = {"q"}
    composition.settle("m")
    assert (versions.count, await versions.read("m", GAUGES, "v1")) == (4, True)
    composition.settle("m")
    assert (versions.count, versions.written("m")) == (5, f"{GAUGES[0]}=v2")


def served(*versions: str) -> ServedKind:
    return ServedKind(
        Resource(GAUGES[0], versions[0], GAUGES[1]), "Gauge", frozenset(), frozenset(), versions, frozenset()
    )


def sending(*versions: str) -> Content:
    """What a workspace sends that has gauges at some versions, by the placement `p`."""
    content = Content()
    content.kinds = {GAUGES: served(*versions)}
    content.select({GAUGES: Selection(("p",))})
    return content
