"""Merging what several workspaces give to one copy, part by part."""

from __future__ import annotations

from typing import Any

from atoll.machinery.edge.merging import Conflict, Merged, Source, merge
from atoll.machinery.edge.names import PROJECTED, SOURCES
from atoll.machinery.meta.objects import Object


def source(cluster: str, revision: int, metadata: Object | None = None, **parts: Any) -> Source:
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "n", **(metadata or {})}, **parts}
    return Source(cluster, obj, revision)


def both(a: Source, b: Source) -> Merged:
    found = merge([a, b])
    assert merge([b, a]) == found
    return found


def test_one_source_is_itself_and_is_named() -> None:
    metadata = {"labels": {"l": "1"}, "finalizers": ["b/f", "a/f"], "ownerReferences": [{"uid": "2"}, {"uid": "1"}]}
    content = {"spec": {"x": [1]}, "data": {"k": "v"}, "immutable": False, "rules": None}
    found = merge([source("w", 7, metadata, **content)])
    assert found.conflicts == ()
    wanted = {**metadata, "name": "n", "labels": {"l": "1", PROJECTED: "yes"}, "annotations": {SOURCES: "w"}}
    assert found.obj.pop("metadata") == wanted
    assert found.obj == {"apiVersion": "v1", "kind": "ConfigMap", **content}


def test_labels_and_annotations_are_merged_by_key_and_the_last_change_counts() -> None:
    for field in ("labels", "annotations"):
        a = source("w1", 1, {field: {"a": "1", "same": "x", "both": "old"}})
        b = source("w2", 2, {field: {"b": "2", "same": "x", "both": "new"}})
        found = both(a, b)
        merged = found.obj["metadata"][field]
        assert {"a": "1", "b": "2", "same": "x", "both": "new"}.items() <= merged.items()
        assert found.conflicts == (Conflict(f"metadata.{field}[both]", "w2"),)
    assert found.obj["metadata"]["annotations"][SOURCES] == "w1,w2"


def test_owners_are_merged_by_their_names_and_finalizers_are_all_of_them() -> None:
    owner = {"apiVersion": "v1", "kind": "A", "name": "o", "uid": "1"}
    a = source("w1", 1, {"ownerReferences": [owner], "finalizers": ["x/a", "x/b"]})
    owners = [{**owner, "controller": True}, {**owner, "name": "p"}]
    b = source("w2", 2, {"ownerReferences": owners, "finalizers": ["x/b"]})
    found = both(a, b)
    rows = sorted(found.obj["metadata"]["ownerReferences"], key=lambda each: each["name"])
    assert rows == owners
    assert found.obj["metadata"]["finalizers"] == ["x/a", "x/b"]
    assert found.conflicts == (Conflict("metadata.ownerReferences[v1/A/o]", "w2"),)


def test_a_spec_is_equal_or_that_of_the_last_change_and_a_missing_one_is_null() -> None:
    assert both(source("w1", 1, spec={"a": 1}), source("w2", 2, spec={"a": 1})).conflicts == ()
    found = both(source("w1", 1, spec={"a": 1, "b": 2}), source("w2", 2, spec={"a": 1}))
    assert (found.obj["spec"], found.conflicts) == ({"a": 1}, (Conflict("spec", "w2"),))
    found = both(source("w1", 1, spec={"a": True}), source("w2", 2, spec={"a": 1}))
    assert found.conflicts, "true is not 1"
    found = both(source("w1", 1, spec={"a": 1}), source("w2", 2))
    assert ("spec" in found.obj, found.conflicts) == (False, (Conflict("spec", "w2"),))
    assert both(source("w1", 1, spec=None), source("w2", 2)).conflicts == ()


def test_other_parts_are_merged_by_key_if_they_are_maps_and_are_one_thing_otherwise() -> None:
    found = both(source("w1", 1, data={"a": "1", "c": "1"}), source("w2", 2, data={"b": "2", "c": "2"}))
    assert (found.obj["data"], found.conflicts) == ({"a": "1", "b": "2", "c": "2"}, (Conflict("data[c]", "w2"),))
    found = both(source("w1", 1, data={"a": "1"}), source("w2", 2, binaryData={"b": "eA=="}))
    assert (found.obj["data"], found.obj["binaryData"], found.conflicts) == ({"a": "1"}, {"b": "eA=="}, ())
    found = both(source("w1", 1, rules=[1]), source("w2", 2, rules=[2]))
    assert (found.obj["rules"], found.conflicts) == ([2], (Conflict("rules", "w2"),))
    found = both(source("w1", 1, x={"a": 1}), source("w2", 2, x=[1]))
    assert (found.obj["x"], found.conflicts) == ([1], (Conflict("x", "w2"),))
    found = both(source("w1", 1, immutable=True), source("w2", 2))
    assert ("immutable" in found.obj, found.conflicts) == (False, (Conflict("immutable", "w2"),))


def test_of_equal_revisions_the_first_workspace_by_name_counts() -> None:
    found = both(source("w2", 5, spec=2), source("w1", 5, spec=1))
    assert (found.obj["spec"], found.conflicts) == (1, (Conflict("spec", "w1"),))


def test_no_value_is_in_a_conflict() -> None:
    found = both(source("w1", 1, data={"key": "secret-1"}), source("w2", 2, data={"key": "secret-2"}))
    assert "secret" not in str(found.conflicts)
