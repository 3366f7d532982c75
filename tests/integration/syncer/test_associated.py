"""What the edge makes of a placed object is told by one state in the mailbox, as long as somebody asks."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import Resource
from atoll.machinery.edge.associated import query_row
from atoll.machinery.edge.associated_states import state_key
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.meta.objects import Object
from atoll.syncer import associated
from harness.clients.api import configmap, crd
from harness.servers.in_process.mailbox_view import MailboxView
from harness.servers.in_process.syncer import Run
from harness.waits import until
from integration.syncer.test_refusals import CRDS, has

CONFIGMAPS, SECRETS = Resource("", "v1", "configmaps"), Resource("", "v1", "secrets")
STATES = "/apis/edge.kubestellar.io/v2alpha1/namespaces/default/associatedstates"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A state waits for little more."""
    monkeypatch.setattr(associated, "BATCH_S", 0.05)


def writes(view: MailboxView) -> int:
    return sum(method in ("POST", "PUT", "DELETE") and path.startswith(STATES) for method, path in view.requests)


def cog(group: str, name: str, **metadata: Any) -> Object:
    return {"apiVersion": f"{group}/v1", "kind": "Cog", "metadata": {"name": name, "namespace": "default", **metadata}}


def ready(status: str) -> Object:
    return {"status": {"conditions": [{"type": "Ready", "status": status, "message": "stuck"}], "phase": "Turning"}}


async def test_a_state_follows_what_belongs_to_a_placed_object(
    view: MailboxView, edge: Client, run: Run, tmp_path: Path
) -> None:
    group, name = f"a{uuid.uuid4().hex[:8]}.example.com", f"web-{uuid.uuid4().hex[:8]}"
    definition = crd("cogs", group)
    properties = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    properties["status"]["x-kubernetes-preserve-unknown-fields"] = True
    await edge.create(CRDS, definition)
    cogs, path = Resource(group, "v1", "cogs"), f"{STATES}/{state_key(ObjectRef('', 'configmaps', 'default', name))[1]}"

    def says(**fields: object) -> Callable[[], Awaitable[Any]]:
        async def look() -> bool:
            state = view.others.get(path) or {}
            return bool(state) and {field: state[field] for field in fields} == fields

        return look

    def counts(wanted: list[tuple[str, str, str, int]]) -> Callable[[], Awaitable[Any]]:
        async def look() -> bool:
            found = view.others[path]["counts"]
            return [(each["resource"], each["phase"], each["reason"], each["count"]) for each in found] == wanted

        return look

    rules = [{"apiGroup": group, "resource": "cogs", "maxObjects": 1}, {"resource": "secrets", "label": "part-of"}]
    row = query_row("", {"target": [{"objectNames": [name]}], "associated": rules})
    view.associate([row])
    async with run(tmp_path / "state"):
        view.place(configmap(name, {"a": "1"}, namespace="default"), configmap("bare", {}, namespace="default"))
        await until(has(edge, "default", name, {"a": "1"}), "it is there")
        await until(says(total=0, counts=[]), "nothing belongs to it")
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": name}
        owner["uid"] = (await edge.get(CONFIGMAPS, name, "default"))["metadata"]["uid"]
        for each, status in (("one", "False"), ("two", "False"), ("three", "True")):
            await edge.create(cogs, cog(group, f"{name}-{each}", ownerReferences=[owner]))
            await edge.patch(cogs, f"{name}-{each}", ready(status), "default", "status")
        await edge.create(cogs, cog(group, f"{name}-alone"))
        secret = {"name": f"{name}-s", "namespace": "default", "labels": {"part-of": name}}
        await edge.create(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": secret})
        await until(says(total=4, broken=2, brokenTruncated=1), "cogs and a Secret belong to it")
        # The Secret may be seen before the last status.
        counted = [("secrets", "", "", 1), ("cogs", "Turning", "", 1), ("cogs", "Turning", "NotReady", 2)]
        await until(counts(counted), "with their phases and reasons")
        (broken,) = view.others[path]["brokenObjects"]
        assert (broken["kind"], broken["reason"], broken["message"]) == ("Cog", "NotReady", "stuck")
        assert not any("bare" in each["subject"]["name"] for key, each in view.others.items() if STATES in key)
    before = writes(view)
    async with run(tmp_path / "state"):
        await edge.patch(cogs, f"{name}-one", ready("True"), "default", "status")
        await until(says(total=4, broken=1, brokenTruncated=0), "one of them turns again")
        assert writes(view) == before + 1, "a start writes nothing"
        # Somebody who may write it removed it meanwhile.
        view.others.pop(path)
        await edge.delete(cogs, f"{name}-two", "default")
        await until(says(total=3, broken=0), "what goes leaves the state, which is made again")
        view.associate([{**row, "objects": [{"resource": "nothings"}]}])
        await until(says(total=0), "a kind that is not served has no objects")

        async def is_reported() -> bool:
            return ("nothings", "NotServed") in {
                (each["resource"], each["reason"]) for each in view.config_status.get("errors") or ()
            }

        await until(is_reported, "it is told")
        view.associate([])

        async def is_gone() -> bool:
            return path not in view.others

        await until(is_gone, "nobody asks any more")
    view.associate([row])
    async with run(tmp_path / "state"):
        await until(says(total=3), "it is asked for again")
    view.associate([])
    async with run(tmp_path / "state"):
        await until(is_gone, "what nobody asks for since a time without a syncer goes")
