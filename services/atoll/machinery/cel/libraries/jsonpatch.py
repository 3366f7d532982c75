"""Kubernetes' library of mutations: the types `Object...` and `JSONPatch`, and `jsonpatch.escapeKey(key)`.

Mutations of MutatingAdmissionPolicies have it, no other expression. `operations` turns the value of a JSON patch
expression into decoded operations: as in Kubernetes, times become texts, bytes base64, and whole numbers that a double
cannot hold texts.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

from atoll.machinery.cel.errors import EvaluationError
from atoll.machinery.cel.functions import Function, Library, Overload
from atoll.machinery.cel.std.times import duration_text, timestamp_text
from atoll.machinery.cel.structures import ConstructedObject, PatchOperation, misplaced_types, structure_type
from atoll.machinery.cel.types import STRING
from atoll.machinery.cel.values import Duration, Opaque, Optional_, Timestamp

#: Whole numbers up to this magnitude are numbers in JSON.
_MAX_SAFE: Final = (1 << 53) - 1


class Unconvertible(Exception):
    """The value of an expression is no patch; `str()` is Kubernetes' reason."""


def _escape_key(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


LIBRARY: Final = Library(
    "kubernetes.jsonpatch",
    (
        Function(
            "jsonpatch.escapeKey", (Overload("string_jsonpatch_escapeKey_string", (STRING,), STRING, _escape_key),)
        ),
    ),
    find_type=structure_type,
)


def constructed(value: ConstructedObject) -> dict[str, Any]:
    """Return the value of an ApplyConfiguration expression as JSON. Raises Unconvertible."""
    if problems := misplaced_types(value):
        raise Unconvertible("type mismatch: " + "\n".join(problems))
    try:
        found = value.native()
    except EvaluationError as error:
        raise Unconvertible(str(error)) from None
    for path in _nulls(found, ""):
        raise Unconvertible(f"error applying patch: {path}: expected a value, got null")
    return found


def _nulls(value: Any, path: str) -> Iterator[str]:
    """Yield the paths of nulls, which Kubernetes refuses in an apply configuration."""
    if value is None:
        yield path
    elif isinstance(value, dict):
        for name, child in value.items():
            yield from _nulls(child, f"{path}.{name}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _nulls(item, f"{path}[{index}]")


def operations(value: Sequence[PatchOperation]) -> list[dict[str, Any]]:
    """Return the operations of a JSON patch expression. Raises Unconvertible."""
    found = []
    for operation in value:
        if not isinstance(operation, PatchOperation):
            text = "type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch"
            raise Unconvertible(text)
        plain: dict[str, Any] = {"op": "", "path": "", **operation.fields}
        if "value" in plain:
            plain["value"] = _patch_value(plain["value"])
        found.append(plain)
    return found


def _patch_value(value: Any) -> Any:
    if isinstance(value, ConstructedObject) and (problems := misplaced_types(value)):
        raise Unconvertible("type mismatch: " + "\n".join(problems))
    try:
        return _json(value)
    except EvaluationError as error:
        what = "JSONPath valueExpression evaluated to a type that could not marshal to JSON"
        raise Unconvertible(f"{what}: {error}") from None


def _json(value: Any) -> Any:
    if isinstance(value, dict):
        return {_key(key): _json(child) for key, child in value.items()}
    if isinstance(value, list):
        return [_json(item) for item in value]
    if isinstance(value, ConstructedObject):
        return value.native()
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        return int(value) if abs(value) <= _MAX_SAFE else str(int(value))
    if isinstance(value, float):
        if not math.isfinite(value):
            raise EvaluationError(f"invalid value: {value}")
        return int(value) if value.is_integer() and abs(value) <= _MAX_SAFE else value
    return _text(value)


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Timestamp):
        return timestamp_text(value)
    if isinstance(value, Duration):
        return duration_text(value)
    if isinstance(value, Optional_):
        return _json(value.value) if value.has_value else None
    of = value.cel_type.name if isinstance(value, Opaque) else type(value).__name__
    raise EvaluationError(f"unsupported conversion of {of}")


def _key(key: Any) -> str:
    if isinstance(key, str):
        return key
    raise EvaluationError(f"unsupported key {key}")
