"""Copies of objects that handlers may change: deep except for managedFields, which are never changed in place."""

from __future__ import annotations

from typing import Any

from atoll.machinery.meta.objects import fresh

ENTRIES = [{"manager": "m", "operation": "Update", "fieldsV1": {"f:data": {"f:a": {}}}}]


def given() -> dict[str, Any]:
    metadata = {"name": "n", "labels": {"a": "b"}, "managedFields": ENTRIES}
    return {"metadata": metadata, "spec": {"list": [{"deep": [1, 2.5, True, None, 2**62]}]}}


def test_a_fresh_object_is_equal_and_shares_nothing_that_is_changed() -> None:
    obj = given()
    copy = fresh(obj)
    assert copy == given()
    copy["metadata"]["labels"]["a"] = "c"
    copy["spec"]["list"][0]["deep"].append(3)
    copy["metadata"]["name"] = "other"
    assert obj == given()


def test_managed_fields_are_shared() -> None:
    copy = fresh(given())
    assert copy["metadata"]["managedFields"] is ENTRIES
    del copy["metadata"]["managedFields"]
    assert given()["metadata"]["managedFields"] == ENTRIES


def test_an_object_without_managed_fields_is_copied_whole() -> None:
    obj = {"metadata": {"name": "n"}, "data": {"a": "b"}}
    copy = fresh(obj)
    assert copy == obj and copy["data"] is not obj["data"] and "managedFields" not in copy["metadata"]
