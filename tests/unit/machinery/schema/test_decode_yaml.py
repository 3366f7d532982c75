from __future__ import annotations

from typing import Any

import pytest

from atoll.machinery.schema.decoding import yaml_decoder
from atoll.machinery.schema.decoding.document import MAX_DEPTH, DecodeError
from atoll.machinery.schema.decoding.yaml_decoder import decode_yaml


def value(text: str) -> Any:
    return decode_yaml(text.encode()).value


@pytest.mark.parametrize(
    ("scalar", "expected"),
    [
        ("yes", True),
        ("On", True),
        ("y", True),
        ("TRUE", True),
        ("no", False),
        ("off", False),
        ("N", False),
        ("~", None),
        ("", None),
        ("Null", None),
        ("nULL", "nULL"),
        ("tRue", "tRue"),
        ("12", 12),
        ("-12", -12),
        ("+12", 12),
        ("0777", 511),
        ("0o17", 15),
        ("0x1F", 31),
        ("0b101", 5),
        ("1_000", 1000),
        ("9223372036854775807", 2**63 - 1),
        ("08", 8),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1e3", 1000),
        ("1.", 1),
        ("1e30", 1e30),
        ("2001-01-01", "2001-01-01"),
        ("2001-12-14t21:59:43.10-05:00", "2001-12-14t21:59:43.10-05:00"),
        ("12:30:45", "12:30:45"),
        ("1:2", "1:2"),
        ("v1", "v1"),
        ("1.2.3", "1.2.3"),
        (".", "."),
        ('"yes"', "yes"),
        ("'12'", "12"),
        ("!!str 12", "12"),
        ("!!str yes", "yes"),
        ("! 12", "12"),
        ("!!int 12", 12),
        ("!!float 1", 1),
        ("!!bool yes", True),
        ("!!null ~", None),
        ("|\n  a\n  b\n", "a\nb\n"),
        (">-\n  a\n  b", "a b"),
        ("<<", "<<"),
    ],
)
def test_a_scalar_means_what_it_means_to_kubernetes(scalar: str, expected: Any) -> None:
    found = value(f"a: {scalar}")["a"]
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize("scalar", [".nan", ".inf", "-.INF", "9223372036854775808", "1" * 5000, "0x" + "f" * 400])
def test_numbers_that_json_does_not_hold_are_refused(scalar: str) -> None:
    with pytest.raises(DecodeError, match="line 1"):
        value(f"a: {scalar}")


@pytest.mark.parametrize(
    "scalar", ["!!int x", "!!bool 1", "!!binary YQ==", "!!python/name:os.system x", "!own x", "!!set {a}"]
)
def test_tags_that_do_not_fit_or_are_unknown_are_refused(scalar: str) -> None:
    with pytest.raises(DecodeError):
        value(f"a: {scalar}")


def test_keys_become_strings() -> None:
    assert value("1: a\ntrue: b\n1.5: c\n'2': d") == {"1": "a", "true": "b", "1.5": "c", "2": "d"}


@pytest.mark.parametrize("text", ["~: a", "? [a]\n: b", "? {a: b}\n: c", "a: &x [1]\n*x : b"])
def test_keys_that_are_no_scalars_are_refused(text: str) -> None:
    with pytest.raises(DecodeError):
        value(text)


def test_aliases_are_copies_and_merges_do_not_override() -> None:
    found = value("a: &x {b: 1, l: [1]}\nc: *x\nd:\n  <<: *x\n  b: 2\ne:\n  <<: [*x, {z: 3}]")
    assert found == {
        "a": {"b": 1, "l": [1]},
        "c": {"b": 1, "l": [1]},
        "d": {"b": 2, "l": [1]},
        "e": {"b": 1, "l": [1], "z": 3},
    }
    found["a"]["l"].append(2)
    assert found["c"]["l"] == [1]


def test_a_merge_of_what_is_no_map_is_refused() -> None:
    with pytest.raises(DecodeError, match="map merge"):
        value("a:\n  <<: [1]")


