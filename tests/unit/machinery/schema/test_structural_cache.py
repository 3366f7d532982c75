"""Memory of schemas of definitions: their JSON, and the compiled form of those used recently."""

from __future__ import annotations

import gc
import weakref
from typing import Any

from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.schema.structural.structural_schema import (
    COMPILED_BYTES,
    StructuralSchema,
    compile_schema,
    schema_for,
)


class _Held:
    """An object that an upper layer attaches to a schema."""


def _large(name: str) -> StructuralSchema:
    text = {"type": "string", "description": "x" * 900_000}
    properties: Object = {"size": {"type": "integer", "default": 1}, "text": text}
    return schema_for(encode_json({"type": "object", "title": name, "properties": properties}))


def test_a_schema_is_compiled_when_an_object_comes_and_again_after_it_was_dropped() -> None:
    first = _large("first")
    first.attachment = _Held()
    held = weakref.ref(first.attachment)
    for index in range(COMPILED_BYTES // 900_000 + 1):
        assert _large(f"number {index}").source["title"] == f"number {index}"
    gc.collect()
    assert held() is None
    assert first.attachment is None
    obj: Any = {"other": 1}
    first.prune(obj)
    first.default(obj)
    assert obj == {"size": 1}
    assert [error.field for error in first.validate({"size": "x"})] == ["size"]


def test_what_a_schema_may_contain_is_known_without_compiling_it() -> None:
    schema = schema_for(encode_json({"type": "object", "properties": {"a": {"type": "string", "maxLength": 3}}}))
    assert schema.may_contain("maxLength")
    assert not schema.may_contain("x-kubernetes-validations")
    assert schema.size_bytes == len(encode_json(schema.source))
    compiled = compile_schema({"type": "object"})
    assert compiled.may_contain("anything")
    assert compiled.size_bytes == 0
