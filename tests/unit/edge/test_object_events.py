"""Events about workload objects: counted, not repeated, and never a flood."""

from __future__ import annotations

from typing import Any, cast

import pytest

from atoll.edge.export_view import ExportView
from atoll.edge.placement_translator import object_events
from atoll.edge.placement_translator.content import Content, Item
from atoll.edge.placement_translator.contents import Contents
from atoll.edge.placement_translator.object_events import MAX_A_MINUTE, ObjectEvents
from atoll.machinery.client.client import Client
from atoll.machinery.client.discovery import ServedKind
from atoll.machinery.client.resource import Resource
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.edge.what import Selection
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import AlreadyExists


class Workspace:
    """A client of every workspace, and the view that has it; keeps Events. A broken one answers nothing."""

    def __init__(self) -> None:
        self.events: dict[str, Object] = {}
        self.is_broken = False

    def client(self, cluster: str) -> Workspace:
        return self

    cluster = client

    async def create(self, kind: Resource, event: Object) -> None:
        if self.is_broken:
            raise TimeoutError
        if event["metadata"]["name"] in self.events:
            raise AlreadyExists("it is there")
        self.events[event["metadata"]["name"]] = event

    async def get(self, kind: Resource, name: str, namespace: str) -> Object:
        return self.events[name]

    async def patch(self, kind: Resource, name: str, patch: Object, namespace: str) -> None:
        self.events[name] |= patch


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


def ref(name: str) -> ObjectRef:
    return ObjectRef("", "configmaps", "shop", name)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(object_events, "time", found)
    return found


def controller(workspace: Workspace, objects: int = 1) -> ObjectEvents:
    content = Content()
    kind = ServedKind(Resource("", "v1", "configmaps"), "ConfigMap", frozenset(), frozenset(), ("v1",), frozenset())
    content.kinds[ref("").kind] = kind
    for number in range(objects):
        content.put(ref(f"o{number}"), Item(Selection(("p",)), ("v1",), "d", f"uid-{number}"))
    contents: Any = type("Contents", (), {"get": staticmethod(lambda cluster: content)})
    return ObjectEvents(cast(ExportView, workspace), cast(Client, workspace), cast(Contents, contents))


async def test_an_event_is_about_the_object_and_what_is_told_again_is_counted(clock: Clock) -> None:
    workspace = Workspace()
    events = controller(workspace)
    for _ in range(3):
        events.tell("w", ref("o0"), "Reason", "text")
    await events.reconcile("w")
    (event,) = workspace.events.values()
    involved = {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "shop", "name": "o0", "uid": "uid-0"}
    assert (event["involvedObject"], event["metadata"]["namespace"]) == (involved, "shop")
    assert (event["reason"], event["message"], event["type"], event["count"]) == ("Reason", "text", "Warning", 3)
    events.tell("w", ref("o0"), "Reason", "text")
    await events.reconcile("w")
    assert [each["count"] for each in workspace.events.values()] == [4]
    again = controller(workspace)
    again.tell("w", ref("o0"), "Reason", "text")
    await again.reconcile("w")
    assert [each["count"] for each in workspace.events.values()] == [5], "also by another process"
    again.tell("w", ref("gone"), "Reason", "text")
    assert await again.reconcile("w") is not None
    assert len(workspace.events) == 1, "nothing of an object that is not sent"


async def test_a_thousand_in_a_minute_are_twenty_events_and_as_many_later(clock: Clock) -> None:
    workspace = Workspace()
    events = controller(workspace, 1000)
    for number in range(1000):
        events.tell("w", ref(f"o{number}"), "Reason", "text")
        if number % 100 == 0:
            await events.reconcile("w")
    wait_s = await events.reconcile("w")
    assert len(workspace.events) == MAX_A_MINUTE
    assert wait_s == 60.0
    clock.now_s += 59.0
    await events.reconcile("w")
    assert len(workspace.events) == MAX_A_MINUTE
    clock.now_s += 1.0
    await events.reconcile("w")
    assert len(workspace.events) == 2 * MAX_A_MINUTE
    events.tell("other", ref("o0"), "Reason", "text")
    await events.reconcile("other")
    assert len(workspace.events) == 2 * MAX_A_MINUTE, "the same object, so the same Event"
    clock.now_s += 60.0
    assert await events.reconcile("w") is None, "nothing is kept of a workspace that is quiet"


async def test_of_a_burst_no_more_waits_than_a_minute_has(clock: Clock) -> None:
    workspace = Workspace()
    events = controller(workspace, 1000)
    for number in range(1000):
        events.tell("w", ref(f"o{number}"), "Reason", "text")
    for _ in range(3):
        await events.reconcile("w")
        clock.now_s += 60.0
    assert len(workspace.events) == MAX_A_MINUTE


async def test_what_could_not_be_written_is_written_later(clock: Clock) -> None:
    workspace = Workspace()
    events = controller(workspace)
    events.tell("w", ref("o0"), "Reason", "text")
    workspace.is_broken = True
    with pytest.raises(TimeoutError):
        await events.reconcile("w")
    workspace.is_broken = False
    await events.reconcile("w")
    assert len(workspace.events) == 1
