"""Items of lists of built-in kinds: stored bytes allow apiVersion and kind to be removed without decoding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from atoll.machinery.kinds.kind import Kind
from atoll.machinery.kinds.native_schemas import NativeSchema
from atoll.machinery.kinds.registry import NATIVE
from atoll.machinery.meta.objects import Object

_LISTED = [kind for kind in NATIVE if kind.builtin and "list" in kind.verbs]


def reachable(
    schema: Object, definitions: Mapping[str, Object], seen: frozenset[str] = frozenset()
) -> Iterator[Object]:
    """A schema and all those below it."""
    reference = str(schema.get("$ref", "")).rpartition("/")[2]
    if reference in seen:
        return
    for each in schema.get("allOf") or ():
        yield from reachable(each, definitions, seen)
    if reference:
        yield from reachable(definitions[reference], definitions, seen | {reference})
    yield schema
    below = [*(schema.get("properties") or {}).values(), schema.get("items"), schema.get("additionalProperties")]
    for each in below:
        if isinstance(each, dict):
            yield from reachable(each, definitions, seen)


@pytest.mark.parametrize("kind", _LISTED, ids=lambda kind: f"{kind.plural}.{kind.group}")
def test_no_field_that_sorts_before_kind_holds_objects_of_their_own_schema(kind: Kind) -> None:
    schema = kind.schema
    assert isinstance(schema, NativeSchema)
    earlier = [field for name, field in schema.source["properties"].items() if name < "kind"]
    for each in (found for field in earlier for found in reachable(field, schema.definitions)):
        properties = each.get("properties") or {}
        assert not {"kind", "metadata"} <= set(properties)
        is_open = each.get("type") == "object" and not properties and "additionalProperties" not in each
        assert not is_open and "x-kubernetes-preserve-unknown-fields" not in each


def test_these_are_all_kinds_of_kubernetes() -> None:
    assert len(_LISTED) > 15
