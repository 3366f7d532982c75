"""The data in `schemas/native/kubernetes` is what the pinned version of Kubernetes publishes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from atoll.machinery.kinds import protobuf_table as table
from atoll.machinery.kinds.native_schemas import REF_PREFIX, definitions
from atoll.machinery.kinds.protobuf_values import READERS
from harness.kubernetes_source import files, messages
from harness.kubernetes_source.modules import NoSource
from harness.kubernetes_source.selection import GROUPS, resources

#: Fields whose rows in the tables that are edited by hand differ.
DIFFERENT = {
    # A later version changed both; the table has the later form.
    ("io.k8s.api.core.v1.PodStatus", "nodeAllocatableResourceClaimStatuses"),
    ("io.k8s.api.core.v1.NodeAllocatableResourceClaimStatus", "resources"),
    # Their patch marks are in the OpenAPI of built-in kinds only, which no protobuf needs.
    ("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", "finalizers"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", "ownerReferences"),
}


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    """The files as the source makes them; skips without Go or its module proxy."""
    try:
        return files.made()
    except NoSource as error:
        pytest.skip(str(error))


def loaded(name: str) -> Any:
    return json.loads((files.folder() / name).read_text())


def references(value: Any) -> Iterator[str]:
    for key, each in value.items() if isinstance(value, dict) else enumerate(value):
        if key == "$ref" and isinstance(each, str):
            yield each
        elif isinstance(each, (dict, list)):
            yield from references(each)


@pytest.mark.timeout(700)
def test_the_files_are_those_of_the_pinned_version(made: dict[str, str]) -> None:
    """After a new pin or selection, `python -m harness.kubernetes_source --write` writes them."""
    assert files.differences() == []


@pytest.mark.timeout(700)
def test_a_changed_a_missing_and_a_surplus_file_are_found(
    made: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = tmp_path / "kubernetes"
    shutil.copytree(files.folder(), copied)
    monkeypatch.setattr(files, "folder", lambda: copied)
    (copied / "openapi" / "apps.json").unlink()
    (copied / "openapi" / "more.json").write_text("{}")
    kinds = (copied / "kinds.json").read_text()
    (copied / "kinds.json").write_text(kinds.replace('"deploy"', '"deployment"'))
    assert files.differences() == ["kinds.json", "openapi/apps.json", "openapi/more.json"]
    files.write()
    assert files.differences() == []


def test_every_selected_resource_has_a_row_and_every_version_a_component() -> None:
    rows = loaded("kinds.json")["kinds"]
    assert [(row["group"], row["plural"]) for row in rows] == [
        (group, plural) for group in GROUPS for plural in resources(group)
    ]
    components = {name for path in files.folder().glob("openapi/*.json") for name in json.loads(path.read_text())}
    assert {version["component"] for row in rows for version in row["versions"]} <= components
    assert all(row["columns"][0]["name"] == "Name" for row in rows if row["kind"] != "LimitRange")


def test_every_reference_has_its_component_and_none_is_there_twice() -> None:
    found: dict[str, Any] = {}
    for path in files.folder().glob("openapi/*.json"):
        schemas = json.loads(path.read_text())
        assert not found.keys() & schemas.keys()
        found |= schemas
    assert not found.keys() & definitions().keys()
    wanted = {each.removeprefix(REF_PREFIX) for each in references(found)}
    assert wanted <= found.keys() | definitions().keys()
    assert not [name for name, schema in found.items() if '"description": "' in json.dumps(schema)]


@pytest.mark.timeout(700)
def test_fields_of_messages_are_those_of_the_go_types(made: dict[str, str]) -> None:
    """Number, type and marks of every field of every kind, in the tables that are edited by hand too."""
    rows = loaded("kinds.json")["kinds"]
    kinds = {
        (row["group"] + version["name"], row["kind"]): version["component"]
        for row in rows
        for version in row["versions"]
    }
    different = set()
    for message, fields in messages.tables(kinds, READERS)["messages"].items():
        edited = {(row.name, row.number): row for row in table.rows_of(message)}
        inlined = {row.type for row in edited.values() if row.inline}
        for field in fields:
            if field.get("inline"):
                assert field["type"] in inlined, message
            elif edited.get((field["name"], field["number"])) != table.Row(**field):
                different.add((message, field["name"]))
    assert different == DIFFERENT
