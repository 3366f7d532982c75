"""What a mailbox asks for comes up with its status, follows its object, and goes with it or with the wish."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import Resource
from atoll.machinery.edge.names import UPSYNCED
from atoll.machinery.meta.objects import Object, annotations_of
from harness.clients.api import configmap
from harness.servers.in_process.mailbox_view import MailboxView
from harness.servers.in_process.syncer import Run
from harness.waits import until

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
