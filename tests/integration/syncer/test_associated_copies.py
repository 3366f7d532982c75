"""Associated objects come whole into the mailbox where a collector asks for that, with the mark of the placed one."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import Resource
from atoll.machinery.edge.associated import query_row
from atoll.machinery.edge.names import ASSOCIATED_WITH, UPSYNCED
from atoll.machinery.meta.objects import Object, annotations_of
from atoll.syncer import associated
from harness.clients.api import configmap
from harness.servers.in_process.mailbox_view import MailboxView
from harness.servers.in_process.syncer import Run
from harness.waits import until
from integration.syncer.test_refusals import has

SECRETS = Resource("", "v1", "secrets")
COPIES = "/api/v1/namespaces/default/secrets/"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What belongs to an object is looked at soon."""
    monkeypatch.setattr(associated, "BATCH_S", 0.05)


def secret(name: str, of: str, value: str = "MQ==") -> Object:
    metadata = {"name": name, "namespace": "default", "labels": {"part-of": of}}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"a": value}}


def writes(view: MailboxView) -> int:
    return sum(method != "GET" and path.startswith(COPIES.rstrip("/")) for method, path in view.requests)


async def test_the_first_of_a_placed_object_come_up_and_go_with_it(
    view: MailboxView, edge: Client, run: Run, tmp_path: Path
) -> None:
    name = f"web-{uuid.uuid4().hex[:8]}"
    row = query_row("", {"target": [{"objectNames": [name]}], "associated": [_rule()]})
    view.associate([row])

    def are_up(*values: tuple[str, str]) -> Callable[[], Awaitable[Any]]:
        async def look() -> bool:
            found = {path.removeprefix(COPIES): obj for path, obj in view.others.items() if path.startswith(COPIES)}
            return {key: obj["data"]["a"] for key, obj in found.items()} == {f"{name}-{key}": v for key, v in values}

        return look

    async with run(tmp_path / "state"):
        refs = view.place(configmap(name, {"a": "1"}, namespace="default"))
        await until(has(edge, "default", name, {"a": "1"}), "it is there")
        for each in ("c", "b", "alone"):
            await edge.create(SECRETS, secret(f"{name}-{each}", name if each != "alone" else "nobody"))
        await until(are_up(("b", "MQ=="), ("c", "MQ==")), "two come up")
        await edge.create(SECRETS, secret(f"{name}-a", name))
        await until(are_up(("a", "MQ=="), ("b", "MQ==")), "the first two by name are up")
        marks = annotations_of(view.others[f"{COPIES}{name}-a"])
        assert (marks[ASSOCIATED_WITH], marks[UPSYNCED]) == (f"ConfigMap/default/{name}", f"Secret/default/{name}-a")
        await edge.patch(SECRETS, f"{name}-a", {"data": {"a": "Mg=="}}, "default")
        await until(are_up(("a", "Mg=="), ("b", "MQ==")), "a copy follows its object")
    before = writes(view)
    async with run(tmp_path / "state"):
        await edge.patch(SECRETS, f"{name}-b", {"data": {"a": "Mw=="}}, "default")
        await until(are_up(("a", "Mg=="), ("b", "Mw==")), "what changed meanwhile")
        assert writes(view) == before + 1, "a start makes no copy anew"
        view.associate([{**row, "objects": [_rule(copies=False)]}])
        await until(are_up(), "nobody asks for copies any more")
        view.associate([row])
        await until(are_up(("a", "Mg=="), ("b", "Mw==")), "they are asked for again")
        view.withdraw(*refs)
        await until(are_up(), "they go with the placed object")
        left = [each["metadata"]["name"] for each in (await edge.list(SECRETS, "default"))["items"]]
        assert {f"{name}-a", f"{name}-b"} <= set(left), "at the edge they stay"


def _rule(**fields: object) -> Object:
    return {"resource": "secrets", "label": "part-of", "maxObjects": 2, "copies": True, **fields}