def bomb(width: int, levels: int, leaf: str = "x") -> bytes:
    lines = [f"l0: &l0 [{', '.join([leaf] * width)}]"]
    lines += [f"l{index}: &l{index} [{', '.join([f'*l{index - 1}'] * width)}]" for index in range(1, levels)]
    return "\n".join(lines).encode()


@pytest.mark.parametrize("data", [bomb(9, 9), bomb(2, 60), bomb(40, 4, "y" * 2000)])
def test_documents_that_grow_by_aliases_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError, match="excessive aliasing"):
        decode_yaml(data)


def test_a_few_aliases_are_fine() -> None:
    assert len(decode_yaml(bomb(4, 4)).value["l3"]) == 4


def test_a_bomb_is_refused_before_it_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[object] = []
    monkeypatch.setattr(yaml_decoder, "checkpoint", lambda: copied.append(None))
    with pytest.raises(DecodeError, match="excessive aliasing"):
        decode_yaml(bomb(9, 13))
    assert len(copied) < 100


@pytest.mark.long
def test_aliases_may_be_nearly_all_of_a_small_document_and_a_tenth_of_a_large_one() -> None:
    base = f"a: &a [{','.join(['1'] * 1000)}]\nb: ["
    assert len(value(f"{base}{','.join(['*a'] * 90)}]")["b"]) == 90
    with pytest.raises(DecodeError, match="excessive aliasing"):
        value(f"{base}{','.join(['*a'] * 130)}]")
    half = f"a: &a [{','.join(['1'] * 500_000)}]\nb: "
    assert len(value(f"{half}*a")["b"]) == 500_000
    with pytest.raises(DecodeError, match="excessive aliasing"):
        value(f"{half}[*a, *a, *a, *a]")


def test_a_long_document_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[None] = []
    monkeypatch.setattr(yaml_decoder, "checkpoint", lambda: pauses.append(None))
    decode_yaml(b"- x\n" * 10_000)
    assert len(pauses) > 50


@pytest.mark.parametrize("text", ["a: *a", "a: &a [*a]", "a: &a {b: *a}"])
def test_aliases_of_what_is_not_there_yet_are_refused(text: str) -> None:
    with pytest.raises(DecodeError, match="unknown anchor"):
        value(text)


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_nesting_is_bounded(opening: str) -> None:
    with pytest.raises(DecodeError):
        value(opening * 10_000)
    with pytest.raises(DecodeError, match="nested deeper"):
        value(opening * (MAX_DEPTH + 1) + "x" + {"[": "]", "{a: ": "}", "- ": ""}[opening] * (MAX_DEPTH + 1))


def test_aliases_do_not_make_a_document_deeper_than_allowed() -> None:
    half = MAX_DEPTH // 2 + 2
    with pytest.raises(DecodeError, match="nested too deep"):
        value(f"a: &x {'[' * half}1{']' * half}\nb: {'[' * half}*x{']' * half}")


def test_duplicate_keys_are_told_with_their_line() -> None:
    decoded = decode_yaml(b"a: 1\nb:\n  c: 1\n  c: 2\na: 3\n")
    assert decoded.value == {"a": 3, "b": {"c": 2}}
    assert decoded.duplicate_keys == ['line 4: key "c" already set in map', 'line 5: key "a" already set in map']


def test_only_one_document_is_taken_and_an_empty_one_is_null() -> None:
    assert value("") is None
    assert value("# nothing\n") is None
    assert value("---\na: 1\n...\n") == {"a": 1}
    with pytest.raises(DecodeError, match="more than one document"):
        value("a: 1\n---\nb: 2")


@pytest.mark.parametrize(
    "data",
    [b"a: b: c", b"a:\n\t- b", b"{a: b", b"[a", b"'a", b"%YAML 3.0\n--- a", b"\xff\xfe\x00", b'"\\ud800"', b"a: \xc3"],
)
def test_malformed_documents_are_refused_with_a_reason(data: bytes) -> None:
    with pytest.raises(DecodeError, match=r"^invalid YAML: "):
        decode_yaml(data)


def test_json_is_yaml() -> None:
    assert value('{"a": [1, true, null, "x"], "b": {"c": 1.5}}') == {"a": [1, True, None, "x"], "b": {"c": 1.5}}
