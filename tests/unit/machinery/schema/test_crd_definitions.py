"""Validation of CustomResourceDefinitions, with Kubernetes' texts."""

from __future__ import annotations

import base64
import copy
from pathlib import Path
from typing import Any

import pytest

from atoll.machinery.meta.objects import Object
from atoll.machinery.process.pki import make_ca
from atoll.machinery.schema.definitions.approval import approval
from atoll.machinery.schema.definitions.crd import (
    SERVICE_WARNING,
    add_stored_version,
    crd_warnings,
    default_crd,
    validate_crd,
    validate_crd_status,
    validate_crd_update,
)
from harness.data.manifests import real_crds

STRING: Object = {"type": "string"}
SCHEMA = "spec.versions[0].schema.openAPIV3Schema"
FIELD = f"{SCHEMA}.properties[spec].properties[a]"


def crd(schema: Any = None, **spec: Any) -> Object:
    source = schema if schema is not None else {"type": "object", "properties": {"spec": {"type": "object"}}}
    obj: Object = {
        "metadata": {"name": "foos.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "foos", "kind": "Foo"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": source}}],
            **spec,
        },
    }
    default_crd(obj)
    add_stored_version(obj)
    return obj


def problems(obj: Object) -> list[str]:
    return [str(error) for error in validate_crd(obj)]


def of_field(source: Object) -> list[str]:
    return problems(crd({"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": source}}}}))


def with_version(**fields: Any) -> Object:
    obj = crd({"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": STRING}}}})
    obj["spec"]["versions"][0].update(fields)
    return obj


def test_the_definitions_of_real_projects_pass(manifests: Path) -> None:
    for name, obj in real_crds(manifests).items():
        assert problems(obj) == [], name
        assert validate_crd_update(obj, copy.deepcopy(obj)) == [], name


