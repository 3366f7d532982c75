"""Built-in kinds under any input: hooks never raise, the two forms of an event are one."""

import copy
from functools import cache, partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from atoll.machinery.kinds import registry, reviews
from atoll.machinery.kinds.events.events import from_stored, to_stored
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.kinds.metadata import dedupe_owner_references, validate_metadata, validate_metadata_update
from atoll.machinery.kinds.native_schemas import REF_PREFIX, definitions
from atoll.machinery.meta.objects import Object
from harness.models.native_write import sample
from harness.seeds import drawn

KINDS = [*registry.NATIVE, reviews.TOKENREQUEST]
SCALARS = st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5) | st.sampled_from(["*", "a/b", "1Gi"])
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
)


def shaped(source: Object, depth: int = 4) -> st.SearchStrategy[Any]:
    """Values that mostly have the shape a schema asks for, and sometimes any other."""
    if "allOf" in source:
        source = source["allOf"][0]
    if "$ref" in source:
        source = definitions()[source["$ref"].removeprefix(REF_PREFIX)]
    return ANYTHING if depth == 0 else st.one_of(_fitting(source, depth - 1), _fitting(source, depth - 1), ANYTHING)


def _fitting(source: Object, depth: int) -> st.SearchStrategy[Any]:
    if "enum" in source:
        return st.sampled_from(source["enum"])
    if source.get("type") == "array":
        return st.lists(shaped(source["items"], depth), max_size=3)
    if "properties" in source:
        fields = {name: shaped(field, depth) for name, field in source["properties"].items()}
        return st.fixed_dictionaries({}, optional=fields)
    if "additionalProperties" in source:
        return st.dictionaries(st.text(max_size=4), shaped(source["additionalProperties"], depth), max_size=3)
    return {"boolean": st.booleans(), "integer": st.integers(-5, 700)}.get(source.get("type", ""), SCALARS)


@cache
def contents(name: str) -> st.SearchStrategy[Object]:
    """What objects of a kind hold beside apiVersion, kind and metadata."""
    fields = definitions()[name]["properties"]
    known = {
        field: shaped(source) for field, source in fields.items() if field not in ("apiVersion", "kind", "metadata")
    }
    return st.fixed_dictionaries({}, optional=known)


@cache
def metadatas() -> st.SearchStrategy[Any]:
    return shaped(definitions()["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"])


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.group_kind)
@settings(max_examples=drawn(50), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_hooks_and_checks_take_any_json(kind: Kind, data: st.DataObject) -> None:
    assert kind.schema is not None
    obj = sample(kind, **data.draw(contents(kind.schema_name)))
    extra = data.draw(metadatas())
    obj["metadata"].update(extra if isinstance(extra, dict) else {})
    old = sample(kind, spec={}, status={})
    for prepare in (partial(kind.prepare_create, obj), partial(kind.prepare_update, obj, old)):
        prepare()
        dedupe_owner_references(obj)
        kind.schema.prune(obj)
        kind.schema.default(obj)
        kind.schema.validate(obj)
        validate_metadata(obj, kind)
        validate_metadata_update(obj, old, kind)
        kind.validate(obj)
        kind.validate_update(obj, old)
        kind.validate_status(obj, old)
        kind.warnings(obj)
        kind.held(obj)
        for label in kind.field_labels.values():
            assert isinstance(label(obj), str)
        if kind.cells is not None:
            kind.cells(obj, 0)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.group_kind)
@settings(max_examples=drawn(25), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_writing_what_was_stored_changes_nothing(kind: Kind, data: st.DataObject) -> None:
    assert kind.schema is not None
    content = data.draw(contents(kind.schema_name))
    content.pop("status", None)
    obj = sample(kind, **content)
    kind.prepare_create(obj)
    kind.schema.prune(obj)
    kind.schema.default(obj)
    if kind.schema.validate(obj) or kind.validate(obj):
        return
    again = copy.deepcopy(obj)
    kind.prepare_update(again, obj)
    kind.schema.prune(again)
    kind.schema.default(again)
    assert again == obj
    assert kind.validate_update(again, obj) == []


EVENT_FIELDS = [
    "eventTime",
    "series",
    "reportingController",
    "reportingInstance",
    "action",
    "reason",
    "regarding",
    "related",
    "note",
    "type",
    "deprecatedSource",
    "deprecatedFirstTimestamp",
    "deprecatedLastTimestamp",
    "deprecatedCount",
]
CORE_FIELDS = [
    "eventTime",
    "series",
    "reportingComponent",
    "reportingInstance",
    "action",
    "reason",
    "involvedObject",
    "related",
    "message",
    "type",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
]


def events(api_version: str, fields: list[str]) -> st.SearchStrategy[Object]:
    return st.fixed_dictionaries(
        {"apiVersion": st.just(api_version), "kind": st.just("Event"), "metadata": ANYTHING},
        optional=dict.fromkeys(fields, ANYTHING),
    )


@given(event=events("events.k8s.io/v1", EVENT_FIELDS))
def test_an_event_is_the_same_after_it_was_stored(event: Object) -> None:
    stored = to_stored(event)
    assert set(stored) <= {"apiVersion", "kind", "metadata", *CORE_FIELDS}
    assert from_stored(stored) == event


@given(event=events("v1", CORE_FIELDS))
def test_a_stored_event_is_the_same_after_it_was_seen_through_the_other_group(event: Object) -> None:
    seen = from_stored(event)
    assert set(seen) <= {"apiVersion", "kind", "metadata", *EVENT_FIELDS}
    assert to_stored(seen) == event
