"""Objects from version to version by the rules of an APIConversion.

`kinds.conversion` carries a Converter; the API server's conversion package runs it where time is bounded. Between two
versions without rules of their own the way leads through the stored version. Fields that a version has no place for
stand in an annotation of the object meanwhile. Invariant: metadata but for that annotation is nobody's to convert, and
of the annotation only declared fields come back, whatever a client wrote there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import msgspec

from atoll.machinery.kinds.apiconversion.paths import MISSING, Path, get, put, split
from atoll.machinery.kinds.apiconversion.rules import InvalidRules, Rule, Rules, VersionConversion
from atoll.machinery.meta.objects import Object, encode_json, fresh

Pause = Callable[[], None]
#: Annotation with the fields of a version, whose name follows, that the object's own version has no place for.
PRESERVED = "preserve.conversion.apis.kcp.io/"
#: What one transformation and all transformations of an object may cost, in units of CEL's cost model.
CALL_LIMIT, OBJECT_LIMIT = 1_000_000, 10_000_000


class ConversionError(Exception):
    """An object cannot be converted by the rules; `str()` says why."""


class Converter:
    """The conversion of one definition. `storage` is the name of its stored version."""

    def __init__(self, spec: Object, schemas: Mapping[str, Object], storage: str) -> None:
        self._rules = Rules(spec, schemas)
        self._storage = storage

    def prepare(self, source: str, target: str, pause: Pause) -> None:
        """Compile what objects of one apiVersion need to become ones of another, so that `convert` only computes.

        Raises ConversionError for rules that no longer fit, or what `pause` raised.
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
        """A new object in a version, not pruned yet. `pause` is called from inside long transformations.

        Raises ConversionError, or what `pause` raised.
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
        made = fresh(obj)
        if self._rules.has(source, target):
            _FieldMover(obj, made, pause).move(self._rules.conversion(source, target, pause))
        kept = {
            path: value
            for path in self._rules.preserved(source, target)
            if (value := get(obj, split(path))) is not MISSING
        }
        self._restore(made, source, target)
        if kept:
            metadata = made["metadata"]
            note = {PRESERVED + source: encode_json(kept).decode()}
            metadata["annotations"] = {**(metadata.get("annotations") or {}), **note}
        return made

    def _restore(self, made: Object, source: str, target: str) -> None:
        """Put back what the target version left with the object, and take the annotation away."""
        metadata = made["metadata"]
        annotations = metadata.get("annotations")
        note = annotations.get(PRESERVED + target) if isinstance(annotations, dict) else None
        if note is None:
            return
        left = {key: value for key, value in annotations.items() if key != PRESERVED + target}
        metadata["annotations"] = left
        if not left:
            del metadata["annotations"]
        fields = _fields(note)
        for path in self._rules.preserved(target, source):
            if path in fields:
                put(made, split(path), fields[path])


def _version(api_version: str) -> str:
    return api_version.rpartition("/")[2]


def _fields(note: Any) -> Object:
    """The fields in an annotation; none if it is not what was written there."""
    try:
        value = msgspec.json.decode(note) if isinstance(note, str) else None
    except (msgspec.DecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


class _FieldMover:
    """Fields of one object on their way to another, which may spend so much together."""

    def __init__(self, source: Object, made: Object, pause: Pause) -> None:
        self._source, self._made, self._pause = source, made, pause
        self._budget: Any = None

    def move(self, conversion: VersionConversion) -> None:
        for rule in conversion.rules:
            value = get(self._source, rule.source)
            if value is MISSING or value is None:
                continue
            result = deepcopy(value) if rule.program is None else self._transformed(rule, value)
            if result is not MISSING and not put(self._made, rule.destination, result, makes_room=rule.makes_room):
                shown = ".".join(rule.destination)
                raise ConversionError(f'error setting destination field "{shown}": something else stands on the way')

    def _transformed(self, rule: Rule, value: Any) -> Any:
        """The result of a transformation; nothing for a value of a wrong type, which the schema refuses anyway."""
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
            raise ConversionError(f"error converting: {_shown(rule.source)}: {error}") from error
        return MISSING if result is None else result


def _shown(path: Path) -> str:
    return ".".join(path)