def test_defaults_are_filled_and_what_is_said_stays() -> None:
    obj = crd(conversion={"strategy": "Webhook", "webhook": {"clientConfig": {"service": {"name": "a"}}}})
    assert obj["spec"]["names"] == {"plural": "foos", "kind": "Foo", "singular": "foo", "listKind": "FooList"}
    assert obj["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["port"] == 443
    assert obj["status"] == {"storedVersions": ["v1"]}
    plain = crd(names={"plural": "foos", "kind": "Foo", "singular": "x", "listKind": "Y"})
    assert plain["spec"]["conversion"] == {"strategy": "None"}
    assert plain["spec"]["names"]["singular"] == "x"
    before = copy.deepcopy(plain)
    default_crd(plain)
    add_stored_version(plain)
    assert plain == before


LABEL = "a DNS-1035 label must consist of lower case alphanumeric characters"


@pytest.mark.parametrize(
    ("obj", "texts"),
    [
        (
            {**crd(), "metadata": {"name": "x"}},
            ['metadata.name: Invalid value: "x": must be spec.names.plural+"."+spec.group'],
        ),
        (crd(group=""), ["metadata.name:", "spec.group: Required value"]),
        (
            crd(group="example"),
            ["metadata.name:", 'spec.group: Invalid value: "example": should be a domain with at least one dot'],
        ),
        (crd(scope=""), ["spec.scope: Required value"]),
        (crd(scope="X"), ['spec.scope: Unsupported value: "X": supported values: "Cluster", "Namespaced"']),
        (
            crd(names={"plural": "foos"}),
            ["spec.names.singular: Required value", "spec.names.kind: Required", "spec.names.listKind: Req"],
        ),
        (
            crd(names={"plural": "foos", "kind": "Foo", "listKind": "Foo"}),
            ['spec.names.listKind: Invalid value: "Foo": kind and listKind may not be the same'],
        ),
        (
            crd(names={"plural": "foos", "kind": "F_", "shortNames": ["f", "F"], "categories": ["A"]}),
            [
                'spec.names.singular: Invalid value: "f_"',
                f'spec.names.kind: Invalid value: "F_": may have mixed case, but should otherwise match: {LABEL}',
                'spec.names.listKind: Invalid value: "F_List"',
                f'spec.names.shortNames[1]: Invalid value: "F": {LABEL}',
                "spec.names.categories[0]",
            ],
        ),
        (
            crd(versions=[]),
            [
                "spec.versions: Invalid value: []: must have exactly one version marked as storage version",
                "status.storedVersions: Invalid value: []: must have at least one stored version",
            ],
        ),
        (
            crd(preserveUnknownFields=True),
            [
                "spec.preserveUnknownFields: Invalid value: true: cannot set to true, set "
                "x-kubernetes-preserve-unknown-fields to true"
            ],
        ),
        (with_version(schema=None), [f"{SCHEMA}: Required value"]),
        (
            with_version(name="V1"),
            [
                f'spec.versions[0].name: Invalid value: "V1": {LABEL}',
                "status.storedVersions",
                "status.storedVersions[0]",
            ],
        ),
        (
            with_version(deprecationWarning="x"),
            ['spec.versions[0].deprecationWarning: Invalid value: "x": can only be set for deprecated'],
        ),
        (
            with_version(deprecated=True, deprecationWarning=""),
            ['spec.versions[0].deprecationWarning: Invalid value: "": must not be an empty'],
        ),
        (
            with_version(deprecated=True, deprecationWarning="é\n"),
            [
                'spec.versions[0].deprecationWarning: Invalid value: "é\\n": must only contain printable UTF-8 '
                "characters; "
                "non-printable character found at index 2"
            ],
        ),
        (
            with_version(
                subresources={
                    "scale": {"specReplicasPath": "x", "statusReplicasPath": ".spec.r", "labelSelectorPath": ".x"}
                }
            ),
            [
                'spec.versions[0].subresources.scale.specReplicasPath: Invalid value: "x": must be a simple '
                "json path starting with .",
                'spec.versions[0].subresources.scale.statusReplicasPath: Invalid value: ".spec.r": should be a '
                "json path under .status",
                'spec.versions[0].subresources.scale.labelSelectorPath: Invalid value: ".x": should be a json '
                "path under either",
            ],
        ),
        (
            with_version(subresources={"scale": {"specReplicasPath": ".spec.a[0]"}}),
            [
                "spec.versions[0].subresources.scale.specReplicasPath: Invalid",
                "spec.versions[0].subresources.scale.statusReplicasPath: Req",
            ],
        ),
        (
            with_version(
                additionalPrinterColumns=[
                    {"name": "", "type": "", "jsonPath": ""},
                    {"name": "a", "type": "x", "format": "y", "jsonPath": "x"},
                ]
            ),
            [
                "spec.versions[0].additionalPrinterColumns[0].name: Required value",
                "spec.versions[0].additionalPrinterColumns[0].type: Required value: must be one of "
                "boolean,date,integer,number,string",
                "spec.versions[0].additionalPrinterColumns[0].jsonPath: Required value",
                'spec.versions[0].additionalPrinterColumns[1].type: Invalid value: "x": must be one of boolean,date',
                'spec.versions[0].additionalPrinterColumns[1].format: Invalid value: "y": must be one of byte,date',
                'spec.versions[0].additionalPrinterColumns[1].jsonPath: Invalid value: "x": must be a simple json path',
            ],
        ),
        (
            with_version(
                selectableFields=[
                    {"jsonPath": path} for path in (".spec.a", ".spec.a", ".spec.b", ".spec", ".spec.a[0]", "")
                ]
            ),
            [
                'spec.versions[0].selectableFields[1].jsonPath: Duplicate value: ".spec.a"',
                'spec.versions[0].selectableFields[2].jsonPath: Invalid value: ".spec.b": is an invalid path: '
                "does not refer to a valid field",
                'spec.versions[0].selectableFields[3].jsonPath: Invalid value: ".spec": must point to a field '
                "of type string, boolean or integer.",
                'spec.versions[0].selectableFields[4].jsonPath: Invalid value: ".spec.a[0]": is an invalid '
                "path: array notation",
                "spec.versions[0].selectableFields[5].jsonPath: Required value",
            ],
        ),
        (
            crd(conversion={"strategy": "X"}),
            ['spec.conversion.strategy: Unsupported value: "X": supported values: "None", "Webhook"'],
        ),
        (
            crd(conversion={"strategy": "None", "webhook": {}}),
            ["spec.conversion.webhook: Forbidden: should not be set when strategy"],
        ),
        (
            crd(conversion={"strategy": "Webhook"}),
            ["spec.conversion.webhook.clientConfig: Required", "spec.conversion.webhook.conversionReviewV"],
        ),
        (
            crd(
                conversion={
                    "strategy": "Webhook",
                    "webhook": {"conversionReviewVersions": ["v2", "v2"], "clientConfig": {"url": "http://h/?q#f"}},
                }
            ),
            [
                "spec.conversion.webhook.clientConfig.url: Invalid value: \"http\": 'https' is the only allowed "
                "URL scheme; desired format",
                'spec.conversion.webhook.clientConfig.url: Invalid value: "f": fragments',
                'spec.conversion.webhook.clientConfig.url: Invalid value: "q": query',
                'spec.conversion.webhook.conversionReviewVersions[1]: Invalid value: "v2": duplicate version',
                'spec.conversion.webhook.conversionReviewVersions: Invalid value: ["v2","v2"]: must include at '
                "least one of v1, v1beta1",
            ],
        ),
        (
            crd(
                conversion={
                    "strategy": "Webhook",
                    "webhook": {
                        "conversionReviewVersions": ["v1"],
                        "clientConfig": {"url": "https://h", "service": {}},
                    },
                }
            ),
            ["spec.conversion.webhook.clientConfig: Required value: exactly one of url or service is required"],
        ),
    ],
)
def test_a_broken_definition_is_refused_at_its_field(obj: Object, texts: list[str]) -> None:
    found = problems(obj)
    assert len(found) == len(texts), found
    for text, expected in zip(found, texts, strict=True):
        assert text.startswith(expected), found


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        ({}, [f"{FIELD}.type: Required value: must not be empty for specified object fields"]),
        ({"type": "array"}, [f"{FIELD}.items: Required value: must be specified"]),
        (
            {"type": "array", "items": {}},
            [f"{FIELD}.items.type: Required value: must not be empty for specified array items"],
        ),
        (
            {"type": "array", "items": [STRING]},
            [f"{FIELD}.items: Forbidden: items must be a schema object and not an array"],
        ),
        (
            {"type": "text"},
            [
                f'{FIELD}.type: Unsupported value: "text": supported values: "array", "boolean", "integer", '
                f'"number", "object", "string"'
            ],
        ),
        (
            {**STRING, "pattern": "(?=a)"},
            [
                f'{FIELD}.pattern: Invalid value: "(?=a)": must be a valid regular expression, but isn\'t: '
                f"error parsing regexp: invalid or unsupported Perl syntax: `(?=`"
            ],
        ),
        (
            {"type": "array", "items": STRING, "uniqueItems": True},
            [
                f"{FIELD}.uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime "
                f"complexity becomes quadratic"
            ],
        ),
        (
            {"type": "object", "properties": {"b": STRING}, "additionalProperties": STRING},
            [f"{FIELD}.additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive"],
        ),
        ({"$ref": "#/x"}, [f"{FIELD}.$ref: Forbidden: $ref is not supported"]),
        ({**STRING, "id": "x"}, [f"{FIELD}.id: Forbidden: id is not supported"]),
        ({**STRING, "$schema": "x"}, [f"{SCHEMA}: Invalid value: \"\": OpenAPIV3Schema 'schema' is not supported"]),
        (
            {"type": "object", "patternProperties": {"a": STRING}},
            [f"{FIELD}.patternProperties: Forbidden: patternProperties is not supported"],
        ),
        (
            {**STRING, "anyOf": [{"type": "string", "default": "x", "nullable": True}]},
            [
                f"{FIELD}.anyOf[0].default: Forbidden: must be undefined to be structural",
                f"{FIELD}.anyOf[0].nullable: Forbidden: must be false to be structural",
                f"{FIELD}.anyOf[0].type: Forbidden: must be empty to be structural",
            ],
        ),
        (
            {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "string"}, {"type": "integer"}]},
            [
                f"{FIELD}.anyOf[0].type: Forbidden: must be empty to be structural",
                f"{FIELD}.anyOf[1].type: Forbidden: must be empty to be structural",
            ],
        ),
        (
            {"type": "object", "x-kubernetes-embedded-resource": True},
            [
                f"{FIELD}.properties: Required value: must not be empty if x-kubernetes-embedded-resource is "
                f"true without x-kubernetes-preserve-unknown-fields"
            ],
        ),
        (
            {"type": "object", "x-kubernetes-preserve-unknown-fields": False},
            [f"{FIELD}.x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined"],
        ),
        (
            {**STRING, "x-kubernetes-list-type": "set"},
            [f'{FIELD}.type: Invalid value: "string": must be array if x-kubernetes-list-type is specified'],
        ),
        (
            {"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "set"},
            [
                f"{FIELD}.items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list "
                f"with x-kubernetes-list-type=set"
            ],
        ),
        (
            {
                "type": "array",
                "items": {"type": "object", "properties": {"k": STRING}},
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["k", "z"],
            },
            [
                f'{FIELD}.x-kubernetes-list-map-keys: Invalid value: ["k","z"]: entries must all be names of '
                f"item properties",
                f"{FIELD}.items.properties[k].default: Required value: this property is in "
                f"x-kubernetes-list-map-keys, so it must have a default or be a required property",
            ],
        ),
        (
            {"type": "array", "items": STRING, "x-kubernetes-list-type": "map"},
            [
                f"{FIELD}.x-kubernetes-list-map-keys: Required value: must not be empty if "
                f"x-kubernetes-list-type is map",
                f'{FIELD}.items.type: Invalid value: "string": must be object if parent array\'s '
                f"x-kubernetes-list-type is map",
            ],
        ),
        (
            {**STRING, "default": 5},
            [f'{FIELD}.default: Invalid value: "integer":  in body must be of type string: "integer"'],
        ),
        (
            {"type": "object", "default": {"x": 1}},
            [f'{FIELD}.default: Invalid value: {{"x":1}}: must not have unknown fields'],
        ),
        (
            {**STRING, "x-kubernetes-validations": [{"rule": " "}, {"rule": "true", "reason": "X"}]},
            [
                f"{FIELD}.x-kubernetes-validations[0].rule: Required value: rule is not specified",
                f'{FIELD}.x-kubernetes-validations[1].reason: Unsupported value: "X": supported values: '
                f'"FieldValueDuplicate"',
            ],
        ),
        (
            {**STRING, "maxLength": "5"},
            [
                f'{FIELD}.maxLength: Invalid value: "string": {FIELD}.maxLength in body must be of type '
                f'integer: "string"'
            ],
        ),
        (
            {**STRING, "properties": {"b": "x"}},
            [f'{FIELD}.properties[b]: Invalid value: "string": {FIELD}.properties[b] in body must be of type object'],
        ),
    ],
)
def test_a_schema_that_is_not_structural_is_refused_at_its_field(source: Object, texts: list[str]) -> None:
    found = of_field(source)
    assert len(found) == len(texts), found
    for text, expected in zip(found, texts, strict=True):
        assert text.startswith(expected), found


