"""Kinds made from definitions."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from atoll.machinery.kinds.custom import CACHE_SIZE, kinds_of_crd, kinds_of_resource_schema
from atoll.machinery.kinds.kind import ALL_VERBS, Column, Scale, Subresource
from atoll.machinery.meta.names import CORE, LOCAL
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.versions import version_priority
from harness.data.manifests import established, gateway_examples, real_crds

STRING: Object = {"type": "string"}
#: The start of Kubernetes' description of a column without a description.
_COLUMN = "Custom resource definition column (in JSONPath format):"


def version(name: str, **fields: Any) -> Object:
    properties = fields.pop("properties", {"spec": {"type": "object", "properties": {"a": STRING}}})
    schema = {"type": "object", "description": f"Foo in {name}.", "properties": properties}
    return {"name": name, "served": True, "storage": False, "schema": {"openAPIV3Schema": schema}, **fields}


def crd(*versions: Object, **spec: Any) -> Object:
    names = {
        "plural": "foos",
        "singular": "foo",
        "kind": "Foo",
        "listKind": "FooList",
        "shortNames": ["f"],
        "categories": ["all"],
    }
    return established(
        {
            "metadata": {"name": "foos.example.com"},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": list(versions), **spec},
        }
    )


def test_a_served_version_becomes_a_kind() -> None:
    subresources = {
        "status": {},
        "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n", "labelSelectorPath": ".status.s"},
    }
    columns = [
        {
            "name": "A",
            "type": "string",
            "jsonPath": ".spec.a",
            "description": "The a.",
            "format": "byte",
            "priority": 1,
        },
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    fields = [{"jsonPath": ".spec.a"}, {"jsonPath": ".spec.on"}]
    (kind,) = kinds_of_crd(
        crd(
            version(
                "v1", storage=True, subresources=subresources, additionalPrinterColumns=columns, selectableFields=fields
            )
        )
    )
    assert (kind.group, kind.version, kind.kind, kind.plural) == ("example.com", "v1", "Foo", "foos")
    assert (kind.singular, kind.list_kind, kind.short_names, kind.categories) == ("foo", "FooList", ("f",), ("all",))
    assert kind.namespaced and kind.generation and kind.has_status and not kind.builtin
    assert kind.verbs == ALL_VERBS
    assert kind.identity == LOCAL
    assert kind.storage_version == "v1"
    assert kind.schema_name == "com.example.v1.Foo"
    assert kind.description == "Foo in v1."
    assert kind.subresources == (
        Subresource("status", "Foo", "example.com", "v1"),
        Subresource("scale", "Scale", "autoscaling", "v1"),
    )
    assert kind.scale == Scale(".spec.n", ".status.n", ".status.s")
    assert kind.columns == (
        Column("A", "string", "byte", "The a.", 1, ".spec.a"),
        Column("Age", "date", "", f"{_COLUMN} .metadata.creationTimestamp", 0, ".metadata.creationTimestamp"),
    )
    assert list(kind.field_labels) == ["spec.a", "spec.on"]
    obj = {"spec": {"a": "x", "on": True}}
    assert [read(obj) for read in kind.field_labels.values()] == ["x", "true"]
    assert [read({}) for read in kind.field_labels.values()] == ["", ""]
    assert kind.from_stored is None and kind.to_stored is None
    assert kind.deprecation == ""


def test_what_is_not_said_has_kubernetes_defaults() -> None:
    (kind,) = kinds_of_crd(crd(version("v1", storage=True), scope="Cluster"), CORE)
    assert not kind.namespaced and not kind.has_status
    assert kind.subresources == () and kind.scale is None and kind.field_labels == {}
    assert [(column.name, column.type, column.json_path) for column in kind.columns] == [
        ("Age", "date", ".metadata.creationTimestamp")
    ]
    assert kind.identity == CORE
    assert kind.name_rule == "subdomain"


def test_only_established_definitions_and_served_versions_are_kinds() -> None:
    obj = crd(version("v1", storage=True), version("v2", served=False))
    assert [kind.version for kind in kinds_of_crd(obj)] == ["v1"]
    for conditions in ([], [{"type": "NamesAccepted", "status": "True"}], [{"type": "Established", "status": "False"}]):
        obj["status"]["conditions"] = conditions
        assert kinds_of_crd(obj) == []


def test_names_are_those_that_were_accepted() -> None:
    obj = crd(version("v1", storage=True))
    obj["status"]["acceptedNames"] = {
        "plural": "foos",
        "singular": "foo",
        "kind": "Foo",
        "listKind": "FooList",
        "shortNames": ["old"],
    }
    (kind,) = kinds_of_crd(obj)
    assert kind.short_names == ("old",)


def test_versions_come_most_stable_first() -> None:
    names = ["foo10", "v1alpha1", "v3beta1", "v1", "v12alpha1", "v11beta2", "v10", "v2", "foo1", "v10beta3"]
    ordered = ["v10", "v2", "v1", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "v1alpha1", "foo1", "foo10"]
    assert sorted(names, key=version_priority) == ordered
    obj = crd(*(version(name, storage=name == "v1") for name in names if name != "foo10"))
    assert [kind.version for kind in kinds_of_crd(obj)] == [name for name in ordered if name != "foo10"]


def test_other_versions_are_rewritten_pruned_and_defaulted() -> None:
    old = {"spec": {"type": "object", "properties": {"a": STRING, "old": {**STRING, "default": "o"}}}}
    new = {"spec": {"type": "object", "properties": {"a": STRING, "new": {**STRING, "default": "n"}}}}
    kinds = {
        kind.version: kind
        for kind in kinds_of_crd(crd(version("v1", properties=old), version("v2", storage=True, properties=new)))
    }
    assert kinds["v2"].from_stored is None
    assert kinds["v1"].storage_version == kinds["v2"].storage_version == "v2"
    convert, store = kinds["v1"].from_stored, kinds["v1"].to_stored
    assert convert is not None and store is not None
    stored = {"apiVersion": "example.com/v2", "kind": "Foo", "metadata": {"name": "x"}, "spec": {"a": "1", "new": "n"}}
    seen = convert(copy.deepcopy(stored))
    assert seen == {**stored, "apiVersion": "example.com/v1", "spec": {"a": "1", "old": "o"}}
    assert store(seen) == stored


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, ""),
        ({"deprecated": True}, "example.com/v1beta1 Foo is deprecated; use example.com/v1 Foo"),
        ({"deprecated": True, "deprecationWarning": "do not"}, "do not"),
    ],
)
def test_deprecated_versions_warn(fields: Object, text: str) -> None:
    kinds = kinds_of_crd(crd(version("v1", storage=True), version("v1alpha1"), version("v1beta1", **fields)))
    assert {kind.version: kind.deprecation for kind in kinds} == {"v1": "", "v1alpha1": "", "v1beta1": text}


def test_a_deprecated_version_names_no_older_one() -> None:
    kinds = kinds_of_crd(crd(version("v2", storage=True, deprecated=True), version("v1")))
    assert kinds[0].deprecation == "example.com/v2 Foo is deprecated"


def test_equal_definitions_share_their_kinds_and_the_cache_is_bounded() -> None:
    obj = crd(version("v1", storage=True))
    first = kinds_of_crd(obj)
    other = copy.deepcopy(obj)
    other["metadata"]["resourceVersion"] = "5"
    assert kinds_of_crd(other)[0] is first[0]
    assert kinds_of_crd(obj, CORE)[0] is not first[0]
    assert kinds_of_crd(obj, CORE)[0].schema is first[0].schema
    for index in range(CACHE_SIZE):
        kinds_of_resource_schema(
            {
                "spec": {
                    "group": f"g{index}.example.com",
                    "names": {"plural": "x", "kind": "X"},
                    "versions": [{"name": "v1", "storage": True}],
                }
            },
            "i",
        )
    assert kinds_of_crd(obj)[0] is not first[0]


def test_callers_cannot_change_what_others_get() -> None:
    obj = crd(version("v1", storage=True))
    kinds_of_crd(obj).clear()
    assert len(kinds_of_crd(obj)) == 1


def test_a_resource_schema_becomes_kinds_with_its_exports_identity() -> None:
    spec = {
        "group": "",
        "scope": "Cluster",
        "nameValidation": "PathSegmentName",
        "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
        "versions": [
            {"name": "v1", "served": True, "storage": True, "schema": {"type": "object", "properties": {"a": STRING}}},
            {"name": "v2", "served": False, "storage": False, "schema": {"type": "object"}},
        ],
    }
    (kind,) = kinds_of_resource_schema({"spec": spec}, "f" * 64)
    assert (kind.api_version, kind.identity, kind.name_rule) == ("v1", "f" * 64, "path-segment")
    assert kind.schema_name == "v1.Thing"
    assert kind.schema is not None
    assert kind.schema.unknown_fields({"a": "x", "b": 1}) == ["b"]


def test_real_definitions_take_the_objects_of_their_authors(manifests: Path) -> None:
    kinds = {(kind.api_version, kind.kind): kind for obj in real_crds(manifests).values() for kind in kinds_of_crd(obj)}
    examples = gateway_examples(manifests)
    assert len(examples) > 90
    for obj in examples:
        kind = kinds[obj["apiVersion"], obj["kind"]]
        assert kind.schema is not None
        assert kind.schema.unknown_fields(obj) == []
        before = copy.deepcopy(obj)
        kind.schema.prune(obj)
        assert obj == before
        kind.schema.default(obj)
        assert kind.schema.validate(obj) == []


def test_real_definitions_refuse_broken_objects_with_the_right_text(manifests: Path) -> None:
    (kind,) = (
        k for k in kinds_of_crd(real_crds(manifests)["httproutes.gateway.networking.k8s.io"]) if k.version == "v1"
    )
    route: Object = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": "r"},
        "spec": {
            "hostnames": ["UPPER"],
            "rules": [{"matches": [{"path": {"type": "Odd"}}], "zip": 1, "backendRefs": [{"port": 0}]}],
        },
    }
    schema = kind.schema
    assert schema is not None
    assert schema.unknown_fields(route) == ["spec.rules[0].zip"]
    schema.prune(route)
    schema.default(route)
    found = {error.field: str(error) for error in schema.validate(route)}
    assert set(found) == {
        "spec.hostnames[0]",
        "spec.rules[0].matches[0].path.type",
        "spec.rules[0].backendRefs[0].name",
        "spec.rules[0].backendRefs[0].port",
    }
    assert found["spec.rules[0].matches[0].path.type"].endswith(
        'Unsupported value: "Odd": supported values: "Exact", "PathPrefix", "RegularExpression"'
    )
    assert found["spec.rules[0].backendRefs[0].name"] == "spec.rules[0].backendRefs[0].name: Required value"
    assert "spec.hostnames[0] in body should match '^(\\*\\.)?[a-z0-9]" in found["spec.hostnames[0]"]


@pytest.mark.parametrize(
    "garbage",
    [
        {},
        {"spec": None},
        {"spec": {"versions": [{}, 1], "names": {}}},
        {"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": 5}, "subresources": []}]}},
    ],
)
def test_any_shape_of_definition_gives_kinds_or_none_and_no_exception(garbage: Object) -> None:
    garbage = {**garbage, "status": {"conditions": [{"type": "Established", "status": "True"}], "acceptedNames": []}}
    for kind in [*kinds_of_crd(garbage), *kinds_of_resource_schema(garbage, "i")]:
        assert kind.columns
