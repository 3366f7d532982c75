"""Items of lists of built-in kinds: stored bytes allow apiVersion and kind to be removed without decoding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from atoll.machinery.apiserver.call.call import Call
from atoll.machinery.apiserver.call.requestinfo import parse
from atoll.machinery.apiserver.rest.list_items import encoder
from atoll.machinery.kinds.core.configmaps import CONFIGMAPS
from atoll.machinery.kinds.core.events import EVENTS
from atoll.machinery.kinds.core.namespaces import NAMESPACES
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.kinds.native_schemas import NativeSchema
from atoll.machinery.kinds.registry import NATIVE
from atoll.machinery.meta.objects import Object, decode, encode, encode_json
from atoll.machinery.meta.user import MASTERS, User

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


def listed(kind: Kind, objects: list[Object], lead: bytes) -> bytes:
    call = Call(
        info=parse("GET", f"/api/v1/{kind.plural}".encode()), user=User("root", (MASTERS,)), cluster="c", kind=kind
    )
    return encoder(call)([encode(each)[0] for each in objects], lead)


#: Fields that sort before kind, at which records of the kind are cut.
_EARLIER: dict[str, tuple[Kind, Object]] = {
    "none": (NAMESPACES, {}),
    "data": (CONFIGMAPS, {"data": {"a": ',"kind":"ConfigMap","metadata":{'}}),
    "others": (EVENTS, {"action": "Started", "involvedObject": {"kind": "Event"}}),
}


@pytest.mark.parametrize("earlier", _EARLIER)
def test_items_are_as_stored_without_type_whatever_their_size(earlier: str) -> None:
    kind, fields = _EARLIER[earlier]
    body = {"apiVersion": "v1", "kind": kind.kind, **fields}
    # Short ones are copied, long ones are not.
    objects = [
        {**body, "metadata": {"name": "n", "annotations": {"note": "x" * size}}} for size in (0, 5_000, 1, 9_000)
    ]
    for some in ([], objects[:1], objects[1:2], objects):
        for lead in (b"", b",", b'{"items":['):
            stored = [encode(each)[0] for each in some]
            assert listed(kind, some, lead) == lead + b",".join(_without_type(value) for value in stored)


def _without_type(value: bytes) -> bytes:
    return encode_json({key: each for key, each in decode(value).items() if key not in ("apiVersion", "kind")})