@pytest.mark.parametrize(
    "source",
    [
        {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}], "pattern": "^[0-9]+$"},
        {
            "x-kubernetes-int-or-string": True,
            "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"pattern": "a"}],
        },
        {"x-kubernetes-preserve-unknown-fields": True},
        {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True},
        {"type": "object", "additionalProperties": True},
        {**STRING, "format": "unheard-of"},
        {"type": "object", "default": {}, "properties": {"b": {**STRING, "default": "x", "enum": ["x"]}}},
        {**STRING, "nullable": True, "default": None},
    ],
)
def test_what_is_structural_passes(source: Object) -> None:
    assert of_field(source) == []


def test_the_root_is_held_to_more() -> None:
    assert problems(crd({})) == [f"{SCHEMA}.type: Required value: must not be empty at the root"]
    assert problems(crd({"type": "object", "nullable": True})) == [
        f"{SCHEMA}.nullable: Forbidden: nullable cannot be true at the root"
    ]
    assert problems(crd({"type": "object", "additionalProperties": STRING})) == [
        f"{SCHEMA}.additionalProperties: Forbidden: must not be used at the root"
    ]
    names = {"type": "object", "properties": {"name": {**STRING, "maxLength": 5}}}
    assert problems(crd({"type": "object", "properties": {"metadata": names}})) == []
    odd = {
        "type": "object",
        "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}},
    }
    assert problems(crd(odd)) == [
        f"{SCHEMA}.properties[metadata]: Forbidden: must not specify anything other than name and generateName, "
        f"but metadata is implicitly specified"
    ]


