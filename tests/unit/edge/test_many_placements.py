"""A workspace with ten thousand placements, and what its neighbours notice of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from atoll.edge.export_view import ExportView
from atoll.edge.kinds import PLACEMENTS
from atoll.edge.placement_translator import reading
from atoll.edge.placement_translator.content import Content
from atoll.edge.placement_translator.contents import Contents
from atoll.edge.placement_translator.projection import Projection
from atoll.edge.placement_translator.reading import Reading
from atoll.edge.placement_translator.reported_states import ReportedKey, ReportedStates
from atoll.edge.placement_translator.statuses import BURST_S, Statuses
from atoll.edge.placement_translator.topology import Topology
from atoll.edge.summarizer.summaries import Summaries, SummaryKey
from atoll.edge.where_resolver import WhereKey, WhereResolver
from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import Resource
from atoll.machinery.edge.categories import BuiltIns
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.edge.placements import placement_of
from atoll.machinery.meta.objects import Object

MANY = 10_000


def placement(cluster: str, name: str) -> Object:
    annotations = {"kcp.io/cluster": cluster}
    metadata = {"name": name, "uid": name, "generation": 1, "resourceVersion": "1", "annotations": annotations}
    spec = {"downsync": [{"apiGroup": "", "resources": ["configmaps"]}]}
    return {"metadata": metadata, "spec": spec, "status": {"specGeneration": 1}}


async def test_a_neighbours_placement_is_resolved_after_one_of_the_ten_thousand() -> None:
    resolver = WhereResolver(cast(Client, None), "edge")
    change = resolver.view._changed
    for number in range(MANY):
        change(PLACEMENTS, None, placement("tenant", f"p{number}"))
    change(PLACEMENTS, None, placement("neighbour", "p"))
    taken = [(await resolver.queue.take())[0] for _ in range(2)]
    assert taken == [WhereKey(PLACEMENTS, "tenant", "p0"), WhereKey(PLACEMENTS, "neighbour", "p")]


async def test_reported_states_and_summaries_of_a_neighbour_come_in_turn() -> None:
    nothing: Any = None
    ref = ObjectRef("", "configmaps", "d", "c")
    reported = ReportedStates(nothing, Topology(), nothing, nothing).queue
    for number in range(MANY):
        reported.add(ReportedKey("tenant", ObjectRef("", "configmaps", "d", str(number))))
    reported.add(ReportedKey("neighbour", ref))
    assert [(await reported.take())[0].cluster for _ in range(2)] == ["tenant", "neighbour"]
    summaries = Summaries(nothing, nothing, nothing, nothing, nothing).queue
    for number in range(MANY):
        summaries.add(SummaryKey("tenant", "d", str(number)))
    summaries.add(SummaryKey("neighbour", "d", "s"))
    assert [(await summaries.take())[0].cluster for _ in range(2)] == ["tenant", "neighbour"]


class Sender:
    """The contents of each workspace: nothing is sent."""

    def __init__(self) -> None:
        self._content = Content()
        self._content.is_complete = True

    def get(self, cluster: str) -> Content:
        return self._content


class Owner:
    """Clients that keep what is written to the status of placements."""

    def __init__(self) -> None:
        self.written = list[tuple[str, str]]()

    def client(self, cluster: str) -> Any:
        owner = self

        class OfCluster:
            async def patch(self, resource: Resource, name: str, body: Object, subresource: str) -> None:
                owner.written.append((cluster, name))

            async def create(self, resource: Resource, obj: Object) -> None:
                """Take an Event."""

        return OfCluster()


async def test_a_status_is_written_without_a_walk_of_the_other_placements_and_a_neighbours_comes_in_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topology, owner = Topology(), Owner()
    for number in range(MANY):
        topology.set_placement("tenant", f"p{number}", placement("tenant", f"p{number}"))
    topology.set_placement("neighbour", "p", placement("neighbour", "p"))
    statuses = Statuses(cast(ExportView, owner), topology, cast(Contents, Sender()))
    conflicts = SimpleNamespace(has_any=lambda cluster: False)
    composition = SimpleNamespace(conflicts=conflicts)
    statuses.projection = cast(
        Projection, SimpleNamespace(copies=SimpleNamespace(composition=composition), is_read=lambda mailbox: True)
    )
    walks = list[str]()
    monkeypatch.setattr(topology, "placements", walks.append)
    statuses.look("tenant", topology.names("tenant"))
    statuses.look("neighbour", ["p"])
    monkeypatch.setattr(statuses.queue, "_clock", lambda: time.monotonic() + BURST_S)
    first = [(await statuses.queue.take())[0] for _ in range(2)]
    assert first == [("tenant", "p0"), ("neighbour", "p")]
    for key in first:
        await statuses.reconcile(key)
    assert owner.written == first
    assert walks == []


class Workspace:
    """A client of a workspace with some ConfigMaps."""

    async def discover(self, path: str) -> Object:
        row = {
            "resource": "configmaps",
            "scope": "Namespaced",
            "verbs": ["list"],
            "responseKind": {"kind": "ConfigMap"},
        }
        versions = [{"version": "v1", "resources": [row]}]
        return {"items": [{"metadata": {}, "versions": versions}] if path == "/api" else []}

    async def pages(self, resource: Resource, **options: str) -> AsyncIterator[Object]:
        head = {"namespace": "d", "resourceVersion": "1"}
        yield {"items": [{"metadata": {**head, "name": f"c{number}", "uid": str(number)}} for number in range(9)]}

    async def list(self, resource: Resource, **options: str) -> Object:
        return {"items": []}


async def test_a_reading_with_ten_thousand_placements_lets_others_go_on_between_objects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "SLICE_S", 0.0)
    placements = [placement_of(placement("tenant", f"p{number}")) for number in range(MANY)]
    content, turns = Content(), 0
    rules = placements, BuiltIns()
    found = Reading(cast(Client, Workspace()), content, rules, lambda ref, obj: b"", lambda ref, digest, revision: 1)

    async def neighbour() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(neighbour())
    await found.everything()
    beside.cancel()
    assert len(content.items) == 9
    assert turns >= 9
    assert content.count("p9999") == 9
