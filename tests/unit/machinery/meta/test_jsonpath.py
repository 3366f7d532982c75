from __future__ import annotations

from typing import Any

import pytest

from atoll.machinery.meta.jsonpath import CACHE_SIZE, MAX_FILTERS, JsonPathError, compile_path, first

OBJ = {
    "metadata": {"name": "a", "labels": {"a.b/c": "v", "region": "eu", "it's": "q"}, "annotations": {"a\\b": "x"}},
    "spec": {"replicas": 0, "list": [1, 2, 3], "flag": False, "empty": "", "nothing": None},
    "status": {
        "conditions": [
            {"type": "Synced", "status": "False", "n": 1},
            {"type": "Ready", "status": "True", "n": 2, "ok": True},
            {"type": "Last", "n": 3.5, "list": [{"x": 1}, {"x": 2}]},
        ]
    },
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".metadata.name", ["a"]),
        ("{.metadata.name}", ["a"]),
        ("$.metadata.name", ["a"]),
        ("{ .metadata.name }", ["a"]),
        ("metadata.name", ["a"]),
        (".metadata.labels['region']", ["eu"]),
        ('.metadata.labels["a.b/c"]', ["v"]),
        (".metadata.labels.a\\.b/c", ["v"]),
        (".metadata.labels['it\\'s']", ["q"]),
        (".metadata.annotations['a\\\\b']", ["x"]),
        (".metadata['name','missing']", ["a"]),
        (".spec.replicas", [0]),
        (".spec.flag", [False]),
        (".spec.nothing", [None]),
        (".spec.missing", []),
        (".spec.replicas.below", []),
        (".spec.list[0]", [1]),
        (".spec.list[-1]", [3]),
        (".spec.list[-3]", [1]),
        (".spec.list[3]", []),
        (".spec.list[-4]", []),
        (".spec.list[*]", [1, 2, 3]),
        (".spec.list[0,2]", [1, 3]),
        (".spec.list[1:]", [2, 3]),
        (".spec.list[:-1]", [1, 2]),
        (".spec.list[0:3:2]", [1, 3]),
        (".spec.list[:]", [1, 2, 3]),
        (".metadata.labels.*", ["v", "eu", "q"]),
        (".metadata.name[0]", []),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".status.conditions[?(@.type == 'Ready')].status", ["True"]),
        ('.status.conditions[?(@.type!="Ready")].type', ["Synced", "Last"]),
        (".status.conditions[?(@.n>1)].type", ["Ready", "Last"]),
        (".status.conditions[?(@.n>=3.5)].type", ["Last"]),
        (".status.conditions[?(@.n<=2)].type", ["Synced", "Ready"]),
        (".status.conditions[?(@.status)].type", ["Synced", "Ready"]),
        (".status.conditions[?(@.ok==true)].type", ["Ready"]),
        (".status.conditions[?(@.n==true)].type", []),
        ('.status.conditions[?(@.n<"a")].type', []),
        (".status.conditions[?(@.list[?(@.x==2)])].type", ["Last"]),
        ('.status.conditions[?("Ready"==@.type)].n', [2]),
        ("..x", [1, 2]),
        ("..region", ["eu"]),
        (".", [OBJ]),
    ],
)
def test_a_path_finds_its_values_in_document_order(path: str, found: list[Any]) -> None:
    assert compile_path(path).find(OBJ) == found
    assert first(path, OBJ) == (found[0] if found else None)


@pytest.mark.parametrize(
    "path",
    [
        ".a[",
        ".a]",
        ".a[b",
        ".a['b]",
        ".a[?(]",
        ".a[?(@.b==)]",
        ".a[?(1)]",
        ".a b",
        ".a[::0]",
        ".a..",
        ".a[?(@.b=='c')",
        ".a[1,]",
        ".a{",
        "." + "a" * 5000,
        ".a" + "[?(@.a" * 50,
        "(.a)",
    ],
)
def test_what_is_no_path_is_refused_and_finds_nothing(path: str) -> None:
    with pytest.raises(JsonPathError):
        compile_path(path)
    assert first(path, OBJ) is None


def test_filters_nest_only_so_deep() -> None:
    assert compile_path(".a" + "[?(@.a" * MAX_FILTERS + ")]" * MAX_FILTERS).find({}) == []
    with pytest.raises(JsonPathError, match="nested too deep"):
        compile_path(".a" + "[?(@.a" * (MAX_FILTERS + 1) + ")]" * (MAX_FILTERS + 1))


@pytest.mark.parametrize("obj", [None, 1, "x", [], {}, {"status": 1}, {"status": {"conditions": {}}}])
def test_objects_of_any_shape_can_be_read(obj: Any) -> None:
    assert first('.status.conditions[?(@.type=="Ready")].status', obj) is None


def test_paths_are_compiled_once_and_the_cache_is_bounded() -> None:
    kept = compile_path(".kept.once")
    assert compile_path(".kept.once") is kept
    for index in range(CACHE_SIZE):
        compile_path(f".other{index}")
    assert compile_path(".kept.once") is not kept
