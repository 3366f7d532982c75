"""Writes with planted mistakes: each mistake of the tables for itself, and two at once by number.

A table names mistakes by kind, or `Kind/name` for one valid object; `PodSpec` and `Controller` stand for all kinds with
a PodSpec of many fields, or a selector and a template.
"""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, TypeVar

import yaml

from atoll.machinery.kinds.kind import Kind
from atoll.machinery.kinds.kubernetes.schema_names import schema_names
from atoll.machinery.kinds.kubernetes.served_kinds import kinds_of_schema
from atoll.machinery.kinds.kubernetes.tables import components
from atoll.machinery.kinds.native_schemas import REF_PREFIX
from atoll.machinery.meta.status import FieldError

Object = dict[str, Any]
_T = TypeVar("_T")

_FOLDER = Path(__file__).parent
_STEP = re.compile(r"\[([^\]]+)\]|([^.\[\]]+)")
_STORED = {"resourceVersion": "1", "uid": "11111111-2222-4333-8444-555555555555", "generation": 1}
#: Where a kind has a PodSpec of many fields.
_POD_SPECS = {"Pod/pod": "spec.", "PodTemplate/template": "template.spec."}
_CONTROLLERS = ("Deployment", "ReplicaSet", "DaemonSet", "StatefulSet")


class Case(NamedTuple):
    """A write: a create without `old`, of the whole object without a subresource."""

    name: str
    object: Object
    old: Object | None = None
    subresource: str = ""
    #: The names of the writes with one of its mistakes each.
    parts: tuple[str, ...] = ()

    def request(self) -> str:
        """The write as the program of Kubernetes' own code reads it."""
        found: Object = {"object": self.object, "subresource": self.subresource}
        return json.dumps(found if self.old is None else found | {"old": self.old})


def copied(value: _T) -> _T:
    """A copy of JSON, several times faster than `copy.deepcopy` makes one."""
    found: _T = pickle.loads(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))
    return found


@cache
def _valid() -> dict[str, Object]:
    """The valid objects by kind and name."""
    found = {}
    for path in sorted(_FOLDER.glob("valid_*.yaml")):
        for obj in yaml.safe_load_all(path.read_text()):
            found[f"{obj['kind']}/{obj['metadata']['name']}"] = json.loads(json.dumps(obj))
    found["PodTemplate/template"]["template"]["spec"] = found["Pod/pod"]["spec"]
    return found


def valid_cases() -> list[Case]:
    """Creates without a mistake."""
    return [Case(name, _placed(obj)) for name, obj in _valid().items()]


@cache
def _mistakes() -> dict[str, dict[str, list[Object]]]:
    """The mistakes by valid object and verb."""
    found: dict[str, dict[str, list[Object]]] = {name: {} for name in _valid()}
    for path in sorted(_FOLDER.glob("mistakes_*.yaml")):
        for key, verbs in yaml.safe_load(path.read_text()).items():
            for name, planned in found.items():
                kind = name.partition("/")[0]
                prefix = _POD_SPECS.get(name) if key == "PodSpec" else ""
                stands_for = (key == "PodSpec" and prefix) or (key == "Controller" and kind in _CONTROLLERS)
                if key in (kind, name) or stands_for:
                    for verb, mistakes in verbs.items():
                        planted = [{f"{prefix}{path}": value for path, value in each.items()} for each in mistakes]
                        planned.setdefault(verb, []).extend(planted)
    return found


def _placed(obj: Object) -> Object:
    """A copy in the namespace of the cases, as far as it has one."""
    made = copied(obj)
    if kind_of(obj).namespaced:
        made["metadata"]["namespace"] = "default"
    return made


def plant(obj: Object, path: str, value: Any, *, is_written: bool = False) -> bool:
    """Set a field, whose parents are made; whether it has a place. None drops it, unless the null is written."""
    steps = [int(index) if index.isdigit() else index or name for index, name in _STEP.findall(path)]
    for step in steps[:-1]:
        if isinstance(step, int) and not (isinstance(obj, list) and step < len(obj)):
            return False
        if not isinstance(step, int) and obj.get(step) is None:
            obj[step] = {}
        obj = obj[step]
    last = steps[-1]
    if isinstance(last, int) and not (isinstance(obj, list) and last < len(obj)):
        return False
    if not isinstance(obj, dict | list):
        return False
    if value is None and isinstance(obj, dict) and not is_written:
        obj.pop(last, None)
    else:
        obj[last] = copied(value)
    return True


