"""Customization always ends, changes what its path selects and nothing else, and done twice is done once."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.machinery.edge.customization import CustomizationError, customized
from atoll.machinery.edge.json_paths import Budget, Place, is_definite, parse, places, replaced
from atoll.machinery.edge.names import EXPAND
from atoll.machinery.meta.objects import encode_json
from harness.seeds import drawn

NAMES = st.sampled_from(["a", "b", "c"])
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.integers(0, 3), NAMES),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=12,
)
NUMBERS = st.integers(0, 3).map(str)
SELECTORS = st.one_of(
    NAMES.map(lambda name: f".{name}"),
    NAMES.map(lambda name: f"..{name}"),
    st.lists(NAMES, min_size=1, max_size=2).map(lambda names: "[" + ",".join(f"'{each}'" for each in names) + "]"),
    st.lists(NUMBERS, min_size=1, max_size=2).map(lambda numbers: f"[{','.join(numbers)}]"),
    st.tuples(NUMBERS, NUMBERS, st.sampled_from(["", ":1", ":2"])).map(lambda part: f"[{part[0]}:{part[1]}{part[2]}]"),
    st.sampled_from([".*", "[*]", "..*", "..[0]"]),
)
PATHS = st.lists(SELECTORS, max_size=3).map(lambda parts: "$" + "".join(parts))


def budget() -> Budget:
    return Budget(100_000, 100_000)


def leaves(value: Any, at: Place = ()) -> dict[Place, Any]:
    """All places of a value, with what is there: the types of maps and arrays, the values of others."""
    found: dict[Place, Any] = {at: type(value) if isinstance(value, dict | list) else value}
    if isinstance(value, dict):
        for key, child in value.items():
            found |= leaves(child, (*at, key))
    if isinstance(value, list):
        for index, child in enumerate(value):
            found |= leaves(child, (*at, index))
    return found


@settings(max_examples=drawn(150))
@given(VALUES, PATHS, VALUES)
def test_a_replacement_changes_the_places_of_its_path_alone_and_done_twice_is_done_once(
    value: Any, text: str, new: Any
) -> None:
    path = parse(text)
    selected = places(value, path, budget())
    once = replaced(copy.deepcopy(value), path, lambda: copy.deepcopy(new), budget())
    before, after = leaves(value), leaves(once)
    for place in before.keys() | after.keys():
        if any(place[: len(each)] == each for each in selected):
            continue
        if place in before:
            assert after[place] == before[place]
        else:
            # A map that was made for what it has.
            assert is_definite(path)
            assert any(each[: len(place)] == place for each in selected)
    for each in selected:
        if not any(each[:length] in selected for length in range(len(each))):
            found = once
            for key in each:
                found = found[key]
            assert found == new
    assert replaced(copy.deepcopy(once), path, lambda: copy.deepcopy(new), budget()) == once


@settings(max_examples=drawn(100))
@given(VALUES, st.lists(st.tuples(PATHS, st.one_of(VALUES.map(encode_json).map(bytes.decode), st.text())), max_size=3))
def test_any_object_and_any_customizer_give_an_object_or_the_line_that_is_wrong(
    value: Any, rows: list[tuple[str, str]]
) -> None:
    metadata = {"name": "n", "annotations": {EXPAND: "true", "a": "%(a) %%"}}
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": value}
    replacements = [{"path": path, "value": text} for path, text in rows]
    rules = {"metadata": {"name": "c", "namespace": "s", "annotations": {EXPAND: "true"}}, "replacements": replacements}
    try:
        found = customized(copy.deepcopy(obj), rules, {"a": "b"}).obj
    except CustomizationError as error:
        assert str(error).startswith("Customizer s/c: replacements[")
    else:
        kept = {"apiVersion": "v1", "kind": "ConfigMap"}
        assert kept.items() <= found.items()
        assert found["metadata"]["name"] == "n"
        encode_json(found)


@settings(max_examples=drawn(100))
@given(st.text(alphabet="%()ab", max_size=20))
def test_a_text_is_expanded_as_a_reading_from_left_to_right_says(text: str) -> None:
    metadata = {"name": "n", "annotations": {EXPAND: "true"}}
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"k": text}}
    assert customized(obj, None, {"a": "%", "ab": ""}).obj["data"]["k"] == read(text)


def read(text: str) -> str:
    """Written from the rule alone."""
    if not text:
        return ""
    if text.startswith("%%"):
        return "%" + read(text[2:])
    if text.startswith("%(") and ")" in text:
        name, _, rest = text[2:].partition(")")
        return {"a": "%", "ab": ""}.get(name, f"%({name})") + read(rest)
    return text[0] + read(text[1:])
