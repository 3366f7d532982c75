from __future__ import annotations

import copy

from atoll.machinery.meta.objects import Object
from atoll.machinery.schema.openapi import component_name, crd_components


def test_components_are_named_by_reversed_group_version_and_kind() -> None:
    assert component_name("stable.example.com", "v1", "CronTab") == "com.example.stable.v1.CronTab"
    assert component_name("", "v1", "Thing") == "v1.Thing"


def test_a_kind_is_published_with_its_list() -> None:
    source: Object = {
        "description": "A table.",
        "type": "object",
        "required": ["spec"],
        "properties": {
            "spec": {
                "type": "object",
                "nullable": True,
                "oneOf": [{"required": ["a"]}],
                "x-kubernetes-validations": [{"rule": "true"}],
            },
            "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}}},
        },
    }
    before = copy.deepcopy(source)
    components = crd_components("example.com", "v1", "CronTab", "CronTabList", source)
    assert source == before
    assert list(components) == ["com.example.v1.CronTab", "com.example.v1.CronTabList"]
    kind, listed = components.values()
    assert kind["properties"]["spec"] == source["properties"]["spec"]
    assert kind["required"] == ["spec"]
    assert kind["description"] == "A table."
    assert kind["properties"]["metadata"]["allOf"] == [
        {"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
    ]
    assert kind["properties"]["metadata"]["properties"] == source["properties"]["metadata"]["properties"]
    assert kind["properties"]["apiVersion"]["type"] == kind["properties"]["kind"]["type"] == "string"
    assert kind["x-kubernetes-group-version-kind"] == [{"group": "example.com", "version": "v1", "kind": "CronTab"}]
    assert listed["properties"]["items"]["items"] == {"$ref": "#/components/schemas/com.example.v1.CronTab"}
    assert listed["properties"]["metadata"]["allOf"] == [
        {"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"}
    ]
    assert listed["x-kubernetes-group-version-kind"] == [
        {"group": "example.com", "version": "v1", "kind": "CronTabList"}
    ]
    assert listed["required"] == ["items"]


def test_a_schema_without_properties_is_published_too() -> None:
    kind = crd_components("example.com", "v1", "Any", "AnyList", {"type": "object"})["com.example.v1.Any"]
    assert set(kind["properties"]) == {"apiVersion", "kind", "metadata"}
