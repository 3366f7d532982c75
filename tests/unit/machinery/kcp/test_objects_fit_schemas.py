"""What the builders make is valid by our own definitions, field by field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import re2
import yaml

from atoll.machinery.kcp.schema_files import definition
from atoll.machinery.kcp.workspaces.workspace import WorkspacePlan, build, desired_workspace
from atoll.machinery.kcp.workspaces.workspacetypes import TypeReference, resolve
from atoll.machinery.meta.objects import Object
from atoll.machinery.process.resources import schema_path
from harness.data.kcp_objects import ALPHA, NOW, bootstrapped, parent, root_exports, root_types, uids, workspace

KINDS = (
    "apibindings.apis.kcp.io",
    "apiexports.apis.kcp.io",
    "apiresourceschemas.apis.kcp.io",
    "shards.core.kcp.io",
    "logicalclusters.core.kcp.io",
    "workspaces.tenancy.kcp.io",
    "workspacetypes.tenancy.kcp.io",
)


def objects() -> Iterator[tuple[str, Object]]:
    resolution = resolve(TypeReference("universal", "root"), parent(), root_types())
    plan = WorkspacePlan(
        workspace=workspace(),
        parent_cluster="root",
        path="root:shop",
        cluster="1x9p0q7w5e3r2t8y",
        resolution=resolution,
        shard=ALPHA,
        find_export=root_exports(),
        now=NOW,
        new_uid=uids(),
    )
    built = build(plan)
    for manifest in (*bootstrapped(), *built):
        yield manifest.type.group_resource, manifest.object
    yield "workspaces.tenancy.kcp.io", desired_workspace(workspace(), built[0].object, ALPHA, NOW)


def schema_of(name: str, api_version: str) -> Any:
    version = api_version.rpartition("/")[2]
    versions = definition(name)["spec"]["versions"]
    return next(each for each in versions if each["name"] == version)["schema"]["openAPIV3Schema"]


def undeclared(value: Any, schema: Any, path: str = "") -> Iterator[str]:
    """Fields that the schema would prune; metadata is everybody's."""
    if schema.get("x-kubernetes-preserve-unknown-fields") or path == ".metadata":
        return
    if isinstance(value, list):
        for each in value:
            yield from undeclared(each, schema["items"], path + "[]")
    elif isinstance(value, dict) and "additionalProperties" not in schema:
        for key, child in value.items():
            if key not in schema.get("properties", {}):
                yield f"{path}.{key}"
            else:
                yield from undeclared(child, schema["properties"][key], f"{path}.{key}")


@pytest.mark.parametrize("name", KINDS)
def test_objects_of_this_kind_are_valid(name: str) -> None:
    found = [obj for kind, obj in objects() if kind == name]
    assert found
    for obj in found:
        schema = schema_of(name, obj["apiVersion"])
        jsonschema.Draft7Validator(schema).validate(obj)
        assert list(undeclared(obj, schema)) == []


def patterns(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("pattern"), str):
            yield schema["pattern"]
        for child in schema.values():
            yield from patterns(child)
    elif isinstance(schema, list):
        for child in schema:
            yield from patterns(child)


def test_patterns_are_of_the_dialect_that_servers_run() -> None:
    crds = [yaml.load(path.read_text(), yaml.CSafeLoader) for path in schema_path("crds").glob("*.yaml")]
    found = list(patterns(crds))
    assert len(found) > 20
    for pattern in found:
        re2.compile(pattern)
