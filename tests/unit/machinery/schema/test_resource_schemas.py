"""Validation of APIResourceSchemas."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from atoll.machinery.meta.objects import Object
from atoll.machinery.schema.definitions.apiresourceschema import validate_resource_schema
from atoll.machinery.schema.definitions.crd import crd_warnings
from harness.data.manifests import real_crds


def resource_schema(**spec: Any) -> Object:
    return {
        "metadata": {"name": "today.foos.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Cluster",
            "names": {"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"type": "object"}}],
            **spec,
        },
    }


def named(name: str, **spec: Any) -> Object:
    return {**resource_schema(**spec), "metadata": {"name": name}}


def problems(obj: Object) -> list[str]:
    return [str(error) for error in validate_resource_schema(obj)]


@pytest.mark.parametrize(
    "obj",
    [
        resource_schema(),
        named("v2-1.foos.core", group=""),
        named("a.foos.apps", group="apps"),
        resource_schema(nameValidation="PathSegmentName"),
        resource_schema(conversion={"strategy": "None"}),
    ],
)
def test_a_sound_one_passes(obj: Object) -> None:
    assert problems(obj) == []


def test_the_schemas_of_real_definitions_pass(manifests: Path) -> None:
    for crd in real_crds(manifests).values():
        spec = copy.deepcopy(crd["spec"])
        for version in spec["versions"]:
            version["schema"] = version["schema"]["openAPIV3Schema"]
        group = spec["group"]
        obj = {
            "metadata": {"name": f"a.{spec['names']['plural']}.{group}", "annotations": crd["metadata"]["annotations"]},
            "spec": spec,
        }
        assert problems(obj) == []


@pytest.mark.parametrize(
    ("obj", "text"),
    [
        (named("foos.example.com"), 'metadata.name: Invalid value: "foos.example.com": must end in .foos.example.com'),
        (named("1a.foos.example.com"), 'metadata.name: Invalid value: "1a.foos.example.com": must match'),
        (named("a.b.foos.example.com"), 'metadata.name: Invalid value: "a.b.foos.example.com": must match'),
        (
            named("a.foos.core", group="core"),
            'spec.group: Invalid value: "core": must be empty string for "core" resources',
        ),
        (
            named("a.foos.odd", group="odd"),
            'spec.group: Invalid value: "odd": should be a domain with at least one dot',
        ),
        (resource_schema(scope="X"), "spec.scope: Unsupported value"),
        (
            resource_schema(versions=[]),
            "spec.versions: Invalid value: []: must have exactly one version marked as storage",
        ),
        (resource_schema(versions=[{"name": "v1", "storage": True}]), "spec.versions[0].schema: Required value"),
        (
            resource_schema(
                versions=[{"name": "v1", "storage": True, "schema": {"type": "object", "properties": {"a": {}}}}]
            ),
            "spec.versions[0].schema.properties[a].type: Required value: must not be empty for specified object fields",
        ),
        (
            resource_schema(versions=[{"name": "v1", "storage": True, "schema": {"type": "object", "minLength": "x"}}]),
            'spec.versions[0].schema.minLength: Invalid value: "string"',
        ),
        (
            resource_schema(
                versions=[
                    {"name": name, "storage": name == "v1", "schema": {"type": "object"}} for name in ("v1", "v2")
                ]
            ),
            'spec: Invalid value: "object": Conversion must be specified when multiple versions exist',
        ),
        (
            resource_schema(
                conversion={
                    "strategy": "Webhook",
                    "webhook": {
                        "conversionReviewVersions": ["v1"],
                        "clientConfig": {"service": {"name": "a", "namespace": "b"}},
                    },
                }
            ),
            "spec.conversion.webhook.clientConfig.service: Forbidden: ",
        ),
        (
            named("a.foos.foo.k8s.io", group="foo.k8s.io"),
            "metadata.annotations[api-approved.kubernetes.io]: Required value",
        ),
    ],
)
def test_a_broken_one_is_refused_at_its_field(obj: Object, text: str) -> None:
    found = problems(obj)
    assert len(found) == 1, found
    assert found[0].startswith(text)


def test_all_names_are_needed() -> None:
    fields = [error.field for error in validate_resource_schema(named("a..example.com", names={}))]
    assert fields == [f"spec.names.{key}" for key in ("plural", "singular", "kind", "listKind")]


def test_warnings_are_those_of_definitions() -> None:
    source = {"type": "object", "properties": {"a": {"type": "string", "format": "odd"}}}
    obj = resource_schema(versions=[{"name": "v1", "storage": True, "schema": source}])
    assert crd_warnings(obj) == ['unrecognized format "odd"']
