"""Definitions of any JSON are validated, defaulted, warned of and made into kinds without an exception."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.machinery.kinds.custom import kinds_of_crd, kinds_of_resource_schema
from atoll.machinery.meta.objects import Object
from atoll.machinery.schema.definitions import crd as definitions
from atoll.machinery.schema.definitions.apiresourceschema import validate_resource_schema
from harness.seeds import drawn

LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 3),
    st.just(1.5),
    st.sampled_from(["", "a", ".a", "v1", "object", "https://a"]),
)
JSON = st.recursive(
    LEAVES,
    lambda below: st.one_of(
        st.lists(below, max_size=3), st.dictionaries(st.sampled_from(["a", "type", "items"]), below)
    ),
    max_leaves=6,
)


def struct(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """An object with some of its fields, each of which may be anything; or anything."""
    return st.one_of(st.fixed_dictionaries({}, optional={key: value | JSON for key, value in fields.items()}), JSON)


TEXT = st.sampled_from(["a", "A", "", ".a.b", "v1", "string", "foos"])
SCHEMA = struct(
    type=st.sampled_from(["object", "array", "string"]),
    properties=st.dictionaries(TEXT, JSON, max_size=2),
    items=JSON,
    anyOf=st.lists(JSON),
    default=JSON,
    required=st.lists(TEXT),
    pattern=TEXT,
    format=TEXT,
    enum=st.lists(JSON),
    **{
        "x-kubernetes-list-type": st.sampled_from(["map", "set"]),
        "x-kubernetes-list-map-keys": st.lists(TEXT),
        "x-kubernetes-validations": st.lists(JSON),
        "x-kubernetes-embedded-resource": st.booleans(),
    },
)
VERSION = struct(
    name=TEXT,
    served=st.booleans(),
    storage=st.booleans(),
    deprecated=st.booleans(),
    deprecationWarning=TEXT,
    schema=st.one_of(SCHEMA, struct(openAPIV3Schema=SCHEMA)),
    subresources=struct(
        status=JSON, scale=struct(specReplicasPath=TEXT, statusReplicasPath=TEXT, labelSelectorPath=TEXT)
    ),
    additionalPrinterColumns=st.lists(
        struct(name=TEXT, type=TEXT, format=TEXT, jsonPath=TEXT, priority=JSON), max_size=2
    ),
    selectableFields=st.lists(struct(jsonPath=TEXT), max_size=2),
)
CLIENT = struct(url=TEXT, service=struct(name=TEXT, namespace=TEXT, port=JSON, path=TEXT), caBundle=TEXT)
NAMES = struct(
    plural=TEXT, singular=TEXT, kind=TEXT, listKind=TEXT, shortNames=st.lists(TEXT), categories=st.lists(JSON)
)
DEFINITION = st.fixed_dictionaries(
    {"metadata": struct(name=TEXT, annotations=st.dictionaries(st.just("api-approved.kubernetes.io"), JSON))},
    optional={
        "spec": struct(
            group=st.sampled_from(["", "a", "a.b", "x.k8s.io"]),
            scope=TEXT,
            names=NAMES,
            versions=st.lists(VERSION, max_size=2),
            conversion=struct(
                strategy=st.sampled_from(["None", "Webhook"]),
                webhook=struct(clientConfig=CLIENT, conversionReviewVersions=st.lists(TEXT)),
            ),
            preserveUnknownFields=JSON,
        ),
        "status": struct(
            acceptedNames=NAMES,
            storedVersions=st.lists(TEXT),
            conditions=st.lists(struct(type=st.just("Established"), status=st.just("True")), max_size=1),
        ),
    },
)


@settings(max_examples=drawn(250), deadline=None)
@given(DEFINITION, DEFINITION)
def test_any_definition_is_judged_without_an_exception(obj: Object, old: Object) -> None:
    before = copy.deepcopy(obj)
    for each in (obj, old):
        assert all(error.field and error.detail for error in validate_resource_schema(each))
        assert all(error.field and error.detail for error in definitions.validate_crd(each))
        assert all(error.field and error.detail for error in definitions.validate_crd_update(each, old))
        assert all(error.field and error.detail for error in definitions.validate_crd_status(each))
        assert all(isinstance(warning, str) for warning in definitions.crd_warnings(each, old))
    assert obj == before
    definitions.default_crd(obj)
    definitions.add_stored_version(obj)
    definitions.default_crd(obj)


@settings(max_examples=drawn(150), deadline=None)
@given(DEFINITION)
def test_any_definition_gives_kinds_or_none(obj: Object) -> None:
    for kind in [*kinds_of_crd(obj), *kinds_of_resource_schema(obj, "identity")]:
        assert isinstance(kind.version, str)
        assert kind.schema is not None
        kind.schema.validate({"apiVersion": "v1", "kind": "K", "metadata": {}})
