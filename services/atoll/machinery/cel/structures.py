"""The objects that expressions of mutations make: `Object{...}` and its parts, and `JSONPatch{...}`.

A part is named by the path of its field (`Object.spec.template`; items of a list by the path of the list). Any such
name is a type with any fields, all of them dynamic: the compiler knows no schema. Whether the names fit the paths is
told after the evaluation, by `misplaced_types`. Invariant: a structure is no map to functions; a field is selected
from its JSON where the type of the operand is known, and nothing of an object where it is not, as in Kubernetes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from atoll.machinery.cel.equality import MISSING, is_equal
from atoll.machinery.cel.errors import EvaluationError
from atoll.machinery.cel.types import DYN, STRING, Field, ObjectType
from atoll.machinery.cel.values import Duration, Opaque, Timestamp, TypeValue, UInt

ROOT: Final = "Object"
_TEXTS: Final = ("op", "path", "from")
#: Go's names of the types of values, for messages.
_GO_TYPES: Final[dict[type, str]] = {
    bool: "bool",
    int: "int64",
    UInt: "uint64",
    float: "float64",
    str: "string",
    bytes: "[]uint8",
    type(None): "structpb.NullValue",
    Timestamp: "time.Time",
    Duration: "time.Duration",
    TypeValue: "string",
    list: "[]ref.Val",
    dict: "map[ref.Val]ref.Val",
}


class _AnyField(dict[str, Field]):
    """The fields of an object of unknown schema: every name is one."""

    __slots__ = ()

    def get(self, name: str, default: Any = None) -> Field:
        return _FIELD


_FIELD: Final = Field(DYN)
_ANY: Final = _AnyField()


class StructureType(ObjectType):
    """The type of a structure; `make` returns the value with these fields, or raises EvaluationError."""

    __slots__ = ("make",)

    def __init__(
        self, name: str, fields: Mapping[str, Field], make: Callable[[StructureType, dict[str, Any]], Structure]
    ) -> None:
        super().__init__(name, fields)
        self.make = make


class Structure(Opaque):
    """The value of a structure: its type, and the fields that are set."""

    __slots__ = ("cel_type", "fields")

    def __init__(self, of: StructureType, fields: dict[str, Any]) -> None:
        self.cel_type = of  # type: ignore[misc]
        self.fields = fields

    def __repr__(self) -> str:
        return f"{self.cel_type.name}{self.fields}"

    def native(self) -> dict[str, Any]:
        """Return the fields that are set as JSON. Raises EvaluationError for values that JSON has not."""
        return {name: native(value) for name, value in self.fields.items()}

    def absent(self, name: str) -> Any:
        """Return the value of a field that is not set."""
        return None

    def dynamic(self, name: Any) -> Any:
        """Return the value under a key where the type of the structure is not known, or MISSING."""
        return MISSING


class ConstructedObject(Structure):
    """The value of `Object{...}` or of a part."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ConstructedObject)
            and other.cel_type.name == self.cel_type.name
            and _identical(self.fields, other.fields)
        )

    __hash__ = Opaque.__hash__


class PatchOperation(Structure):
    """The value of `JSONPatch{...}`. A text that is empty counts as not set."""

    __slots__ = ()

    def __init__(self, of: StructureType, fields: dict[str, Any]) -> None:
        for name in _TEXTS:
            if not isinstance(fields.get(name, ""), str):
                raise EvaluationError(f"unexpected type {_go_type(fields[name])} for JSONPatchType '{name}' field")
        super().__init__(of, {name: value for name, value in fields.items() if name == "value" or value})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PatchOperation) or self.fields.keys() != other.fields.keys():
            return False
        return all(is_equal(value, other.fields[name]) for name, value in self.fields.items())

    __hash__ = Opaque.__hash__

    def native(self) -> dict[str, Any]:
        return self.fields

    def absent(self, name: str) -> Any:
        if name in _TEXTS:
            return ""
        raise EvaluationError(f"no such key: {name}")

    def dynamic(self, name: Any) -> Any:
        return self.fields[name] if name in self.fields else self.absent(str(name))


PATCH_OPERATION: Final = StructureType(
    "JSONPatch", {**{name: Field(STRING) for name in _TEXTS}, "value": Field(DYN)}, PatchOperation
)
OBJECT: Final = StructureType(ROOT, _ANY, ConstructedObject)


def structure_type(name: str) -> StructureType | None:
    """Return the type of a name, or None: `JSONPatch`, `Object`, and every path below it."""
    if name == PATCH_OPERATION.name:
        return PATCH_OPERATION
    if name == ROOT:
        return OBJECT
    return StructureType(name, _ANY, ConstructedObject) if name.startswith(f"{ROOT}.") else None


def misplaced_types(value: ConstructedObject) -> list[str]:
    """Return an error for each part whose type is not named by its path; empty if all fit.

    The value itself may be any part of an object. Maps and lists between parts add nothing to the path.
    """
    return list(_misplaced(value, value.cel_type.name))


def _misplaced(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, ConstructedObject):
        if value.cel_type.name != path:
            what = f'unexpected type name "{value.cel_type.name}", expected "{path}"'
            yield f"{what}, which matches field name path from root Object type"
        for name, child in value.fields.items():
            yield from _misplaced(child, f"{path}.{name}")
    elif isinstance(value, list | dict):
        for child in value if isinstance(value, list) else value.values():
            yield from _misplaced(child, path)


def native(value: Any) -> Any:
    """Return a field of a constructed object as JSON. Raises EvaluationError for a value that JSON has not."""
    if isinstance(value, Structure):
        return value.native()
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise EvaluationError(f'map key "{key}" is of type {_go_type(key)}, not string')
        return {key: native(child) for key, child in value.items()}
    if isinstance(value, list):
        return [native(item) for item in value]
    if isinstance(value, UInt):
        return int(value)
    if value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise EvaluationError(f"unsupported type {_go_type(value)} in an object")


def _go_type(value: Any) -> str:
    return _GO_TYPES.get(type(value), "map[string]interface {}")


def _identical(first: Any, second: Any) -> bool:
    """Report whether fields are the same values of the same types: 1 is not 1.0 here."""
    if type(first) is not type(second):
        return False
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(_identical(first[key], second[key]) for key in first)
    if isinstance(first, list):
        return len(first) == len(second) and all(map(_identical, first, second))
    return bool(first == second)