def test_what_the_roots_alternatives_validate_must_be_declared_outside() -> None:
    source = {
        "type": "object",
        "properties": {"a": {"type": "object", "properties": {"b": STRING}}},
        "anyOf": [{"required": ["a"]}, {"properties": {"a": {"properties": {"c": {"minLength": 1}}}}}],
        "not": {"properties": {"z": {"minLength": 1}}},
    }
    assert problems(crd(source)) == [
        f"{SCHEMA}.properties[a].properties[c]: Required value: because it is defined in "
        f"{SCHEMA}.anyOf[1].properties[a].properties[c]",
        f"{SCHEMA}.properties[z]: Required value: because it is defined in {SCHEMA}.not.properties[z]",
    ]


def test_with_a_status_subresource_the_root_may_not_bind_fields_together() -> None:
    obj = crd({"type": "object", "properties": {"spec": {"type": "object"}}, "anyOf": [{"required": ["spec"]}]})
    assert problems(obj) == []
    obj["spec"]["versions"][0]["subresources"] = {"status": {}}
    (text,) = problems(obj)
    assert text.startswith(f"{SCHEMA}: Invalid value: ")
    assert text.endswith(
        "XValidations] fields are allowed at the root of the schema if the status subresource is enabled"
    )


def test_a_default_inside_metadata_must_give_valid_metadata() -> None:
    properties = {"metadata": {"type": "object", "properties": {"name": {**STRING, "default": "A/B"}}}}
    (text,) = of_field({"type": "object", "x-kubernetes-embedded-resource": True, "properties": properties})
    assert text.startswith(
        f'{FIELD}.properties[metadata].properties[name].default: Invalid value: "A/B": must result in valid '
        f"metadata: metadata.name"
    )
    top = {"type": "object", "properties": {"metadata": {"type": "object", "default": {}}}}
    assert problems(crd(top)) == [
        f"{SCHEMA}.properties[metadata].default: Forbidden: must not be set in top-level metadata"
    ]


