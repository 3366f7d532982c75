"""For any schema and object: pruning is idempotent, and fast and full validation agree."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.machinery.kinds.native_schemas import drop_nulls
from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.schema.definitions.crd import add_stored_version, default_crd, validate_crd
from atoll.machinery.schema.structural.compiler import compile_root
from atoll.machinery.schema.structural.pruning import is_clean
from atoll.machinery.schema.structural.structural_schema import compile_schema
from harness.seeds import drawn

KEYS = ("a", "b", "c")
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 10),
    st.sampled_from([0.5, 1.0, 2.5]),
    st.sampled_from(["", "a", "ab", "abcd", "é"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda below: st.one_of(
        st.lists(below, max_size=3), st.dictionaries(st.sampled_from([*KEYS, "z"]), below, max_size=4)
    ),
    max_leaves=12,
)


def either(*options: Object) -> st.SearchStrategy[Object]:
    return st.sampled_from([{}, {}, *options])


@st.composite
def merged(draw: st.DrawFn, *parts: st.SearchStrategy[Object]) -> Object:
    result: Object = {}
    for part in parts:
        result.update(draw(part))
    return result


NULLABLE = either({"nullable": True})
STRINGS = merged(
    st.just({"type": "string"}),
    either({"minLength": 1}, {"maxLength": 2}, {"pattern": "^a"}, {"enum": ["a", "ab"]}, {"format": "date"}),
    either({"default": "ab"}),
    NULLABLE,
)
NUMBERS = merged(
    st.sampled_from([{"type": "integer"}, {"type": "number"}]),
    either({"minimum": 1}, {"maximum": 3, "exclusiveMaximum": True}, {"multipleOf": 2}, {"enum": [1, 2]}),
    either({"default": 2}),
    NULLABLE,
)
LEAVES = st.one_of(STRINGS, NUMBERS, st.just({"type": "boolean"}), st.just({"x-kubernetes-int-or-string": True}))


def containers(below: st.SearchStrategy[Object]) -> st.SearchStrategy[Object]:
    return st.one_of(structs(below), maps(below), lists(below))


@st.composite
def structs(draw: st.DrawFn, below: st.SearchStrategy[Object]) -> Object:
    properties = draw(st.dictionaries(st.sampled_from(KEYS), below, max_size=3))
    result: Object = {"type": "object", "properties": properties}
    result.update(
        draw(
            either(
                {"required": ["a"]},
                {"x-kubernetes-preserve-unknown-fields": True},
                {"minProperties": 1},
                {"maxProperties": 2},
            )
        )
    )
    result.update(
        draw(
            either(
                {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
                {"oneOf": [{"required": ["a"]}, {"minProperties": 2}]},
                {"allOf": [{"required": ["b"]}]},
                {"not": {"required": ["c"]}},
            )
        )
    )
    return {**result, **draw(NULLABLE)}


@st.composite
def maps(draw: st.DrawFn, below: st.SearchStrategy[Object]) -> Object:
    return {"type": "object", "additionalProperties": draw(st.one_of(below, st.just(True))), **draw(NULLABLE)}


@st.composite
def lists(draw: st.DrawFn, below: st.SearchStrategy[Object]) -> Object:
    items = draw(below)
    result: Object = {"type": "array", "items": items, **draw(either({"minItems": 1}, {"maxItems": 2}))}
    if items.get("type") in ("string", "integer", "boolean"):
        result.update(draw(either({"x-kubernetes-list-type": "set"})))
    elif items.get("properties", {}).get("a", {}).get("type") == "string":
        result.update(draw(either({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"]})))
    return result


SCHEMAS = st.recursive(LEAVES, containers, max_leaves=8)


#: What definitions say of metadata: mostly nothing or that it is an object.
METADATAS = st.none() | st.sampled_from(
    [
        {"type": "object"},
        {"type": "object", "default": {}},
        {"type": "object", "properties": {"name": {"type": "string", "maxLength": 1}}},
        {"type": "object", "properties": {"name": {"type": "string", "enum": ["b"]}}},
        {"type": "object", "properties": {"labels": {"type": "object", "default": {}}}},
        {"type": "object", "required": ["labels"]},
    ]
)


def whole(source: Object, metadata: Object | None = None) -> Object:
    declared = {"metadata": metadata} if metadata is not None else {}
    return {"type": "object", "properties": {**declared, "spec": source}}


def thing(spec: Any) -> Object:
    return {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": copy.deepcopy(spec)}


@settings(max_examples=drawn(150), deadline=None)
@given(SCHEMAS, VALUES)
def test_pruning_and_defaulting_are_idempotent_and_leave_nothing_unknown(source: Object, spec: Any) -> None:
    schema, obj = compile_schema(whole(source)), thing(spec)
    schema.prune(obj)
    pruned = copy.deepcopy(obj)
    schema.prune(obj)
    assert obj == pruned
    assert schema.unknown_fields(obj) == []
    schema.default(obj)
    default_properties = copy.deepcopy(obj)
    schema.default(obj)
    assert obj == default_properties


@settings(max_examples=drawn(300), deadline=None)
@given(SCHEMAS, VALUES, METADATAS)
def test_normalizing_is_pruning_and_defaulting(source: Object, spec: Any, metadata: Object | None) -> None:
    schema, obj = compile_schema(whole(source, metadata)), thing(spec)
    expected = copy.deepcopy(obj)
    schema.prune(expected)
    schema.default(expected)
    schema.normalize(obj)
    assert obj == expected
    # What is normal already stays as it is, in the one walk that finds it so.
    schema.normalize(obj)
    assert obj == expected


@settings(max_examples=drawn(150), deadline=None)
@given(SCHEMAS, VALUES)
def test_what_is_unknown_is_what_pruning_drops(source: Object, spec: Any) -> None:
    schema, obj = compile_schema(whole(source)), thing(spec)
    unknown = schema.unknown_fields(obj)
    without_nulls = encode_json(obj).count(b"null")
    before = copy.deepcopy(obj)
    schema.prune(obj)
    if without_nulls == 0:
        assert bool(unknown) == (obj != before)


@settings(max_examples=drawn(200), deadline=None)
@given(SCHEMAS, VALUES, st.none() | VALUES)
def test_the_fast_answer_agrees_with_the_full_report(source: Object, spec: Any, old: Any) -> None:
    from atoll.machinery.schema.structural import list_types as uniqueness
    from atoll.machinery.schema.structural.compiler import compile_root
    from atoll.machinery.schema.structural.validation import ErrorCollector, validate

    obj = thing(spec)
    root = compile_root(whole(source), None)
    out = ErrorCollector()
    validate(root, obj, "", out)
    found = [*out.errors, *uniqueness.duplicate_errors(root, obj)]
    assert root.accept(root, obj) == (found == [])
    ratcheted = compile_schema(whole(source)).validate(obj, thing(old))
    assert set(ratcheted) <= set(found)
    assert compile_schema(whole(source)).validate(obj, thing(spec)) == []


def fitting(source: Object) -> st.SearchStrategy[Any]:
    """Values that fit a schema without cross rules."""
    if source.get("x-kubernetes-int-or-string"):
        return st.one_of(st.integers(0, 5), st.sampled_from(["1", "20%"]))
    if "properties" in source:
        optional = {key: fitting(child) for key, child in source["properties"].items()}
        return st.fixed_dictionaries({}, optional=optional)
    if "additionalProperties" in source:
        return st.dictionaries(st.sampled_from(KEYS), fitting(source["additionalProperties"]), max_size=2)
    if "items" in source:
        return st.lists(fitting(source["items"]), max_size=3, unique_by=encode_json)
    kind = source["type"]
    return {"string": st.sampled_from(["a", "ab"]), "boolean": st.booleans(), "integer": st.integers(0, 9)}[kind]


PLAIN_LEAVES = st.sampled_from(
    [
        {"type": "string", "enum": ["a", "ab"]},
        {"type": "boolean"},
        {"type": "integer", "maximum": 9, "default": 3},
        {"x-kubernetes-int-or-string": True},
    ]
)
PLAIN = st.recursive(
    PLAIN_LEAVES,
    lambda below: st.one_of(
        st.dictionaries(st.sampled_from(KEYS), below, max_size=3).map(
            lambda properties: {"type": "object", "properties": properties}
        ),
        below.map(lambda extra: {"type": "object", "additionalProperties": extra}),
        below.map(lambda items: {"type": "array", "items": items}),
    ),
    max_leaves=8,
)


@settings(max_examples=drawn(150), deadline=None)
@given(PLAIN, st.data())
def test_an_object_made_to_fit_fits_and_is_left_whole(source: Object, data: st.DataObject) -> None:
    schema, obj = compile_schema(whole(source)), thing(data.draw(fitting(source)))
    before = copy.deepcopy(obj)
    assert schema.unknown_fields(obj) == []
    schema.prune(obj)
    assert obj == before
    schema.default(obj)
    assert schema.validate(obj) == []


@settings(max_examples=drawn(100), deadline=None)
@given(SCHEMAS | VALUES)
def test_judging_a_definition_never_raises(source: Any) -> None:
    obj: Object = {
        "metadata": {"name": "foos.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Cluster",
            "names": {"plural": "foos", "kind": "Foo"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": source}}},
                }
            ],
        },
    }
    default_crd(obj)
    add_stored_version(obj)
    errors = validate_crd(obj)
    if not errors:
        compile_schema(obj["spec"]["versions"][0]["schema"]["openAPIV3Schema"]).validate(thing({}))


@settings(max_examples=drawn(500), deadline=None)
@given(SCHEMAS, VALUES, METADATAS)
def test_a_plain_object_is_known_valid_and_gets_its_defaults_alone(
    source: Object, spec: Any, metadata: Object | None
) -> None:
    schema, obj = compile_schema(whole(source, metadata)), thing(spec)
    given, changed = copy.deepcopy(obj), copy.deepcopy(obj)
    if schema.complete(obj):
        schema.prune(changed)
        schema.default(changed)
        drop_nulls(changed)
        assert encode_json(changed) == encode_json(obj)
        assert schema.unknown_fields(given) == []
        root = compile_root(whole(source, metadata), None)
        assert is_clean(root, obj)
        assert root.accept(root, obj)
