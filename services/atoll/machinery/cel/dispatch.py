"""Overload dispatch by the values of the arguments, for calls that dyn leaves open.

Called by the compiler, and by the validators for conversions of literals. Invariant: a function is called only with
values of the types that it declares; any other arguments raise NoSuchOverload.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from atoll.machinery.cel.errors import NoSuchOverload
from atoll.machinery.cel.functions import Overload
from atoll.machinery.cel.types import Kind, Type, runtime_name
from atoll.machinery.cel.values import Duration, Optional_, Timestamp, TypeValue, UInt, type_of

Implementation = Callable[..., Any]

_OPEN: Final = frozenset({Kind.DYN, Kind.ANY, Kind.ERROR, Kind.PARAMETER})
_EXACT: Final[dict[Kind, type]] = {
    Kind.BOOL: bool,
    Kind.INT: int,
    Kind.UINT: UInt,
    Kind.DOUBLE: float,
    Kind.STRING: str,
    Kind.BYTES: bytes,
    Kind.NULL: type(None),
    Kind.TIMESTAMP: Timestamp,
    Kind.DURATION: Duration,
    Kind.TYPE: TypeValue,
}
_INSTANCE: Final[dict[Kind, type]] = {Kind.LIST: list, Kind.MAP: dict}


def is_open(of: Type) -> bool:
    """Report whether a value of this static type may have another type at run time."""
    return of.kind in _OPEN or of.nullable


def fits(value: Any, of: Type) -> bool:
    """Report whether a value is of a declared parameter type.

    Of a collection only the first item is tested, as in cel-go.
    """
    kind = of.kind
    if kind in _OPEN:
        return True
    exact = _EXACT.get(kind)
    if exact is not None:
        return type(value) is exact
    instance = _INSTANCE.get(kind)
    if instance is not None:
        return isinstance(value, instance) and _first_fits(value, of)
    if of.name == "optional_type":
        return isinstance(value, Optional_)
    if kind is Kind.OBJECT and isinstance(value, dict):
        return True
    return bool(getattr(value, "cel_type", None) is not None and type_of(value).name == of.name)


def _first_fits(value: Any, of: Type) -> bool:
    if not value:
        return True
    if of.kind is Kind.LIST:
        return fits(value[0], of.parameters[0])
    key = next(iter(value))
    return fits(key, of.parameters[0]) and fits(value[key], of.parameters[1])


#: Functions with one implementation for all types, and the Python types that it supports. The message for values of
#: other types names the function, as cel-go finds no implementation for them.
_COMPARED: Final = frozenset({int, UInt, float, str, bytes, bool, Timestamp, Duration})
_SINGLE: Final[dict[str, frozenset[type]]] = {
    "_+_": frozenset({int, UInt, float, str, bytes, list, Timestamp, Duration}),
    "_-_": frozenset({int, UInt, float, Timestamp, Duration}),
    "_*_": frozenset({int, UInt, float}),
    "_/_": frozenset({int, UInt, float}),
    "_%_": frozenset({int, UInt}),
    "-_": frozenset({int, float, Duration}),
    **dict.fromkeys(("_<_", "_<=_", "_>_", "_>=_"), _COMPARED),
    "size": frozenset({str, bytes, list, dict}),
    "matches": frozenset({str}),
    "@in": frozenset({object}),
}
_UNGUARDED: Final = frozenset({"contains", "startsWith", "endsWith"})


def dispatcher(function: str, overloads: Sequence[Overload]) -> Implementation:
    """Return a call that selects its overload by the values."""
    entries = [(overload.parameters, overload.call) for overload in overloads]

    def call(*arguments: Any) -> Any:
        for parameters, target in entries:
            if all(map(fits, arguments, parameters)):
                return target(*arguments)
        capable = _SINGLE.get(function)
        if function in _UNGUARDED or (capable is not None and (object in capable or type(arguments[0]) in capable)):
            raise NoSuchOverload
        if capable is not None:
            raise NoSuchOverload(f"no such overload: {function}")
        shown = ", ".join(runtime_name(type_of(argument)) for argument in arguments)
        raise NoSuchOverload(f"no such overload: {function}({shown})")

    return call
