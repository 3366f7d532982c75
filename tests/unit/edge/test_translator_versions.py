"""The version of copies is one that a workspace and a mailbox serve."""

from __future__ import annotations

from typing import cast

import pytest

from atoll.edge.placement_translator.versions import Unserved, Versions
from atoll.machinery.client.client import Client
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


async def test_the_first_version_of_the_workspace_that_the_mailbox_serves_counts() -> None:
    mailbox = Mailbox("v2", "v1")
    versions = Versions(cast(Client, mailbox))
    assert versions.choose("m", GAUGES, ("v3", "v2", "v1")) == "v3", "nothing says otherwise"
    assert await versions.read("m", GAUGES, "v3")
    assert versions.choose("m", GAUGES, ("v3", "v2", "v1")) == "v2"
    assert versions.choose("other", GAUGES, ("v3", "v2", "v1")) == "v3"
    with pytest.raises(Unserved, match=r"serves gauges\.x\.example\.com at v3, the mailbox at v2, v1"):
        versions.choose("m", GAUGES, ("v3",))


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
    assert versions.choose("m", GAUGES, ("v2", "v1")) == "v2"
