"""Checks of Kubernetes' kinds: valid objects pass, and planted mistakes are the errors of Kubernetes' own code."""

from __future__ import annotations

import copy
import itertools
import json
import subprocess
import time
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from atoll.machinery.process.time_slicing import Stopped, try_on_loop
from contract.kinds.validation.cases import Case, copied, drawn_case, kind_of, our_errors, single_cases, valid_cases
from harness.clients.go_programs import BUILD_TIMEOUT_S, program
from harness.data.manifests import documents
from harness.seeds import drawn, seed_of_run

DRAWN, TIMEOUT_S = 4000, 240.0
_FIELDS = 90
_DIFFERENCES = Path(__file__).with_name("validation") / "differences.json"
_DIGESTS = _DIFFERENCES.with_name("digests.json")
_OTHER_VALUES: tuple[Any, ...] = ("x", 7, [], [7], [[]], None, True, {"a": 7}, {"name": {}})


def test_valid_objects_have_no_errors() -> None:
    for case in valid_cases():
        assert our_errors(case) == [], case.name


def test_a_real_application_has_no_errors(boutique: Path) -> None:
    checked = 0
    for obj in documents(boutique):
        if obj["kind"] == "ServiceAccount":
            continue
        obj["metadata"]["namespace"] = "default"
        assert our_errors(Case(obj["metadata"]["name"], obj)) == [], obj
        checked += 1
    assert checked > 20


@pytest.mark.long
def test_a_value_of_another_type_is_left_to_the_schema() -> None:
    """Each field of each valid object in turn has a value of another type; no check raises.

    A run takes some of the fields, other ones each day.
    """
    values = itertools.cycle(_OTHER_VALUES)
    every = _FIELDS // drawn(drawn(_FIELDS))
    for case in valid_cases():
        kind = kind_of(case.object)
        paths = list(_paths(case.object))[seed_of_run(0) // 1000 % every :: every]
        for changed in _with_each_field(case.object, paths, values):
            kind.validate(changed)
            for check in (kind.validate_update, *kind.subresource_checks.values()):
                check(changed, case.object)
                check(case.object, changed)


def test_selectors_of_devices_are_compiled_in_slices_and_stored_ones_may_call_newer_functions() -> None:
    device_class = next(case.object for case in valid_cases() if case.name == "DeviceClass/gpus")
    device_class["spec"]["selectors"][0]["cel"]["expression"] = 'device.driver == "another.example.com"'
    with pytest.raises(Stopped):
        try_on_loop(lambda pause: kind_of(device_class).validate(device_class), 60.0)
    newer = copy.deepcopy(device_class)
    newer["spec"]["selectors"][0]["cel"]["expression"] = "[1].includes(1)"
    assert [error.field for error in our_errors(Case("", newer))] == ["spec.selectors[0].cel.expression"]
    stored = newer | {"metadata": newer["metadata"] | {"resourceVersion": "1"}}
    assert our_errors(Case("", stored, copy.deepcopy(stored))) == []


@pytest.mark.long
def test_errors_of_many_parts_do_not_repeat_all_of_them() -> None:
    """Thousands of claims, resources and containers: time and texts grow with the object, not with its square."""
    many = range(3000)
    limits = {f"hugepages-{index}Mi": "1Gi" for index in many}
    containers: list[Any] = [
        {"name": f"c{index}", "image": "a", "resources": {"limits": {"cpu": "1"}}} for index in many
    ]
    containers[0]["resources"]["claims"] = [{"name": f"other-{index}"} for index in many]
    claims = [{"name": f"claim-{index}", "resourceClaimName": "a"} for index in many]
    spec = {"containers": containers, "resources": {"limits": limits}, "resourceClaims": claims}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "default"}, "spec": spec}
    kind = kind_of(pod)
    began_s = time.process_time()
    errors = kind.validate(pod)
    assert time.process_time() - began_s < 5.0
    assert len(errors) > len(many)
    assert sum(len(error.detail) for error in errors) < len(many) * 1000


def test_each_mistake_has_the_errors_that_kubernetes_own_code_found() -> None:
    """A digest for each object and verb; the comparison in the long tier says which mistake differs."""
    found: dict[str, list[str]] = {}
    for case in single_cases():
        if case.name not in _listed():
            errors = sorted({f"{error.type} {error.field}" for error in our_errors(case)})
            found.setdefault(" ".join(case.name.split(" ")[:2]), []).append(f"{case.name} {errors}")
    digests = {name: sha256("\n".join(lines).encode()).hexdigest()[:16] for name, lines in found.items()}
    assert digests == json.loads(_DIGESTS.read_text())


@pytest.mark.long
@pytest.mark.timeout(int(BUILD_TIMEOUT_S) + 300)
def test_kubernetes_own_code_finds_the_same_errors() -> None:
    """Valid objects, each mistake for itself, and two at once. A listed difference that has gone fails too."""
    listed = _listed()
    cases = [*valid_cases(), *single_cases()]
    for case in filter(None, map(drawn_case, range(DRAWN))):
        if not any(part in listed for part in case.parts):
            cases.append(case)
    done = subprocess.run(
        [str(program("validation", "conformance"))],
        input="".join(f"{case.request()}\n" for case in cases),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(cases)
    different = dict[str, str]()
    for case, answer in zip(cases, answers, strict=True):
        ours = {(error.type, error.field) for error in our_errors(case)}
        theirs = {(error["type"], error["field"]) for error in answer["errors"] or ()}
        if "failure" in answer or ours != theirs:
            different[case.name] = f"ours: {sorted(ours - theirs)}, theirs: {sorted(theirs - ours)} {answer}"
    assert {name: text for name, text in different.items() if name not in listed} == {}
    assert listed.keys() - different.keys() == set()


@pytest.mark.long
def test_listed_differences_have_a_reason_and_are_few() -> None:
    listed = _listed()
    assert all(listed.values())
    assert len(listed) <= len(list(single_cases())) // 20


@cache
def _listed() -> dict[str, str]:
    """The reason of each write whose errors differ."""
    found = json.loads(_DIFFERENCES.read_text())
    return {name: entry["reason"] for entry in found for name in entry["writes"]}


def _with_each_field(root: Any, paths: Iterable[tuple[Any, ...]], values: Iterator[Any]) -> Iterator[Any]:
    """Yield copies of an object in which one field has another value."""
    for path in paths:
        made = copied(root)
        parent = made
        for step in path[:-1]:
            parent = parent[step]
        parent[path[-1]] = copied(next(values))
        yield made


def _paths(part: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The fields outside of the metadata."""
    for key in part if isinstance(part, dict) else range(len(part)):
        if not at and key in ("apiVersion", "kind", "metadata"):
            continue
        yield (*at, key)
        if isinstance(part[key], dict | list):
            yield from _paths(part[key], (*at, key))