def test_only_eight_fields_can_be_selected_by() -> None:
    names = [f"f{index}" for index in range(9)]
    obj = crd({"type": "object", "properties": dict.fromkeys(names, STRING)})
    obj["spec"]["versions"][0]["selectableFields"] = [{"jsonPath": f".{name}"} for name in names]
    assert problems(obj) == ["spec.versions[0].selectableFields: Too many: 9: must have at most 8 items"]
    obj["spec"]["versions"][0]["selectableFields"].pop()
    assert problems(obj) == []


def test_items_and_keys_of_sets_and_maps_cannot_be_null() -> None:
    nullable = {**STRING, "nullable": True}
    assert of_field({"type": "array", "items": nullable, "x-kubernetes-list-type": "set"}) == [
        f"{FIELD}.items.nullable: Forbidden: cannot be nullable when x-kubernetes-list-type is set"
    ]
    items = {"type": "object", "properties": {"k": nullable}, "required": ["k"]}
    keyed = {"type": "array", "items": items, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}
    assert of_field(keyed) == [
        f"{FIELD}.items.properties[k].nullable: Forbidden: this property is in x-kubernetes-list-map-keys, "
        "so it cannot be nullable"
    ]


def test_names_must_be_unique_and_one_version_stored() -> None:
    obj = crd()
    second = copy.deepcopy(obj["spec"]["versions"][0])
    obj["spec"]["versions"].append(second)
    assert problems(obj) == [
        'spec.versions: Invalid value: ["v1","v1"]: must contain unique version names',
        'spec.versions: Invalid value: ["v1","v1"]: must have exactly one version marked as storage version',
    ]