def _case(name: str, verb: str, mistakes: list[Object]) -> Case | None:
    obj = _placed(_valid()[name])
    old = None
    if verb != "create":
        obj["metadata"] |= _STORED
        old = copied(obj)
    for mistake in mistakes:
        if not all(plant(obj, path, value) for path, value in mistake.items()):
            return None
    names = tuple(f"{name} {verb} {json.dumps(mistake, sort_keys=True)}" for mistake in mistakes)
    return Case(" and ".join(names), obj, old, "" if verb in ("create", "update") else verb, names)


def required_paths(source: Object, part: Any, at: str = "") -> Iterator[str]:
    """The paths of the fields in a part of an object which its published schema requires."""
    if reference := source.get("$ref") or next((each["$ref"] for each in source.get("allOf", ())), ""):
        source = components()[reference.removeprefix(REF_PREFIX)]
    if isinstance(part, list):
        for index, item in enumerate(part):
            yield from required_paths(source.get("items", {}), item, f"{at}[{index}]")
    elif isinstance(part, dict):
        for field in source.get("properties", {}).keys() & part.keys() - {"metadata"}:
            path = f"{at}.{field}" if at else field
            if field in source.get("required", ()):
                yield path
            yield from required_paths(source["properties"][field], part[field], path)


def left_out_cases() -> Iterator[Case]:
    """Each field that the published schema requires, left out of each valid object."""
    for name, obj in _valid().items():
        schema = kind_of(obj).schema
        assert schema is not None
        for path in sorted(required_paths(schema.source, obj)):
            if case := _case(name, "create", [{path: None}]):
                yield case


def single_cases() -> Iterator[Case]:
    """Each mistake in each object that has a place for it, and each required field left out."""
    found = {case.name: case for case in (*_planted_cases(), *left_out_cases())}
    yield from found.values()


def _planted_cases() -> Iterator[Case]:
    for name, verbs in _mistakes().items():
        for verb, mistakes in verbs.items():
            for mistake in mistakes:
                if case := _case(name, verb, [mistake]):
                    yield case


def drawn_case(number: int) -> Case | None:
    """Two mistakes in one object by number; none where they have no place together."""
    rng = Random(number)
    places = [(name, verb) for name, verbs in _mistakes().items() for verb in verbs]
    weights = [len(_mistakes()[name][verb]) for name, verb in places]
    name, verb = rng.choices(places, weights)[0]
    mistakes = _mistakes()[name][verb]
    return _case(name, verb, rng.sample(mistakes, min(2, len(mistakes))))


@cache
def _kinds() -> dict[tuple[str, str], Kind]:
    found = (kind for name in schema_names().values() for kind in kinds_of_schema(name, "f00d"))
    return {(kind.api_version, kind.kind): kind for kind in found}


def kind_of(obj: Object) -> Kind:
    """The kind of an object."""
    return _kinds()[obj["apiVersion"], obj["kind"]]


def _normal(obj: Object) -> Object:
    made = copied(obj)
    schema = kind_of(obj).schema
    assert schema is not None
    schema.normalize(made)
    return made


def our_errors(case: Case) -> list[FieldError]:
    """What the schema and the checks of the kind find, as a write runs them."""
    kind, obj = kind_of(case.object), copied(case.object)
    assert kind.schema is not None
    if case.old is None:
        kind.prepare_create(obj)
        obj = _normal(obj)
        return [*kind.schema.validate(obj), *kind.validate(obj)]
    old = copied(case.old)
    kind.prepare_create(old)
    old = _normal(old)
    if not case.subresource:
        kind.prepare_update(obj, old)
        obj = _normal(obj)
        return [*kind.schema.validate(obj, old), *kind.validate_update(obj, old)]
    if (merge := kind.merges.get(case.subresource)) is not None:
        obj = _normal(merge(obj, old))
    else:
        obj = _normal({**old, "status": obj["status"]})
    return [*kind.schema.validate(obj, old), *kind.subresource_checks[case.subresource](obj, old)]
