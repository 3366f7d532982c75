"""What is known of a body is not taken for known of what is stored: an update of an object of an earlier schema."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from atoll.machinery.apiserver.call.negotiation import JSON
from atoll.machinery.apiserver.call.options import WriteOptions
from atoll.machinery.apiserver.rest.patch import MERGE, plan_patch
from atoll.machinery.apiserver.rest.update import plan_update
from atoll.machinery.apiserver.writing.target import Target, make_call
from atoll.machinery.kinds.custom import kinds_of_resource_schema
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.objects import Object, encode_json
from harness.clients.api import crd
from harness.clients.exports import schema_of
from harness.servers.in_process.minimal_shard import Cell, cell

HOME = "home"
TEXT: Object = {"type": "string"}


def kind_of(*names: str) -> Kind:
    """Of a schema with these fields of the status, and one beside it; a later schema has the same identity."""
    definition = crd("circles")
    status = {"type": "object", "properties": dict.fromkeys(names, TEXT)}
    properties = {"spec": {**TEXT, "default": "none"}, "status": status, f"with{len(names)}": TEXT}
    version = definition["spec"]["versions"][0]
    version["schema"] = {"openAPIV3Schema": {"type": "object", "properties": properties}}
    version["subresources"], definition["spec"]["scope"] = {"status": {}}, "Cluster"
    return kinds_of_resource_schema(schema_of(definition), "i" * 64)[0]


def circle(**content: object) -> Object:
    return {"apiVersion": "shapes.example.com/v1", "kind": "Circle", "metadata": {"name": "a"}, **content}


async def made(here: Cell, **content: object) -> str:
    """Store an object with a status that a later schema does not have; return its resourceVersion."""
    await here.cluster(HOME)
    target = Target(kind_of("a", "b"), HOME, "", "a")
    obj = await here.loopback.create(target, circle(**content), whole=True)
    return str(obj["metadata"]["resourceVersion"])


async def written(here: Cell, verb: str, body: Object, subresource: str = "") -> Object:
    """Plan a client's write under a later schema, and return the object that it would store."""
    target = Target(kind_of("a"), HOME, "", "a", subresource)
    content_type = MERGE if verb == "patch" else JSON
    call = replace(make_call(target, verb, None, "test"), body=encode_json(body), content_type=content_type)
    with here.store.snapshot() as snapshot:
        plan = plan_update if verb == "update" else plan_patch
        obj = plan(here.core.context(call, snapshot, WriteOptions())).review.obj
    assert obj is not None
    return obj


@pytest.mark.parametrize("verb", ["update", "patch"])
async def test_a_stored_status_is_pruned_by_the_schema_as_it_is_now(tmp_path: Path, verb: str) -> None:
    async with cell(tmp_path) as here:
        version = await made(here, spec="x", status={"a": "A", "b": "B"})
        body: Object = circle(spec="y") if verb == "update" else {"spec": "y"}
        body["metadata"] = {"name": "a", "resourceVersion": version}
        obj = await written(here, verb, body)
        assert (obj["spec"], obj["status"]) == ("y", {"a": "A"})


async def test_what_is_beside_a_status_is_pruned_when_that_is_removed(tmp_path: Path) -> None:
    async with cell(tmp_path) as here:
        version = await made(here, spec="x", with2="stored", status={"a": "A"})
        body = circle()
        body["metadata"] = {"name": "a", "resourceVersion": version}
        obj = await written(here, "update", body, "status")
        assert (obj["spec"], "status" in obj, "with2" in obj) == ("x", False, False)


@pytest.mark.parametrize("verb", ["update", "patch"])
async def test_a_plain_write_gets_its_defaults(tmp_path: Path, verb: str) -> None:
    async with cell(tmp_path) as here:
        version = await made(here, spec="x")
        body: Object = circle() if verb == "update" else {"spec": None}
        body["metadata"] = {"name": "a", "resourceVersion": version}
        assert (await written(here, verb, body))["spec"] == "none"
