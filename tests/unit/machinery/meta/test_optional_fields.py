"""Accessors of optional fields: an absent and a null field read alike, and a present one is the object's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from atoll.machinery.meta.objects import (
    Object,
    annotations_of,
    conditions_of,
    finalizers_of,
    labels_of,
    owner_references_of,
    spec_of,
    status_of,
)

Accessor = Callable[[Object], Any]
OF_OBJECT: list[tuple[Accessor, str]] = [(spec_of, "spec"), (status_of, "status")]
OF_METADATA: list[tuple[Accessor, str]] = [
    (labels_of, "labels"),
    (annotations_of, "annotations"),
    (finalizers_of, "finalizers"),
    (owner_references_of, "ownerReferences"),
]


@pytest.mark.parametrize(("accessor", "name"), OF_OBJECT)
def test_a_field_of_the_object_is_empty_without_a_value(accessor: Accessor, name: str) -> None:
    value = {"a": 1}
    assert accessor({name: value}) is value
    assert accessor({}) == accessor({name: None}) == {}


@pytest.mark.parametrize(("accessor", "name"), OF_METADATA)
def test_a_field_of_the_metadata_is_empty_without_a_value(accessor: Accessor, name: str) -> None:
    value = ["a"]
    assert accessor({"metadata": {name: value}}) is value
    assert not accessor({"metadata": {}}) and not accessor({"metadata": {name: None}})


def test_conditions_are_empty_without_a_status() -> None:
    conditions = [{"type": "Ready", "status": "True"}]
    assert conditions_of({"status": {"conditions": conditions}}) is conditions
    assert conditions_of({}) == conditions_of({"status": None}) == conditions_of({"status": {"conditions": None}}) == []


def test_two_empty_values_are_not_shared() -> None:
    obj: Object = {"metadata": {}}
    labels_of(obj)["a"] = "b"
    spec_of(obj)["a"] = "b"
    assert (labels_of(obj), spec_of(obj), obj) == ({}, {}, {"metadata": {}})
