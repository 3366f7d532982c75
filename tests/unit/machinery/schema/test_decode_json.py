from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest

from atoll.machinery.schema.decoding.document import MAX_DEPTH, DecodeError
from atoll.machinery.schema.decoding.json_decoder import decode_json


def test_a_document_becomes_its_value() -> None:
    data = b'{"a":[1,2.5,true,null,"\xc3\xa9"],"b":{"c":-9223372036854775808}}'
    decoded = decode_json(data)
    assert decoded.value == {"a": [1, 2.5, True, None, "é"], "b": {"c": -(2**63)}}
    assert decoded.duplicate_keys == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"   ",
        b"{",
        b'{"a":1',
        b'{"a":1}}',
        b"nul",
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b'{"a":NaN}',
        b"01",
        b"'a'",
        b'"a\nb"',
        b"\xef\xbb\xbf{}",
        b"{a:1}",
        b"[1,]",
        b'{"a":1,}',
        b"// x\n{}",
    ],
)
def test_what_is_no_json_is_refused_with_a_reason(data: bytes) -> None:
    with pytest.raises(DecodeError, match=r"^invalid JSON: "):
        decode_json(data)


@pytest.mark.parametrize(
    "number", ["9223372036854775808", "-9223372036854775809", "18446744073709551615", "1" * 30, "9" * 6000]
)
def test_an_integer_beyond_64_bits_is_refused_wherever_it_stands(number: str) -> None:
    with pytest.raises(DecodeError):
        decode_json(f'{{"a":[{{"b":{number}}}]}}'.encode())


def test_long_digits_that_are_no_integers_are_fine() -> None:
    data = b'{"a":"12345678901234567890123","b":1234567890123456789012.5,"c":1e300}'
    assert decode_json(data).value == {"a": "12345678901234567890123", "b": 1234567890123456789012.5, "c": 1e300}


def test_a_number_beyond_a_float_is_refused() -> None:
    with pytest.raises(DecodeError):
        decode_json(b'{"a":1e400}')


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]")])
def test_nesting_is_bounded_and_told(opening: bytes, closing: bytes) -> None:
    levels = MAX_DEPTH // (2 if opening.startswith(b"[{") else 1)
    decode_json(opening * levels + b"1" + closing * levels)
    for deeper in (levels + 1, 600, 10_000, 200_000):
        with pytest.raises(DecodeError, match=f"nested deeper than {MAX_DEPTH} levels"):
            decode_json(opening * deeper + b"1" + closing * deeper)


def test_many_brackets_side_by_side_are_not_deep() -> None:
    data = b"[" + b",".join([b"{}"] * 5000) + b"]"
    assert len(decode_json(data).value) == 5000


def test_refusing_a_deep_document_takes_little_memory() -> None:
    data = b"[" * 2_000_000
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError):
            decode_json(data)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("data", "paths"),
    [
        ('{"a":1,"a":2}', ["a"]),
        ('{"a":1,"a":1,"a":1}', ["a", "a"]),
        ('{"data":{"a":"x","a":"y"}}', ["data.a"]),
        ('{"spec":{"list":[{"x":1},{"y":1,"x":2,"x":3}]}}', ["spec.list[1].x"]),
        ('{"m":[[{"x":1,"x":2}]],"z":1,"z":2}', ["m[0][0].x", "z"]),
        ('{"a":"a\\"b","b":{"a":1},"c":["a","a"]}', []),
        ('{"a\\"b":1,"a\\"b":2}', ['a"b']),
        ('{"\\u0061":1,"a":2}', ["a"]),
        ('{"a":"\\u0022","b":{"c":1,"c":2}}', ["b.c"]),
        # Two escaped quotes make up for the two quotes of a lost key in the count of quotes.
        ('{"a":"\\u0022\\u0022","b":{"c":1,"c":2}}', ["b.c"]),
        ('{"a":{"b":1},"a":{"b":1,"b":2}}', ["a", "a.b"]),
        ('{"a":"{\\"a\\":1,\\"a\\":2}"}', []),
        ("[]", []),
        ('"a"', []),
    ],
)
def test_duplicate_keys_are_found_in_document_order(data: str, paths: list[str]) -> None:
    for text in (data, data.replace(":", " : ").replace(",", " ,\n\t") if "\\" not in data else data):
        assert decode_json(text.encode(), find_duplicates=True).duplicate_keys == paths


def test_duplicates_are_not_looked_for_unless_asked_and_the_last_wins() -> None:
    decoded = decode_json(b'{"a":1,"a":2}')
    assert decoded.value == {"a": 2}
    assert decoded.duplicate_keys == []


def test_a_large_document_without_duplicates_has_none() -> None:
    value = {f"k{index}": {"a": index, "b": [index, {"c": 'x"y\\z'}]} for index in range(500)}
    assert decode_json(json.dumps(value).encode(), find_duplicates=True).duplicate_keys == []


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'"\\ud800"', "\ufffd"),
        (b'"\\ud800\\u0041"', "\ufffdA"),
        (b'"\\udc00\\ud83d\\ude00"', "\ufffd\U0001f600"),
        (b'"\\ud83d\\ud83d\\ude00"', "\ufffd\U0001f600"),
        (b'"\\\\ud800\\ud800"', "\\ud800\ufffd"),
        (b'"a\xff\xe2\x82b"', "a\ufffd\ufffd\ufffdb"),
        (b'{"\\ud800":"\\n\xff"}', {"\ufffd": "\n\ufffd"}),
    ],
)
def test_malformed_characters_are_replaced_as_in_go(data: bytes, expected: Any) -> None:
    assert decode_json(data).value == expected


def test_duplicates_are_found_among_replaced_characters() -> None:
    assert decode_json(b'{"\\ud800":1,"\xff":2}', find_duplicates=True).duplicate_keys == ["\ufffd"]
