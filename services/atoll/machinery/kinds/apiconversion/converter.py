"""Conversion of objects between versions by the rules of an APIConversion.

`kinds.conversion` carries a Converter; the API server's conversion package runs it with a time limit. Two versions
without rules between them convert through the stored version. Fields without a counterpart in a version are preserved
in an annotation of the object. Invariant: conversion never changes metadata other than that annotation, and restores
only declared fields from it, whatever a client wrote into it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import msgspec

from atoll.machinery.kinds.apiconversion.paths import MISSING, Path, get, put, split
from atoll.machinery.kinds.apiconversion.rules import InvalidRules, Rule, Rules, VersionConversion
from atoll.machinery.meta.objects import Object, annotations_of, encode_json, fresh

Pause = Callable[[], None]
#: Annotation with the fields of a version, whose name is the suffix, without a counterpart in the object's version.
PRESERVED = "preserve.conversion.apis.kcp.io/"
#: Cost limits of one transformation and of all transformations of an object, in units of CEL's cost model.
CALL_LIMIT, OBJECT_LIMIT = 1_000_000, 10_000_000


class ConversionError(Exception):
    """The rules cannot convert an object; `str()` is the reason."""


class Converter:
    """The conversion of one definition. `storage` is the name of its stored version."""

    def __init__(self, spec: Object, schemas: Mapping[str, Object], storage: str) -> None:
        self._rules = Rules(spec, schemas)
        self._storage = storage

    def prepare(self, source: str, target: str, pause: Pause) -> None:
        """Compile the rules of the conversion between two apiVersions, so that `convert` only computes.

        Raises ConversionError for invalid rules, or the exception of `pause`.
        """
        at = _version(source)
        try:
            for step in self._version_path(at, _version(target)):
                if self._rules.has(at, step):
                    self._rules.conversion(at, step, pause)
                at = step
        except InvalidRules as error:
            raise ConversionError(f"error compiling conversion rules: {error}") from error

    def convert(self, obj: Object, api_version: str, pause: Pause) -> Object:
        """Return a new object in a version, not yet pruned. `pause` is called from inside long transformations.

        Raises ConversionError, or the exception of `pause`.
        """
        self.prepare(obj["apiVersion"], api_version, pause)
        source, target = _version(obj["apiVersion"]), _version(api_version)
        group = api_version.removesuffix(target)
        for step in self._version_path(source, target):
            obj = self._step(obj, source, step, pause)
            obj["apiVersion"], source = group + step, step
        return obj

    def _version_path(self, source: str, target: str) -> tuple[str, ...]:
        if source == target:
            return ()
        if self._storage in (source, target) or self._rules.has(source, target):
            return (target,)
        return (self._storage, target)

    def _step(self, obj: Object, source: str, target: str, pause: Pause) -> Object:
        target_obj = fresh(obj)
        if self._rules.has(source, target):
            _FieldMover(obj, target_obj, pause).move(self._rules.conversion(source, target, pause))
        preserved = {
            path: value
            for path in self._rules.preserved(source, target)
            if (value := get(obj, split(path))) is not MISSING
        }
        self._restore(target_obj, source, target)
        if preserved:
            metadata = target_obj["metadata"]
            note = {PRESERVED + source: encode_json(preserved).decode()}
            metadata["annotations"] = {**annotations_of(target_obj), **note}
        return target_obj

    def _restore(self, obj: Object, source: str, target: str) -> None:
        """Restore the preserved fields of the target version, and remove their annotation."""
        metadata = obj["metadata"]
        annotations = metadata.get("annotations")
        note = annotations.get(PRESERVED + target) if isinstance(annotations, dict) else None
        if note is None:
            return
        remaining = {key: value for key, value in annotations.items() if key != PRESERVED + target}
        metadata["annotations"] = remaining
        if not remaining:
            del metadata["annotations"]
        fields = _fields(note)
        for path in self._rules.preserved(target, source):
            if path in fields:
                put(obj, split(path), fields[path])


def _version(api_version: str) -> str:
    return api_version.rpartition("/")[2]


def _fields(note: Any) -> Object:
    """Return the fields in an annotation; none if it is malformed."""
    try:
        value = msgspec.json.decode(note) if isinstance(note, str) else None
    except (msgspec.DecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


class _FieldMover:
    """Moves the fields of one object to another, within one budget."""

    def __init__(self, source: Object, target: Object, pause: Pause) -> None:
        self._source, self._target, self._pause = source, target, pause
        self._budget: Any = None

    def move(self, conversion: VersionConversion) -> None:
        for rule in conversion.rules:
            value = get(self._source, rule.source)
            if value is MISSING or value is None:
                continue
            result = deepcopy(value) if rule.program is None else self._transformed(rule, value)
            if result is not MISSING and not put(self._target, rule.destination, result, makes_room=rule.makes_room):
                field = ".".join(rule.destination)
                raise ConversionError(f'error setting destination field "{field}": something else stands on the way')

    def _transformed(self, rule: Rule, value: Any) -> Any:
        """Return the result of a transformation; MISSING for a value of a wrong type, which the schema rejects."""
        from atoll.machinery.cel.budget import Budget
        from atoll.machinery.cel.errors import BudgetExceeded, EvaluationError
        from atoll.machinery.kinds.apiconversion.results import as_json, fits

        if not fits(rule.schema, value):
            return MISSING
        program, declared = rule.program, rule.declared
        assert program is not None
        if self._budget is None:
            self._budget = Budget(OBJECT_LIMIT, CALL_LIMIT, self._pause)
        try:
            if declared is not None:
                value = declared.deep_value(value) if program.compares_structures else declared.value(value)
            result = as_json(program.evaluate({"self": value}, self._budget))
        except (EvaluationError, BudgetExceeded) as error:
            raise ConversionError(f"error converting: {_dotted(rule.source)}: {error}") from error
        return MISSING if result is None else result


def _dotted(path: Path) -> str:
    return ".".join(path)
