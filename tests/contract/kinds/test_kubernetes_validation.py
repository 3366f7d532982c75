"""Checks of Kubernetes' kinds: valid objects pass, and planted mistakes are the errors of Kubernetes' own code."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from contract.kinds.validation.cases import Case, kind_of, our_errors, valid_cases
from harness.data.manifests import documents

_OTHER_VALUES: tuple[Any, ...] = ("x", 7, [], [7], [[]], None, True, {"a": 7}, {"name": {}})


def test_valid_objects_have_no_errors() -> None:
    for case in valid_cases():
        assert our_errors(case) == [], case.name


def test_a_real_application_has_no_errors(manifests: Path) -> None:
    checked = 0
    for obj in documents(manifests / "online-boutique" / "kubernetes-manifests.yaml"):
        if obj["kind"] == "ServiceAccount":
            continue
        obj["metadata"]["namespace"] = "default"
        assert our_errors(Case(obj["metadata"]["name"], obj)) == [], obj
        checked += 1
    assert checked > 20


def test_a_value_of_another_type_is_left_to_the_schema() -> None:
    """Each field of each valid object in turn has a value of another type; no check raises."""
    values = itertools.cycle(_OTHER_VALUES)
    for case in valid_cases():
        kind = kind_of(case.object)
        for changed in _with_each_field(case.object, values):
            kind.validate(changed)
            for check in (kind.validate_update, *kind.subresource_checks.values()):
                check(changed, case.object)
                check(case.object, changed)


def _with_each_field(root: Any, values: Iterator[Any]) -> Iterator[Any]:
    """Yield copies of an object in which one field outside of its metadata has another value."""
    for path in _paths(root):
        made = copy.deepcopy(root)
        parent = made
        for step in path[:-1]:
            parent = parent[step]
        parent[path[-1]] = copy.deepcopy(next(values))
        yield made


def _paths(part: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key in part if isinstance(part, dict) else range(len(part)):
        if not at and key in ("apiVersion", "kind", "metadata"):
            continue
        yield (*at, key)
        if isinstance(part[key], dict | list):
            yield from _paths(part[key], (*at, key))
