"""Logic, indexing, membership, and the names of types.

Part of the standard library. The compiler makes specialised closures for the lazy operators (&&, ||, ?:) and for
indexing; the calls below handle values of type dyn. Invariant: a map finds numbers by value, whatever their type.
"""

from __future__ import annotations

from typing import Any

from atoll.machinery.cel.equality import MISSING, contains, find
from atoll.machinery.cel.errors import EvaluationError, NoSuchKey, NoSuchOverload
from atoll.machinery.cel.functions import Function, Overload
from atoll.machinery.cel.std.conversion import to_string
from atoll.machinery.cel.structures import Structure
from atoll.machinery.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    UINT,
    ListType,
    MapType,
    Type,
    TypeParameter,
    TypeType,
    runtime_name,
)
from atoll.machinery.cel.values import TypeValue, UInt, type_of

_A, _B = TypeParameter("A"), TypeParameter("B")
_LIST, _MAP = ListType(_A), MapType(_A, _B)


def position(index: Any) -> int:
    """Return the list index that a value denotes: an int, a uint, or a double without fraction.

    Raises EvaluationError.
    """
    kind = type(index)
    if kind is int or kind is UInt:
        return int(index)
    if kind is float:
        if index.is_integer():
            return int(index)
        raise EvaluationError(f"unsupported index value {to_string(index)} in list")
    raise EvaluationError(f"unsupported index type '{runtime_name(type_of(index))}' in list")


def index_list(items: Any, index: Any) -> Any:
    """`list[index]`."""
    at = index if type(index) is int else position(index)
    if 0 <= at < len(items):
        return items[at]
    raise EvaluationError(f"index out of bounds: {at}")


def index_map(of: Any, key: Any) -> Any:
    """`map[key]`."""
    found = find(of, key)
    if found is MISSING:
        raise NoSuchKey(key_text(key))
    return found


def key_text(key: Any) -> str:
    """Return a key as Go prints it in messages."""
    return "" if key is None else to_string(key)


def insert_new(into: dict[Any, Any], key: Any, value: Any) -> None:
    """Add an entry to a map in place. Raises EvaluationError if the key is present."""
    if find(into, key) is not MISSING:
        raise EvaluationError(f"insert failed: key {key_text(key)} already exists")
    into[key] = value


def index(of: Any, key: Any) -> Any:
    """`of[key]` for a value of unknown type."""
    if isinstance(of, dict):
        return index_map(of, key)
    if isinstance(of, list):
        return index_list(of, key)
    found = of.dynamic(key) if isinstance(of, Structure) else MISSING
    if found is not MISSING:
        return found
    # cel-go reports the missing key, not the type of the operand.
    raise NoSuchKey(key_text(key))


def member(value: Any, of: Any) -> bool:
    """`value in of`."""
    if isinstance(of, dict):
        return find(of, value) is not MISSING
    if isinstance(of, list):
        return contains(of, value)
    raise NoSuchOverload


def _not(value: Any) -> bool:
    return not value


def _lazy(*_arguments: Any) -> Any:
    raise NoSuchOverload


FUNCTIONS = (
    Function("_?_:_", (Overload("conditional", (BOOL, _A, _A), _A, _lazy),)),
    Function("_&&_", (Overload("logical_and", (BOOL, BOOL), BOOL, _lazy),)),
    Function("_||_", (Overload("logical_or", (BOOL, BOOL), BOOL, _lazy),)),
    Function("!_", (Overload("logical_not", (BOOL,), BOOL, _not),)),
    Function("@not_strictly_false", (Overload("not_strictly_false", (BOOL,), BOOL, _lazy),)),
    Function(
        "_[_]", (Overload("index_list", (_LIST, INT), _A, index_list), Overload("index_map", (_MAP, _A), _B, index_map))
    ),
    Function(
        "@in",
        (
            Overload("in_list", (_A, _LIST), BOOL, lambda value, items: contains(items, value)),
            Overload("in_map", (_A, _MAP), BOOL, lambda value, of: find(of, value) is not MISSING),
        ),
    ),
)

_TYPES: tuple[Type, ...] = (BOOL, BYTES, DOUBLE, INT, STRING, UINT, _LIST, _MAP)
CONSTANTS: dict[str, tuple[Type, Any]] = {
    **{of.name: (TypeType(of), TypeValue(of.name)) for of in _TYPES},
    "null_type": (TypeType(NULL), TypeValue("null_type")),
    "type": (TypeType(TypeType()), TypeValue("type")),
    "google.protobuf.Timestamp": (TypeType(TIMESTAMP), TypeValue("google.protobuf.Timestamp")),
    "google.protobuf.Duration": (TypeType(DURATION), TypeValue("google.protobuf.Duration")),
}
