"""JSON patch against RFC 6902 and the limits Kubernetes adds."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from atoll.machinery.patch import json_patch
from atoll.machinery.patch.errors import (
    REJECTED,
    FailedTest,
    PatchDoesNotApply,
    TooManyMoves,
    TooManyOperations,
    UndecodablePatch,
)
from atoll.machinery.patch.json_patch import apply_json_patch, unknown_operation_fields

DOC: dict[str, Any] = {"a": {"b": [1, 2, 3]}, "c": "x", "": {"~": 1, "/": 2}, "null": None}

APPLIES: list[tuple[str, list[Any], Any]] = [
    ("add a field", [{"op": "add", "path": "/d", "value": 1}], {**DOC, "d": 1}),
    ("add replaces", [{"op": "add", "path": "/c", "value": "y"}], {**DOC, "c": "y"}),
    ("add inserts", [{"op": "add", "path": "/a/b/1", "value": 9}], {**DOC, "a": {"b": [1, 9, 2, 3]}}),
    ("add at the end", [{"op": "add", "path": "/a/b/3", "value": 9}], {**DOC, "a": {"b": [1, 2, 3, 9]}}),
    ("add appends", [{"op": "add", "path": "/a/b/-", "value": 9}], {**DOC, "a": {"b": [1, 2, 3, 9]}}),
    ("add null", [{"op": "add", "path": "/d", "value": None}], {**DOC, "d": None}),
    ("replace the document", [{"op": "replace", "path": "", "value": {"z": 1}}], {"z": 1}),
    ("add the document", [{"op": "add", "path": "", "value": {"z": 1}}], {"z": 1}),
    ("remove an item", [{"op": "remove", "path": "/a/b/0"}], {**DOC, "a": {"b": [2, 3]}}),
    ("replace an item", [{"op": "replace", "path": "/a/b/2", "value": {}}], {**DOC, "a": {"b": [1, 2, {}]}}),
    (
        "escapes",
        [{"op": "replace", "path": "//~0", "value": 5}, {"op": "replace", "path": "//~1", "value": 6}],
        {**DOC, "": {"~": 5, "/": 6}},
    ),
    ("~01 is ~1, not a slash", [{"op": "add", "path": "/~01", "value": 1}], {**DOC, "~1": 1}),
    (
        "move",
        [{"op": "move", "from": "/c", "path": "/a/c"}],
        {"a": {"b": [1, 2, 3], "c": "x"}, "": DOC[""], "null": None},
    ),
    ("move in a list", [{"op": "move", "from": "/a/b/0", "path": "/a/b/2"}], {**DOC, "a": {"b": [2, 3, 1]}}),
    ("move onto itself", [{"op": "move", "from": "/c", "path": "/c"}], DOC),
    ("copy", [{"op": "copy", "from": "/a", "path": "/z"}], {**DOC, "z": {"b": [1, 2, 3]}}),
    (
        "a copy is apart",
        [{"op": "copy", "from": "/a", "path": "/z"}, {"op": "remove", "path": "/z/b/0"}],
        {**DOC, "z": {"b": [2, 3]}},
    ),
    ("test", [{"op": "test", "path": "/a", "value": {"b": [1, 2, 3]}}], DOC),
    ("test numbers by value", [{"op": "test", "path": "/a/b/0", "value": 1.0}], DOC),
    ("test numbers by value in a list", [{"op": "test", "path": "/a/b", "value": [1.0, 2, 3]}], DOC),
    ("test null where nothing is", [{"op": "test", "path": "/nothing", "value": None}], DOC),
    ("replace where nothing is", [{"op": "replace", "path": "/x", "value": 1}], {**DOC, "x": 1}),
    ("copy where nothing is", [{"op": "copy", "from": "/x", "path": "/y"}], {**DOC, "y": None}),
    ("copy into nothing", [{"op": "copy", "from": "/c", "path": "/a/y"}], {**DOC, "a": {**DOC["a"], "y": DOC["c"]}}),
    (
        "several",
        [
            {"op": "add", "path": "/n", "value": {}},
            {"op": "add", "path": "/n/m", "value": []},
            {"op": "add", "path": "/n/m/-", "value": 1},
        ],
        {**DOC, "n": {"m": [1]}},
    ),
]

REFUSED: list[tuple[str, list[Any]]] = [
    ("remove of nothing", [{"op": "remove", "path": "/x"}]),
    ("remove of the document", [{"op": "remove", "path": ""}]),
    ("replace below nothing", [{"op": "replace", "path": "/x/y", "value": 1}]),
    ("replace beyond the end", [{"op": "replace", "path": "/a/b/3", "value": 1}]),
    ("replace at the dash", [{"op": "replace", "path": "/a/b/-", "value": 1}]),
    ("add beyond the end", [{"op": "add", "path": "/a/b/4", "value": 1}]),
    ("add below nothing", [{"op": "add", "path": "/x/y", "value": 1}]),
    ("add into a scalar", [{"op": "add", "path": "/c/y", "value": 1}]),
    ("a leading zero", [{"op": "remove", "path": "/a/b/01"}]),
    ("a negative index", [{"op": "remove", "path": "/a/b/-1"}]),
    ("a huge index", [{"op": "remove", "path": "/a/b/" + "9" * 5000}]),
    ("a digit of another script", [{"op": "remove", "path": "/a/b/\u0661"}]),
    ("a path without slash", [{"op": "remove", "path": "c"}]),
    ("no path", [{"op": "remove"}]),
    ("no from", [{"op": "move", "path": "/x"}]),
    ("no value", [{"op": "add", "path": "/x"}]),
    ("move of nothing", [{"op": "move", "from": "/x", "path": "/y"}]),
    ("move into itself", [{"op": "move", "from": "/a", "path": "/a/b/0"}]),
    ("copy from below nothing", [{"op": "copy", "from": "/x/y", "path": "/y"}]),
    ("copy from beyond the end", [{"op": "copy", "from": "/a/b/3", "path": "/y"}]),
    ("copy below nothing", [{"op": "copy", "from": "/c", "path": "/x/y"}]),
    ("test below nothing", [{"op": "test", "path": "/x/y", "value": None}]),
    ("failed test", [{"op": "test", "path": "/c", "value": "y"}]),
    ("test of true as one", [{"op": "test", "path": "/a/b/0", "value": True}]),
    ("test of nothing", [{"op": "test", "path": "/x", "value": 1}]),
    ("unknown operation", [{"op": "frobnicate", "path": "/c"}]),
    ("no operation", [{"path": "/c"}]),
    ("a list as document", [{"op": "replace", "path": "", "value": []}]),
]


@pytest.mark.parametrize(("operations", "expected"), [case[1:] for case in APPLIES], ids=[c[0] for c in APPLIES])
def test_operations_apply_and_leave_document_and_patch_alone(operations: list[Any], expected: Any) -> None:
    document, patch = copy.deepcopy(DOC), copy.deepcopy(operations)
    assert apply_json_patch(document, patch) == expected
    assert (document, patch) == (DOC, operations)


@pytest.mark.parametrize("operations", [case[1] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_what_does_not_apply_is_a_422_without_its_reason(operations: list[Any]) -> None:
    document = copy.deepcopy(DOC)
    with pytest.raises(PatchDoesNotApply) as caught:
        apply_json_patch(document, operations)
    assert document == DOC
    status = caught.value.status()
    assert (status["code"], status["reason"], status["message"]) == (422, "Invalid", REJECTED)
    assert status["details"] == {}
    assert caught.value.detail


#: What Kubernetes says of a patch, which webhooks and policies report.
DETAILS: list[tuple[dict[str, Any], str]] = [
    (
        {"op": "add", "path": "/x/y", "value": 1},
        'add operation does not apply: doc is missing path: "/x/y": missing value',
    ),
    (
        {"op": "add", "path": "/a/b/x", "value": 1},
        "error in add for path: '/a/b/x': value was not a proper array index: 'x': "
        'strconv.Atoi: parsing "x": invalid syntax',
    ),
    (
        {"op": "add", "path": "/a/b/9", "value": 1},
        "error in add for path: '/a/b/9': Unable to access invalid index: 9: invalid index referenced",
    ),
    (
        {"op": "remove", "path": "/x"},
        "error in remove for path: '/x': Unable to remove nonexistent key: x: missing value",
    ),
    (
        {"op": "replace", "path": "/a/b/-", "value": 1},
        "replace operation does not apply: doc is missing key: /a/b/-: missing value",
    ),
    (
        {"op": "replace", "path": "/x/y", "value": 1},
        "replace operation does not apply: doc is missing path: /x/y: missing value",
    ),
    (
        {"op": "move", "from": "/x", "path": "/y"},
        "error in move for path: 'x': Unable to remove nonexistent key: x: missing value",
    ),
    (
        {"op": "copy", "from": "/x/y", "path": "/y"},
        "copy operation does not apply: doc is missing from path: /x/y: missing value",
    ),
    ({"op": "test", "path": "/c", "value": 1}, "testing value /c failed: test failed"),
    ({"op": "test", "path": "/x/y", "value": 1}, "test operation does not apply: is missing path: /x/y: missing value"),
    ({"op": "frobnicate", "path": "/c"}, "Unexpected kind: frobnicate"),
]


@pytest.mark.parametrize(("operation", "detail"), DETAILS, ids=lambda value: str(value)[:60])
def test_the_reason_is_told_in_the_words_of_kubernetes(operation: dict[str, Any], detail: str) -> None:
    with pytest.raises(PatchDoesNotApply) as caught:
        apply_json_patch(DOC, [operation])
    assert caught.value.detail == detail
    assert isinstance(caught.value, FailedTest) is detail.endswith("test failed")


@pytest.mark.parametrize(
    "operations", [{}, "x", [1], [{"op": 1}], [{"op": "add", "path": []}], [{"op": "move", "from": {}, "path": "/a"}]]
)
def test_what_is_no_patch_is_a_400(operations: Any) -> None:
    with pytest.raises(UndecodablePatch) as caught:
        apply_json_patch(DOC, operations)
    assert caught.value.code == 400


LENGTH = 100
#: An operation, and the number of items that it moves in a list of LENGTH items.
MOVES: list[tuple[dict[str, Any], int]] = [
    ({"op": "add", "path": "/l/0", "value": 1}, LENGTH),
    ({"op": "add", "path": "/l/99", "value": 1}, 1),
    ({"op": "add", "path": "/l/100", "value": 1}, 0),
    ({"op": "add", "path": "/l/-", "value": 1}, 0),
    ({"op": "remove", "path": "/l/0"}, LENGTH),
    ({"op": "remove", "path": "/l/99"}, 1),
    ({"op": "move", "from": "/l/0", "path": "/l/-"}, LENGTH),
    ({"op": "move", "from": "/l/99", "path": "/l/0"}, LENGTH),
    ({"op": "move", "from": "/s", "path": "/l/40"}, 60),
    ({"op": "copy", "from": "/s", "path": "/l/40"}, 60),
    ({"op": "copy", "from": "/l/40", "path": "/s"}, 0),
    ({"op": "replace", "path": "/l/0", "value": 2}, 0),
    ({"op": "test", "path": "/l/0", "value": 1}, 0),
]


@pytest.mark.parametrize(("operation", "moves"), MOVES, ids=lambda value: str(value)[:60])
def test_the_items_that_an_operation_moves_are_charged(
    operation: dict[str, Any], moves: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = {"l": [1] * LENGTH, "s": 1}
    monkeypatch.setattr(json_patch, "MAX_MOVED_ITEMS", moves)
    apply_json_patch(document, [operation])
    if not moves:
        return
    monkeypatch.setattr(json_patch, "MAX_MOVED_ITEMS", moves - 1)
    with pytest.raises(TooManyMoves) as caught:
        apply_json_patch(document, [operation])
    assert caught.value.status()["reason"] == "RequestEntityTooLarge"


def test_ten_thousand_operations_apply_and_one_more_is_a_413() -> None:
    operations = [{"op": "add", "path": "/a/b/0", "value": 0}] * json_patch.MAX_OPERATIONS
    assert len(apply_json_patch(DOC, operations)["a"]["b"]) == 10_003
    with pytest.raises(TooManyOperations) as caught:
        apply_json_patch(DOC, [*operations, operations[0]])
    assert caught.value.code == 413
    assert "The allowed maximum operations in a JSON patch is 10000, got 10001" in caught.value.message


def test_copies_of_copies_stop_at_three_mebibytes() -> None:
    document = {"a": ["x" * 1000]}
    doubling = [{"op": "copy", "from": "/a", "path": "/a/-"}] * 30
    with pytest.raises(PatchDoesNotApply, match="rejected") as caught:
        apply_json_patch(document, doubling)
    assert "accumulated size increase of copy" in caught.value.detail
    assert document == {"a": ["x" * 1000]}


def test_unknown_members_of_operations_are_told_by_path() -> None:
    operations = [{"op": "test", "path": "/a", "value": 1, "foo": 1}, {"op": "remove", "path": "/a"}, {"Op": "x"}]
    assert unknown_operation_fields(operations) == ["[0].foo", "[2].Op"]
    assert unknown_operation_fields({"no": "list"}) == []
