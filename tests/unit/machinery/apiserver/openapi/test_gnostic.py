"""Bytes of gnostic's messages. Go checks whole documents: tests/contract/openapi."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from atoll.machinery.apiserver.openapi import gnostic, gnostic_v2, gnostic_v3


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Numbers and values of a message's fields; for fields with a length, their bytes."""
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        tag = number()
        size = {0: 0, 1: 8, 2: 0}[tag & 7]
        if tag & 7 == 0:
            yield tag >> 3, number()
            continue
        size = size or number()
        yield tag >> 3, data[at : at + size]
        at += size


def _one(data: bytes, *path: int) -> Any:
    for number in path:
        data = dict(_fields(data))[number]
    return data


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 1 << 31, (1 << 64) - 1])
def test_numbers_are_read_back(value: int) -> None:
    (read,) = _fields(b"\x08" + gnostic.varint(value))
    assert read == (1, value)


def test_what_a_field_holds_by_default_is_left_out() -> None:
    table = {"a": gnostic.text(1), "b": gnostic.flag(2), "c": gnostic.integer(3), "d": gnostic.double(4)}
    assert gnostic.encode(table, {"a": "", "b": False, "c": 0, "d": 0.0, "unknown": 1}) == b""
    assert dict(_fields(gnostic.encode(table, {"a": "x", "b": True, "c": -1}))) == {1: b"x", 2: 1, 3: (1 << 64) - 1}


@pytest.mark.parametrize(
    "value",
    ["\x7f", "\x7f\x85\u2028\ufeff", "ü😀", "a: b", "- x", "line\nline", "", None, {"": []}, [1, 1.5, -1e21, True]],
)
def test_open_values_are_yaml_that_means_the_same(value: Any) -> None:
    text = _one(gnostic.anything(5)(value), 5, 2).decode()
    assert yaml.safe_load(text) == value or json.loads(text) == value
    assert not any(0x7F <= ord(letter) <= 0x9F or letter in "\u2028\u2029\ufeff" for letter in text)


def test_a_definition_of_v2_keeps_its_markers() -> None:
    gvk = [{"group": "", "version": "v1", "kind": "A"}]
    schema = {
        "type": "object",
        "required": ["b"],
        "properties": {"b": {"$ref": "#/definitions/B"}},
        "additionalProperties": False,
        "x-kubernetes-group-version-kind": gvk,
    }
    data = gnostic_v2.definition("A", schema)
    assert _one(data, 1, 1) == b"A"
    value = _one(data, 1, 2)
    assert (_one(value, 22, 1), _one(value, 19), _one(value, 21, 2)) == (b"object", b"b", 0)
    assert (_one(value, 25, 1, 1), _one(value, 25, 1, 2, 1)) == (b"b", b"#/definitions/B")
    assert _one(value, 31, 1) == b"x-kubernetes-group-version-kind"
    assert yaml.safe_load(_one(value, 31, 2, 2)) == gvk


def test_a_component_of_v3_is_a_schema_or_a_reference() -> None:
    schema = {"nullable": True, "default": {}, "items": {"$ref": "#/components/schemas/B"}, "maxLength": 5}
    value = _one(gnostic_v3.component("A", schema), 1, 2, 1)
    assert (_one(value, 1), _one(value, 33), _one(value, 15)) == (1, b"", 5)
    assert _one(value, 30, 1, 2, 1) == b"#/components/schemas/B"
    for default, field, read in ((0, 1, bytes(8)), (False, 2, 0), ("", 3, b"")):
        assert _one(gnostic_v3.component("A", {"default": default}), 1, 2, 1, 33, field) == read


def test_operations_of_both_versions_have_their_action_and_kind() -> None:
    operation = {
        "operationId": "readA",
        "parameters": [{"$ref": "#/parameters/a"}, {"in": "path", "name": "n"}],
        "responses": {"401": {"description": "Unauthorized"}},
        "x-kubernetes-action": "get",
    }
    v2 = _one(gnostic_v2.path_item("/a", {"get": operation}), 2, 2, 2)
    assert (_one(v2, 5), _one(v2, 13, 2, 2)) == (b"readA", b'"get"\n')
    shared, own = (value for number, value in _fields(v2) if number == 8)
    assert (_one(shared, 2, 1), _one(own, 1, 2, 4, 4)) == (b"#/parameters/a", b"n")
    assert (_one(v2, 9, 1, 1), _one(v2, 9, 1, 2, 1, 1)) == (b"401", b"Unauthorized")
    v3 = _one(gnostic_v3.path_item("/a", {"get": {**operation, "parameters": []}}), 1, 2, 4)
    assert (_one(v3, 5), _one(v3, 8, 2, 1), _one(v3, 13, 1)) == (b"readA", b"401", b"x-kubernetes-action")
