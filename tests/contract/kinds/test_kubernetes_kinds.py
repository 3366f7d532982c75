"""Kubernetes' own kinds as APIResourceSchemas: valid, small, read late; real manifests fit them."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from atoll.machinery.kinds.kubernetes.resource_schemas import content_hash, resource_schema
from atoll.machinery.kinds.kubernetes.structural import structural
from atoll.machinery.kinds.kubernetes.tables import cell, components, rows
from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.process.resources import schema_path
from atoll.machinery.schema.definitions.apiresourceschema import validate_resource_schema
from atoll.machinery.schema.structural.structural_schema import StructuralSchema, compile_schema
from harness.data.manifests import documents
from harness.kubernetes_source import schema_names

#: Far below the largest object that a client may write.
MAX_BYTES = 1024 * 1024
FORMS: dict[str, Callable[[str], StructuralSchema]] = {
    "as a definition": lambda component: compile_schema(structural(component)),
    "as a kind of the server": lambda component: compile_schema(components()[component], components()),
}


@pytest.mark.parametrize("name", rows())
def test_every_kind_is_a_valid_schema_of_moderate_size(name: str) -> None:
    schema = resource_schema(name)
    assert validate_resource_schema(schema) == []
    assert len(encode_json(schema)) < MAX_BYTES
    assert b"$ref" not in encode_json(schema)


def test_the_name_of_a_schema_follows_from_its_content() -> None:
    schema = resource_schema("deployments.apps")
    assert schema["metadata"]["name"] == f"v1-36-{content_hash(schema['spec'])[:9]}.deployments.apps"
    assert resource_schema("deployments.apps") == schema
    changed = copy.deepcopy(schema["spec"])
    changed["names"]["shortNames"].append("dep")
    assert content_hash(changed) != content_hash(schema["spec"])
    assert len({resource_schema(name)["metadata"]["name"] for name in rows()}) == len(rows())


def test_the_names_of_all_schemas_stand_in_a_file() -> None:
    """After a change: PYTHONPATH=services:tests python -m harness.kubernetes_source.schema_names, into that file."""
    assert schema_path("native", "kubernetes", "schema_names.json").read_text() == schema_names.made()


def test_a_schema_has_names_subresources_and_the_columns_that_a_path_selects() -> None:
    spec = resource_schema("deployments.apps")["spec"]
    assert spec["scope"] == "Namespaced"
    assert spec["names"]["shortNames"] == ["deploy"]
    assert spec["names"]["categories"] == ["all"]
    version = spec["versions"][0]
    assert version["storage"]
    assert version["subresources"] == {
        "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
        "status": {},
    }
    assert [column["name"] for column in version["additionalPrinterColumns"]] == ["Up-to-date", "Available", "Age"]
    scaler = resource_schema("horizontalpodautoscalers.autoscaling")["spec"]
    assert [(version["name"], version["storage"]) for version in scaler["versions"]] == [("v2", True), ("v1", False)]
    assert resource_schema("nodes.core")["spec"]["scope"] == "Cluster"


@pytest.mark.parametrize("name", rows())
def test_every_column_has_a_cell_and_every_field_a_description(name: str) -> None:
    row = rows()[name]
    for column in row.columns:
        found = cell(row.kind, column.name)
        assert bool(found.path) != bool(found.accessor)
    for version in row.versions:
        component = components()[version.component]
        assert component["description"]
        assert all(field["description"] for field in component["properties"].values())


@pytest.mark.parametrize("form", FORMS)
def test_a_real_application_fits_and_is_defaulted(boutique: Path, form: str) -> None:
    """Each object is valid, keeps its fields, and is not changed by a second pass."""
    known = {(row.group, row.kind): row.versions[0].component for row in rows().values()}
    schemas: dict[str, StructuralSchema] = {}
    seen = set()
    for obj in documents(boutique):
        component = known.get((obj["apiVersion"].rpartition("/")[0], obj["kind"]))
        if component is None:
            continue
        schema = schemas.setdefault(component, FORMS[form](component))
        assert schema.unknown_fields(obj) == []
        stored: Object = copy.deepcopy(obj)
        schema.normalize(stored)
        assert schema.validate(stored) == []
        assert contains(stored, obj)
        again = copy.deepcopy(stored)
        schema.normalize(again)
        assert again == stored
        seen.add(obj["kind"])
        if obj["kind"] == "Deployment":
            assert stored["spec"]["template"]["spec"]["dnsPolicy"] == "ClusterFirst"
            assert stored["spec"]["progressDeadlineSeconds"] == 600
        if obj["kind"] == "Service":
            assert {port["protocol"] for port in stored["spec"]["ports"]} == {"TCP"}
    assert seen >= {"Deployment", "Service"}


def contains(whole: object, part: object) -> bool:
    """Whether a value has all that another has."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(key in whole and contains(whole[key], part[key]) for key in part)
    if isinstance(part, list):
        return isinstance(whole, list) and len(whole) == len(part) and all(map(contains, whole, part))
    return whole == part


def test_an_invalid_object_is_refused_in_both_forms() -> None:
    wrong = {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": "2", "selector": {}, "template": {}}}
    for make in FORMS.values():
        schema = make("io.k8s.api.apps.v1.Deployment")
        assert [error.field for error in schema.validate(wrong)] == ["spec.replicas"]
        assert schema.unknown_fields({**wrong, "spec": {"replica": 1}}) == ["spec.replica"]


@pytest.mark.long
def test_a_shard_reads_none_of_it() -> None:
    """Neither the data nor what makes and checks the kinds is in memory where nobody binds them."""
    program = (
        "import sys, atoll.shard.app; from atoll.machinery.kinds.kubernetes import tables;"
        "print([m for m in sys.modules if '.kinds.kubernetes' in m], tables._kinds.cache_info().misses)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    made_of = ("served_kinds", "schemas'", "structural", "strategies", "validation", "conditional_defaults", "cells")
    assert [part for part in made_of if part in done.stdout] == []
    assert done.stdout.endswith(" 0\n")
