"""Any bytes decode to a value or a DecodeError, and encoded values decode to themselves."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.machinery.meta.objects import encode_json
from atoll.machinery.schema.decoding.document import DecodeError
from atoll.machinery.schema.decoding.json_decoder import decode_json
from atoll.machinery.schema.decoding.yaml_decoder import decode_yaml
from harness.seeds import drawn

VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=8),
    ),
    lambda below: st.one_of(st.lists(below, max_size=4), st.dictionaries(st.text(max_size=4), below, max_size=4)),
    max_leaves=20,
)
#: Bytes that look like documents, so that more than the first byte is read.
PIECES = st.lists(
    st.sampled_from([*b'{}[]:,"\\0123eE+-.utrnfasl \n&*<!|>#%@`~?\xff\xc3\xa9\x00'.decode("latin-1")]), max_size=60
).map(lambda chars: "".join(chars).encode("latin-1"))


@settings(max_examples=drawn(400), deadline=None)
@given(st.binary(max_size=80) | PIECES)
def test_any_bytes_give_a_value_that_can_be_encoded_or_a_clear_error(data: bytes) -> None:
    for decode in (partial(decode_json, find_duplicates=True), decode_yaml):
        try:
            decoded = decode(data)
        except DecodeError as error:
            assert str(error).startswith(("invalid JSON: ", "invalid YAML: "))
        else:
            encode_json(decoded.value)


@settings(max_examples=drawn(200), deadline=None)
@given(VALUES)
def test_what_an_encoder_wrote_is_read_back_without_duplicates(value: Any) -> None:
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=2)):
        decoded = decode_json(text.encode(), find_duplicates=True)
        assert decoded.value == value
        assert decoded.duplicate_keys == []


@settings(max_examples=drawn(200), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["a", "b", 'q"', "é"]), st.integers(0, 9)), max_size=6), st.booleans())
def test_duplicates_are_the_keys_that_repeat(pairs: list[tuple[str, int]], ascii_only: bool) -> None:
    body = ",".join(f"{json.dumps(key, ensure_ascii=ascii_only)}:{value}" for key, value in pairs)
    expected = [f"x.{key}" for index, (key, _) in enumerate(pairs) if key in {each for each, _ in pairs[:index]}]
    decoded = decode_json(f'{{"x":{{{body}}}}}'.encode(), find_duplicates=True)
    assert decoded.duplicate_keys == expected
    assert decoded.value == {"x": dict(pairs)}
