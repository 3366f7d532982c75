from __future__ import annotations

from typing import Any

import pytest

from atoll.machinery.schema import yaml_encoder
from atoll.machinery.schema.decoding.yaml_decoder import decode_yaml
from atoll.machinery.schema.yaml_encoder import MAX_INDENTATION, encode_yaml, encode_yaml_item
from harness.data.yaml_texts import MISREAD


def encoded(value: Any) -> str:
    return encode_yaml(value).decode()


def test_a_document_is_in_block_style_with_sorted_keys_and_lists_that_are_not_indented() -> None:
    value = {
        "spec": {"rules": [{"verbs": ["get", "list"], "apiGroups": [""]}, {}], "list": [[1, 2], [], ["a"]]},
        "kind": "X",
        "count": 3,
        "share": 0.5,
        "none": None,
        "on": True,
    }
    assert (
        encoded(value)
        == """\
count: 3
kind: X
none: null
"on": true
share: 0.5
spec:
  list:
  - - 1
    - 2
  - []
  - - a
  rules:
  - apiGroups:
    - ""
    verbs:
    - get
    - list
  - {}
"""
    )


@pytest.mark.parametrize("text", ["abc", "/a/b-c_d.e", "a b", "a:b", "a#b", "-a", "1.2.3.4", "10.0.0.0/8", "100m", "é"])
def test_a_string_that_reads_as_itself_is_plain(text: str) -> None:
    assert encoded({"k": text}) == f"k: {text}\n"


@pytest.mark.parametrize("text", MISREAD)
def test_a_string_that_reads_as_something_else_is_quoted_as_key_and_value(text: str) -> None:
    assert encoded({text: text}) == f'"{text}": "{text}"\n'


def test_lines_are_a_literal_block_where_that_keeps_every_character() -> None:
    assert encoded({"a": "x\n y\n\nz\n", "b": ["p\nq"]}) == "a: |\n  x\n   y\n\n  z\nb:\n- |-\n  p\n  q\n"
    assert encoded({"a": "x\n\n"}) == "a: |+\n  x\n\n"
    for text in ("x \ny", "x\n\ty\t", " x\ny", "\nx", "x\r\ny", "x\n\x07"):
        assert encoded({"a": text}).startswith('a: "')


def test_a_long_key_is_marked_so_that_readers_find_its_value() -> None:
    assert encoded({"k" * 129: [1]}) == f"? {'k' * 129}\n:\n- 1\n"


def test_an_item_of_a_list_begins_with_a_dash() -> None:
    assert encode_yaml_item({"a": [1], "b": "x"}) == b"- a:\n  - 1\n  b: x\n"
    assert encode_yaml_item([]) == b"- []\n"


def test_nesting_costs_no_recursion_and_little_more_than_its_values() -> None:
    deep: Any = "x"
    for _ in range(900):
        deep = [deep]
    assert len(encode_yaml(deep)) < 2_000
    wide: Any = [1] * 100_000
    for _ in range(180):
        wide = {"a": wide}
    encoded = encode_yaml(wide)
    assert len(encoded) < MAX_INDENTATION
    assert decode_yaml(encoded).value == wide


def test_an_encoding_pauses_at_every_list_and_mapping(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[None] = []
    monkeypatch.setattr(yaml_encoder, "checkpoint", lambda: pauses.append(None))
    encode_yaml([{"a": [1]}] * 10)
    assert len(pauses) >= 21
