"""JSON patch and merge patch against the RFCs: a second, slow implementation of each is the reference.

The reference of JSON patch takes a field that an existing object lacks for null, as Kubernetes does.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.machinery.meta.equality import same
from atoll.machinery.patch.errors import PatchDoesNotApply
from atoll.machinery.patch.json_patch import apply_json_patch
from atoll.machinery.patch.merge_patch import merge_patch
from harness.seeds import drawn

_names = st.sampled_from(["a", "b", "0", "~", "/", ""])
_values = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 2) | st.sampled_from(["x", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=3),
    max_leaves=6,
)
_objects = st.dictionaries(_names, _values, max_size=3)
_tokens = st.lists(_names | st.sampled_from(["1", "2", "-", "01"]), min_size=1, max_size=3)
_pointers = _tokens.map(lambda tokens: "".join("/" + t.replace("~", "~0").replace("/", "~1") for t in tokens))
_operations = st.lists(
    st.one_of(
        st.fixed_dictionaries({"op": st.sampled_from(["add", "replace", "test"]), "path": _pointers, "value": _values}),
        st.fixed_dictionaries({"op": st.just("remove"), "path": _pointers}),
        st.fixed_dictionaries({"op": st.sampled_from(["move", "copy"]), "path": _pointers, "from": _pointers}),
    ),
    max_size=4,
)


class _Refused(Exception):
    """The RFC requires an error."""


def _tokens_of(pointer: str) -> list[str]:
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:]]


def _index(token: str, size: int) -> int:
    if not token.isdigit() or (len(token) > 1 and token[0] == "0") or int(token) >= size:
        raise _Refused
    return int(token)


def _get(document: Any, pointer: str) -> Any:
    for token in _tokens_of(pointer):
        if isinstance(document, dict) and token in document:
            document = document[token]
        elif isinstance(document, list):
            document = document[_index(token, len(document))]
        else:
            raise _Refused
    return document


def _parent(document: Any, pointer: str) -> tuple[Any, str]:
    head, _, _ = pointer.rpartition("/")
    return _get(document, head), _tokens_of(pointer)[-1]


def _add(document: Any, pointer: str, value: Any) -> None:
    parent, token = _parent(document, pointer)
    if isinstance(parent, dict):
        parent[token] = value
    elif isinstance(parent, list):
        parent.insert(len(parent) if token == "-" else _index(token, len(parent) + 1), value)
    else:
        raise _Refused


def _remove(document: Any, pointer: str) -> Any:
    found = _get(document, pointer)
    parent, token = _parent(document, pointer)
    del parent[token if isinstance(parent, dict) else int(token)]
    return found


def _field(document: Any, pointer: str) -> Any:
    """The value at a pointer; None for a field that its object lacks, where the RFC requires an error."""
    parent, token = _parent(document, pointer)
    return parent.get(token) if isinstance(parent, dict) else _get(document, pointer)


def _apply(document: Any, operation: Any) -> None:
    op, path = operation["op"], operation["path"]
    if op == "add":
        _add(document, path, copy.deepcopy(operation["value"]))
    elif op == "remove":
        _remove(document, path)
    elif op == "replace":
        _field(document, path)
        parent, token = _parent(document, path)
        parent[token if isinstance(parent, dict) else int(token)] = copy.deepcopy(operation["value"])
    elif op == "move":
        if path.startswith(operation["from"] + "/"):
            raise _Refused
        _add(document, path, _remove(document, operation["from"]))
    elif op == "copy":
        _add(document, path, copy.deepcopy(_field(document, operation["from"])))
    elif not same(_field(document, path), operation["value"]):
        raise _Refused


def _reference(document: Any, operations: Any) -> Any:
    document = copy.deepcopy(document)
    for operation in operations:
        _apply(document, operation)
    return document


@settings(max_examples=drawn(400), deadline=None)
@given(_objects, _operations)
def test_a_json_patch_does_what_the_rfc_says_or_is_refused_where_it_does(document: Any, operations: Any) -> None:
    try:
        wanted = _reference(document, operations)
    except _Refused:
        with pytest.raises(PatchDoesNotApply):
            apply_json_patch(document, operations)
    else:
        assert same(apply_json_patch(document, operations), wanted)


@settings(deadline=None)
@given(_objects, _names, _values)
def test_an_operation_and_its_inverse_cancel(document: Any, name: str, value: Any) -> None:
    pointer = "/" + name.replace("~", "~0").replace("/", "~1")
    if name in document:
        there = [{"op": "replace", "path": pointer, "value": value}]
        back = [{"op": "replace", "path": pointer, "value": document[name]}]
    else:
        there, back = [{"op": "add", "path": pointer, "value": value}], [{"op": "remove", "path": pointer}]
    assert same(apply_json_patch(document, [*there, *back]), document)


@settings(deadline=None)
@given(_objects, _operations, _operations)
def test_two_patches_in_a_row_are_one_patch_of_both(document: Any, first: Any, second: Any) -> None:
    try:
        once = apply_json_patch(apply_json_patch(document, first), second)
    except PatchDoesNotApply:
        with pytest.raises(PatchDoesNotApply):
            apply_json_patch(document, [*first, *second])
    else:
        assert same(apply_json_patch(document, [*first, *second]), once)


def _merged(target: Any, patch: Any) -> Any:
    """The pseudocode of RFC 7386, section 2."""
    if not isinstance(patch, dict):
        return patch
    target = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            target.pop(name, None)
        else:
            target[name] = _merged(target.get(name), value)
    return target


@settings(max_examples=drawn(300), deadline=None)
@given(_objects, _objects)
def test_a_merge_patch_does_what_the_rfc_says(document: Any, patch: Any) -> None:
    assert json.dumps(merge_patch(document, patch), sort_keys=True) == json.dumps(
        _merged(document, patch), sort_keys=True
    )


@settings(deadline=None)
@given(_objects, _objects, _objects)
def test_merge_patches_of_different_fields_commute(document: Any, first: Any, second: Any) -> None:
    second = {name: value for name, value in second.items() if name not in first}
    one = merge_patch(merge_patch(document, first), second)
    other = merge_patch(merge_patch(document, second), first)
    assert same(one, other)


@settings(deadline=None)
@given(_objects)
def test_an_empty_merge_patch_changes_nothing_and_nulls_take_all_away(document: Any) -> None:
    assert same(merge_patch(document, {}), document)
    assert merge_patch(document, dict.fromkeys(document)) == {}
