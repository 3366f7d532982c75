"""A definition becomes a schema: all that it says is in it, and what a schema cannot say is refused."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from atoll.machinery.kcp.apis.resource_schema import NotExportable, resource_schema
from atoll.machinery.meta.objects import Object
from atoll.machinery.schema.definitions.apiresourceschema import validate_resource_schema
from harness.clients.api import crd
from harness.data.manifests import definition_files, documents


def test_real_definitions_become_sound_schemas_with_all_they_say(manifests: Path) -> None:
    files = definition_files(manifests)
    found = [each for path in files for each in documents(path) if each["kind"] == "CustomResourceDefinition"]
    assert len(found) >= 16
    for definition in found:
        name, spec = definition["metadata"]["name"], definition["spec"]
        schema = resource_schema(definition, "v1")
        assert schema["metadata"]["name"] == f"v1.{name}"
        assert validate_resource_schema(schema) == [], name
        assert schema["spec"]["scope"] == spec["scope"], name
        assert schema["spec"]["names"].items() >= spec["names"].items(), name
        for made, version in zip(schema["spec"]["versions"], spec["versions"], strict=True):
            assert {**made, "schema": {"openAPIV3Schema": made["schema"]}} == version, name


def test_what_kubernetes_would_default_is_filled_in() -> None:
    definition = crd("circles", names={"plural": "circles", "kind": "Circle"})
    assert resource_schema(definition, "v1")["spec"]["names"] == {
        "plural": "circles",
        "singular": "circle",
        "kind": "Circle",
        "listKind": "CircleList",
    }


def test_the_core_group_is_named_in_full_and_the_approval_comes_along() -> None:
    definition = crd("pods", group="")
    definition["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved", "other": "x"}
    schema = resource_schema(definition, "v1")
    assert schema["metadata"] == {"name": "v1.pods.core", "annotations": {"api-approved.kubernetes.io": "unapproved"}}


def test_conversion_is_said_where_there_are_several_versions_or_a_webhook() -> None:
    definition = crd("circles")
    assert "conversion" not in resource_schema(definition, "v1")["spec"]
    several = copy.deepcopy(definition)
    several["spec"]["versions"].append({**several["spec"]["versions"][0], "name": "v2", "storage": False})
    assert resource_schema(several, "v1")["spec"]["conversion"] == {"strategy": "None"}
    hook = {"clientConfig": {"url": "https://a.example.com", "caBundle": "YQ=="}, "conversionReviewVersions": ["v1"]}
    several["spec"]["conversion"] = {"strategy": "Webhook", "webhook": hook}
    assert resource_schema(several, "v1")["spec"]["conversion"] == {"strategy": "Webhook", "webhook": hook}
    hook["clientConfig"] = {"service": {"name": "a", "namespace": "b"}}
    with pytest.raises(NotExportable, match="service of a cluster"):
        resource_schema(several, "v1")


@pytest.mark.parametrize("prefix", ["", "V1", "1", "v1.", "v1-", "a b"])
def test_a_prefix_that_no_schema_may_have_is_refused(prefix: str) -> None:
    with pytest.raises(NotExportable):
        resource_schema(crd("circles"), prefix)


@pytest.mark.parametrize(
    "given", [{}, {"kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1beta1"}]
)
def test_what_is_no_definition_is_refused(given: Object) -> None:
    with pytest.raises(NotExportable):
        resource_schema(given, "v1")