def test_what_names_the_stored_objects_cannot_change() -> None:
    old = crd()
    new = crd(group="example.org", names={"plural": "bars", "kind": "Bar"}, scope="Cluster")
    fields = [error.field for error in validate_crd_update(new, old)]
    assert fields == ["spec.group", "spec.names.plural"]
    old["status"]["conditions"] = [{"type": "Established", "status": "True"}]
    errors = {error.field: error.detail for error in validate_crd_update(new, old)}
    assert errors["spec.scope"] == 'Invalid value: "Cluster": field is immutable'
    assert errors["spec.names.kind"] == 'Invalid value: "Bar": field is immutable'


def test_a_version_that_was_stored_must_stay() -> None:
    old = crd()
    new = copy.deepcopy(old)
    new["spec"]["versions"][0]["name"] = "v2"
    add_stored_version(new)
    assert new["status"]["storedVersions"] == ["v1", "v2"]
    (error,) = validate_crd_update(new, old)
    assert str(error).startswith(
        'status.storedVersions[0]: Invalid value: "v1": missing from spec.versions; v1 was previously a storage version'
    )


def test_an_unchanged_version_is_not_judged_again_and_a_changed_one_is() -> None:
    old = crd({"type": "object", "properties": {"a": {}}})
    new = copy.deepcopy(old)
    new["metadata"]["labels"] = {"a": "b"}
    assert validate_crd_update(new, old) == []
    new["spec"]["versions"][0]["served"] = False
    assert [error.field for error in validate_crd_update(new, old)] == [f"{SCHEMA}.properties[a].type"]


@pytest.mark.parametrize(
    ("value", "state", "text"),
    [
        (None, "missing", "Required value: protected groups must have approval annotation"),
        ("what", "invalid", 'Invalid value: "what": protected groups must have approval annotation'),
        ("unapproved, because", "unapproved", ""),
        ("https://example.com/1", "approved", ""),
    ],
)
def test_groups_of_kubernetes_need_approval(value: str | None, state: str, text: str) -> None:
    obj = crd(group="foo.k8s.io")
    obj["metadata"] = {"name": "foos.foo.k8s.io", "annotations": {"api-approved.kubernetes.io": value} if value else {}}
    assert approval(obj)[0] == state
    found = [error for error in validate_crd(obj) if error.field.startswith("metadata")]
    assert [error.field for error in found] == ["metadata.annotations[api-approved.kubernetes.io]"] * bool(text)
    assert all(error.detail.startswith(text) for error in found)
    assert validate_crd_update(copy.deepcopy(obj), obj) == []


def test_only_the_system_brings_definitions_of_the_core_group() -> None:
    obj = crd(group="")
    obj["metadata"]["name"] = "foos.core"
    assert validate_crd(obj, system=True) == []
    assert validate_crd(obj) != []


