"""What a mailbox asks for comes up with its status, follows its object, and goes with it or with the wish."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from atoll.machinery.client.client import Client
from atoll.machinery.client.kubeconfig import Target
from atoll.machinery.client.resource import Resource
from atoll.machinery.edge.names import UPSYNCED, ObjectRef
from atoll.machinery.edge.upsync import Bounds
from atoll.machinery.meta.objects import Object, annotations_of
from atoll.machinery.meta.status import NotFound
from atoll.syncer import syncer
from atoll.syncer.syncer import Options
from harness.clients.api import configmap, crd
from harness.servers.in_process.mailbox_view import MailboxView
from harness.servers.in_process.syncer import TIMING, Run, syncing
from harness.waits import until
from integration.syncer.test_refusals import CRDS

CONFIGMAPS, NAMESPACES = Resource("", "v1", "configmaps"), Resource("", "v1", "namespaces", namespaced=False)
NAMESPACE = "reports"
#: ConfigMaps of one Namespace.
UPSYNC_SET: Object = {"apiGroup": "", "resources": ["configmaps"], "namespaces": [NAMESPACE], "names": ["*"]}


def path(name: str) -> str:
    return f"/api/v1/namespaces/{NAMESPACE}/configmaps/{name}"


def holds(view: MailboxView, name: str, data: dict[str, str] | None) -> Callable[[], Awaitable[Any]]:
    """The mailbox has a copy with this data, or with None has none."""

    async def look() -> bool:
        found = view.others.get(path(name))
        return found is None if data is None else found is not None and found.get("data") == data

    return look


@pytest.mark.long
async def test_copies_follow_their_objects_and_leave_what_did_not_come_up(
    view: MailboxView, edge: Client, run: Run, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    await edge.apply(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    for name in ("one", "two", "three", "taken"):
        await edge.create(CONFIGMAPS, configmap(name, {"a": "1"}, namespace=NAMESPACE))
    await edge.create(CONFIGMAPS, configmap("elsewhere", namespace="default"))
    metadata = {"name": "taken", "namespace": NAMESPACE, "resourceVersion": "1", "uid": "u"}
    view.others[path("taken")] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"mine": "1"}}
    view.upsync([UPSYNC_SET])
    async with run(state):
        await until(holds(view, "two", {"a": "1"}), "they come up")
        assert annotations_of(view.others[path("two")])[UPSYNCED] == f"ConfigMap/{NAMESPACE}/two"
        assert not any("elsewhere" in each for each in view.others)
        await edge.patch(CONFIGMAPS, "two", {"data": {"a": "2"}}, NAMESPACE)
        await until(holds(view, "two", {"a": "2"}), "a change comes up")

        async def errors() -> Any:
            return [each["reason"] for each in view.config_status.get("errors") or ()]

        assert await until(errors, "the name that is taken is reported") == ["NameTaken"]
        assert view.others[path("taken")]["data"] == {"mine": "1"}
        await edge.delete(CONFIGMAPS, "one", NAMESPACE)
        await until(holds(view, "one", None), "what goes at the edge goes in the mailbox")
    await edge.delete(CONFIGMAPS, "three", NAMESPACE)
    state.unlink()
    async with run(state):
        await until(holds(view, "three", None), "so does what went while no syncer ran and none remembers")
        view.upsync([])
        await until(holds(view, "two", None), "and what nobody asks for any more")
        assert path("taken") in view.others


async def test_an_edge_sync_config_asks_for_objects_too(view: MailboxView, edge: Client, run: Run) -> None:
    space = await new_namespace(edge)
    for name in ("by-name", "by-kind"):
        await edge.create(CONFIGMAPS, configmap(name, {"a": "1"}, namespace=space))
    row = {"kind": "ConfigMap", "group": "", "version": "v1", "name": "by-name", "namespace": space}
    ref = ObjectRef("edge.kubestellar.io", "edgesyncconfigs", "", "old")
    config: Object = {
        "apiVersion": "edge.kubestellar.io/v2alpha1",
        "kind": "EdgeSyncConfig",
        "metadata": {"name": "old"},
    }
    view.put(ref, {**config, "spec": {"upSyncedResources": [row]}})
    copy = path("by-name").replace(NAMESPACE, space)
    async with run():
        await until(lambda: came_up(view, copy), "what it names comes up")
        assert not await came_up(view, copy.replace("by-name", "by-kind"))
        view.put(ref, {**config, "spec": {"upSyncedResources": [{**row, "name": "*"}]}})
        await until(lambda: came_up(view, copy.replace("by-name", "by-kind")), "then all of its kind")
        view.delete(ref)

        async def is_gone() -> bool:
            return copy not in view.others

        await until(is_gone, "and what nobody asks for any more goes")


@pytest.mark.parametrize("asks_for", ["gears", "*"])
async def test_a_kind_that_the_edge_serves_later_comes_up(
    view: MailboxView, edge: Client, run: Run, monkeypatch: pytest.MonkeyPatch, asks_for: str
) -> None:
    """Its definition is not of this syncer, and the group is served before, as in discovery that lags behind."""
    monkeypatch.setattr(syncer, "_LOOK_AGAIN_S", 0.1)
    group, space = f"u{uuid.uuid4().hex[:8]}.example.com", await new_namespace(edge)

    async def make(plural: str, kind: str) -> str:
        await edge.create(CRDS, crd(plural, group))
        gear = {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": "first", "namespace": space}}
        resource = Resource(group, "v1", plural)

        async def is_made() -> bool:
            with contextlib.suppress(NotFound):
                await edge.create(resource, gear)
                return True
            return False

        await until(is_made, f"{plural} are served")
        return resource.path(space, "first")

    cog = await make("cogs", "Cog")
    asked = {"apiGroup": group, "namespaces": [space], "names": ["*"]}
    view.upsync([{**asked, "resources": ["cogs"]}, {**asked, "resources": [asks_for]}])
    async with run():
        await until(lambda: came_up(view, cog), "what is served comes up")
        gear = await make("gears", "Gear")
        await until(lambda: came_up(view, gear), "so does what is served later")


async def test_a_repeated_look_for_kinds_looks_at_no_object(
    view: MailboxView, edge: Client, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syncer, "_LOOK_AGAIN_S", 0.05)
    space = await new_namespace(edge)
    await edge.create(CONFIGMAPS, configmap("one", {"a": "1"}, namespace=space))
    view.upsync([{**UPSYNC_SET, "namespaces": [space], "resources": ["configmaps", "lacking"]}])
    async with run() as running:
        copy = path("one").replace(NAMESPACE, space)
        await until(lambda: came_up(view, copy), "it comes up")
        looks, objects = list[str](), running.upsync
        assert objects is not None
        preferred, every = running.edge.kinds.preferred, objects.all

        async def look(group: str) -> str:
            looks.append(group)
            return await preferred(group)

        def look_at_objects() -> None:
            looks.clear()
            every()

        monkeypatch.setattr(running.edge.kinds, "preferred", look)
        monkeypatch.setattr(objects, "all", look_at_objects)

        async def is_quiet() -> bool:
            return len(looks) >= 3

        await until(is_quiet, "kinds are looked for three times, and no object between")


async def new_namespace(edge: Client) -> str:
    made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "u-"}}
    return str((await edge.create(NAMESPACES, made))["metadata"]["name"])


async def came_up(view: MailboxView, copy: str) -> bool:
    return copy in view.others


@pytest.mark.long
async def test_what_is_beyond_the_bounds_is_reported_and_comes_up_when_there_is_room(
    view: MailboxView, edge: Client, cluster: tuple[Target, str]
) -> None:
    space = await new_namespace(edge)
    for name, size in (("a", 3000), ("b", 3000), ("c", 3000), ("d", 9000)):
        await edge.create(CONFIGMAPS, configmap(name, {"x": "x" * size}, namespace=space))
    view.upsync([{**UPSYNC_SET, "namespaces": [space]}])

    async def state() -> tuple[set[str], set[tuple[str, str]]]:
        copies = {each.rpartition("/")[2] for each in view.others if f"/{space}/configmaps/" in each}
        errors = {(each["name"], each["reason"]) for each in view.config_status.get("errors") or ()}
        return copies, errors

    def shows(copies: str, left_out: str) -> Callable[[], Awaitable[Any]]:
        async def look() -> bool:
            return await state() == (set(copies), {(name, "TooMany") for name in left_out})

        return look

    def options(bounds: Bounds) -> Options:
        return Options(f"bounded-{space}", 500.0, 500, None, TIMING, TIMING, bounds)

    async with syncing(cluster, view.target, options(Bounds(objects=2))):
        await until(shows("ab", "cd"), "as many as may come up do, the others are reported")
        await edge.delete(CONFIGMAPS, "a", space)
        await until(shows("bc", "d"), "there is room for one more")
    async with syncing(cluster, view.target, options(Bounds(size_bytes=9000))):
        await until(shows("bc", "d"), "after a start what is up stays")
        await edge.patch(CONFIGMAPS, "c", {"data": {"x": "x" * 8000}}, space)

        async def is_kept() -> bool:
            errors = {each["name"] for each in view.config_status.get("errors") or ()}
            return errors == {"c", "d"} and len(view.others[path("c").replace(NAMESPACE, space)]["data"]["x"]) == 3000

        await until(is_kept, "a copy that outgrows the bounds stays as it is")
        await edge.delete(CONFIGMAPS, "d", space)
        await until(shows("bc", "c"), "what is gone is not reported")
        view.upsync([])
        await until(shows("", ""), "nor what nobody asks for")
