"""Whatever is encoded as YAML is read back as the same value, in a document and as items of a list."""

from __future__ import annotations

from typing import Any
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.machinery.schema import yaml_encoder
from atoll.machinery.schema.decoding.yaml_decoder import decode_yaml
from atoll.machinery.schema.yaml_encoder import encode_yaml, encode_yaml_item
from harness.data.yaml_texts import MISREAD
from harness.seeds import drawn

#: Strings with more than a word, or with characters that some style cannot hold.
CONTINUED = [
    "",
    " ",
    "a: b",
    "a #b",
    "- a",
    "? a",
    "--- a",
    " a",
    "a ",
    "a\tb",
    "\ta",
    "a\n",
    "a\n\n",
    "\na",
    "a\n b",
    " a\nb",
]
CHARACTERS = [
    "\0",
    "\x07",
    "\x1f",
    "\x7f",
    "\x85",
    "\xa0",
    "\u2028",
    "\u2029",
    "\ufeff",
    "\uffff",
    "\U0001f600",
    "a\r\nb",
]
LONG = ["k" * 129, "k" * 1025, "k" * 1200 + "\n", '"' * 1100]
TEXTS = st.one_of(
    st.sampled_from([*MISREAD, *CONTINUED, *CHARACTERS, *LONG]),
    st.text(max_size=8),
    st.text("ab \n\t:#-?'\"", max_size=8),
    st.integers().map(str),
    st.floats().map(str),
)  # fmt: skip
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False), TEXTS
)
VALUES = st.recursive(
    SCALARS, lambda below: st.lists(below, max_size=4) | st.dictionaries(TEXTS, below, max_size=4), max_leaves=20
)


@settings(max_examples=drawn(800), deadline=None)
@given(VALUES, st.sampled_from([0, 8, yaml_encoder.MAX_INDENTATION]))
def test_what_is_encoded_is_read_back_as_it_was(value: Any, max_indentation: int) -> None:
    with mock.patch.object(yaml_encoder, "MAX_INDENTATION", max_indentation):
        document, item = encode_yaml(value), encode_yaml_item(value)
    assert decode_yaml(document).value == value
    assert decode_yaml(b"items:\n" + item + item + b"last: 1\n").value == {"items": [value, value], "last": 1}


@settings(max_examples=drawn(200), deadline=None)
@given(st.dictionaries(TEXTS, TEXTS, max_size=6))
def test_a_key_is_as_safe_as_a_value(value: dict[str, str]) -> None:
    decoded = decode_yaml(encode_yaml({"data": value}))
    assert decoded.value == {"data": value}
    assert decoded.duplicate_keys == []