def test_warnings_tell_what_has_no_effect_and_on_update_only_what_is_new() -> None:
    source: Object = {
        "type": "object",
        "properties": {"a": {**STRING, "format": "odd"}, "b": {"type": "integer", "format": "uint8"}},
    }
    obj = crd(source)
    assert crd_warnings(obj) == ['unrecognized format "odd"', 'unrecognized format "uint8"']
    old = copy.deepcopy(obj)
    source["properties"]["c"] = {**STRING, "format": "new"}
    assert crd_warnings(obj, old) == ['unrecognized format "new"']
    assert crd_warnings(crd()) == []


def test_status_is_judged_by_its_names() -> None:
    obj = crd()
    obj["status"]["acceptedNames"] = {"plural": "Foos"}
    assert [error.field for error in validate_crd_status(obj)] == ["status.acceptedNames.plural"]


@pytest.mark.parametrize(
    "garbage",
    [
        None,
        1,
        "x",
        [],
        {"spec": 1},
        {"spec": {"versions": [1, {"schema": 2}], "names": []}},
        {"spec": {"versions": "x", "conversion": 3}, "status": []},
    ],
)
def test_any_shape_of_object_gives_errors_and_no_exception(garbage: Any) -> None:
    obj = garbage if isinstance(garbage, dict) else {"spec": garbage}
    assert validate_crd(copy.deepcopy(obj)) != []
    default_crd(copy.deepcopy(obj))
    crd_warnings(obj)


def test_a_schema_nested_deeper_than_any_real_one_is_refused_without_overflow() -> None:
    source: Object = STRING
    for _ in range(500):
        source = {"type": "object", "properties": {"a": source}}
    (text,) = problems(crd(source))
    assert "is nested deeper than" in text


def test_the_deepest_schema_allowed_is_judged_and_compiled() -> None:
    from atoll.machinery.schema.structural.structural_schema import compile_schema

    source: Object = {**STRING, "allOf": [{"minLength": 1}]}
    value: Object = {"a": "x"}
    for depth in range(90):
        source = {"type": "object", "properties": {"a": source}}
        value = {"a": value} if depth else value
    assert problems(crd(source)) == []
    schema = compile_schema(source)
    assert schema.validate({"apiVersion": "v1", "kind": "K", "metadata": {}, **value}) == []
    while isinstance(value.get("a"), dict):
        value = value["a"]
    value["a"] = ""
    assert schema.unknown_fields(value) == []


def test_a_service_that_would_have_to_convert_is_warned_about() -> None:
    client = {"service": {"namespace": "default", "name": "converter"}}
    obj = crd(conversion={"strategy": "Webhook", "webhook": {"clientConfig": client}})
    assert crd_warnings(obj) == [], "a definition of one version converts nothing"
    obj["spec"]["versions"].append({**obj["spec"]["versions"][0], "name": "v2", "storage": False})
    assert crd_warnings(obj) == [SERVICE_WARNING]


def test_a_ca_bundle_must_hold_certificates_unless_it_held_none_before() -> None:
    def webhook(bundle: str) -> Object:
        client = {"url": "https://example.com/", "caBundle": bundle}
        return {"strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}}

    path = "spec.conversion.webhook.clientConfig.caBundle"
    text = "unable to load root certificates: unable to parse bytes as PEM block"
    good = base64.b64encode(make_ca("test").certificate).decode()
    for bundle in ("Cg==", "!", base64.b64encode(b"-----BEGIN CERTIFICATE-----").decode()):
        assert problems(crd(conversion=webhook(bundle))) == [f'{path}: Invalid value: "<certificate data>": {text}']
        changed, old = crd(conversion=webhook("Cw==")), crd(conversion=webhook(bundle))
        assert not [error for error in validate_crd_update(changed, old) if error.field == path]
    assert problems(crd(conversion=webhook(good))) == []
    changed, old = crd(conversion=webhook("Cg==")), crd(conversion=webhook(good))
    assert [error.field for error in validate_crd_update(changed, old) if error.field == path] == [path]
