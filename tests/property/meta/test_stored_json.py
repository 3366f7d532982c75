"""Stored JSON read without a full decode: byte patterns miss nothing, and partial decodes agree with a full one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import hypothesis.strategies as st
from hypothesis import example, given, settings

from atoll.machinery.meta import partial, rawscan
from atoll.machinery.meta.objects import decode, encode, encode_in_parts, encode_json

NAMES = st.sampled_from(["phase", "owner", "Claims", "permissionClaims", "é/\x7f", 'quo"te', "back\\slash", "a\nb"])
TEXTS = NAMES | st.text(max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=12,
)
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=5).map(lambda found: {**found, "metadata": {"name": "x"}})


def members(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield all members of all objects in a JSON value."""
    below = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else ()
    if isinstance(value, dict):
        yield from value.items()
    for each in below:
        yield from members(each)


def strings(value: Any) -> Iterator[str]:
    """Yield all keys and strings in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from strings(each)
    elif isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from strings(each)


def same(a: Any, b: Any) -> bool:
    """Whether two JSON values are equal and of one type: True is not 1."""
    return bool(a == b) and repr(a) == repr(b)


@settings(deadline=None)
@given(OBJECTS, TEXTS)
@example({"metadata": {"name": "x"}, "a": {'x"phase': 1}}, "phase")
@example({"metadata": {"name": "x"}, "a": '"phase":'}, "phase")
def test_a_member_is_never_missed_and_only_a_key_with_a_quote_looks_like_one(obj: dict[str, Any], name: str) -> None:
    stored = encode(obj)[0]
    keys = {key for key, _ in members(decode(stored))}
    if name in keys:
        assert rawscan.member(name) in stored
    if rawscan.member(name) in stored:
        assert any(key == name or key.endswith(f'"{name}') for key in keys)
    assert (rawscan.member_ending(name) in stored) == any(key.endswith(name) for key in keys)


@settings(deadline=None)
@given(OBJECTS, TEXTS)
def test_a_list_of_objects_is_never_missed(obj: dict[str, Any], name: str) -> None:
    stored = encode(obj)[0]
    found = [value for key, value in members(decode(stored)) if key.endswith(name)]
    is_list = any(isinstance(value, list) and value and isinstance(value[0], dict) for value in found)
    assert (rawscan.member_ending(name, "[{") in stored) == is_list


@settings(deadline=None)
@given(OBJECTS, st.data())
def test_members_are_never_missed(obj: dict[str, Any], data: st.DataObject) -> None:
    stored = encode(obj)[0]
    found = list(members(decode(stored)))
    name, value = data.draw(st.sampled_from([*found, ("phase", "Bound")]))
    if any(key == name and same(each, value) for key, each in found):
        assert rawscan.members({name: value}) in stored


@settings(deadline=None)
@given(OBJECTS, TEXTS)
def test_a_string_is_never_missed(obj: dict[str, Any], text: str) -> None:
    stored = encode(obj)[0]
    found = set(strings(decode(stored)))
    assert text not in found or rawscan.string(text) in stored
    assert rawscan.text(text) in stored or not any(text in each for each in found)


def test_adjacent_members_are_found() -> None:
    condition = {"type": "Ready", "lastTransitionTime": "2026-01-01T00:00:00Z", "status": "True"}
    stored = encode({"metadata": {"name": "x"}, "status": {"conditions": [condition]}})[0]
    assert rawscan.members({"type": "Ready", "status": "True"}) in stored
    assert rawscan.members({"type": "Ready", "status": "False"}) not in stored


LABELS = st.dictionaries(TEXTS, TEXTS, max_size=3)
METADATA = st.fixed_dictionaries(
    {"name": TEXTS},
    optional={
        "namespace": TEXTS,
        "uid": TEXTS,
        "labels": LABELS,
        "annotations": LABELS,
        "finalizers": st.lists(TEXTS, max_size=3),
        "managedFields": st.just([{"manager": "x", "fieldsV1": {"f:metadata": {"f:labels": {}}}}]),
    },
)


@settings(deadline=None)
@given(OBJECTS, METADATA, st.none() | st.fixed_dictionaries({}, optional={"phase": TEXTS, "conditions": st.just([])}))
def test_a_partial_decode_agrees_with_a_full_one(
    obj: dict[str, Any], metadata: dict[str, Any], status: dict[str, Any] | None
) -> None:
    obj = {**obj, "metadata": metadata}
    obj = {**obj, "status": status} if status is not None else {key: obj[key] for key in obj if key != "status"}
    stored = encode(obj)[0]
    name = (metadata["name"], metadata.get("namespace", ""))
    assert partial.name(stored) == partial.ObjectName(*name)
    assert partial.identity(stored) == partial.ObjectIdentity(*name, metadata.get("uid", ""))
    assert partial.labels(stored) == metadata.get("labels", {})
    assert list(partial.finalizers(stored)) == metadata.get("finalizers", [])
    assert partial.phase(stored) == (status or {}).get("phase", "")


MANY = st.integers(30, 40) | st.integers(1020, 1030)


@settings(deadline=None)
@given(VALUES, MANY, st.integers(0, 4), st.booleans())
def test_an_encoding_in_parts_is_the_encoding(value: Any, size: int, levels: int, is_list: bool) -> None:
    many = [value] * size if is_list else {f"k{size - at}": value for at in range(size)}
    whole = {"z": value, "a": [many, value]}
    assert b"".join(encode_in_parts(whole, lambda: None, levels)) == encode_json(whole)


@settings(deadline=None)
@given(OBJECTS)
def test_a_large_object_is_stored_with_the_same_bytes(obj: dict[str, Any]) -> None:
    pauses: list[None] = []
    assert encode(obj, lambda: pauses.append(None)) == encode(obj)
    assert pauses
