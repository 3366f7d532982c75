"""Closures for calls: direct where the checker found the overload, dispatched where dyn left it open.

Called by the compiler. Invariant: a function gets only values of the types it declares; anything else is
`no such overload`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from atoll.machinery.cel.code import Code
from atoll.machinery.cel.cost import Price
from atoll.machinery.cel.errors import EvaluationError, NoSuchOverload
from atoll.machinery.cel.failures import FAILED, beside, costs_behind, failure_price, in_order, value_or_failed
from atoll.machinery.cel.frame import ABSORBED, COST, LIMIT, Eval, Frame, overrun, work
from atoll.machinery.cel.functions import Overload
from atoll.machinery.cel.std.conversion import runtime_name
from atoll.machinery.cel.types import Kind, Type
from atoll.machinery.cel.values import Duration, Optional_, Timestamp, TypeValue, UInt, type_of

Call = Callable[..., Any]


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
    """Whether a value of this static type may be of another type at run time."""
    return of.kind in _OPEN or of.nullable


def fits(value: Any, of: Type) -> bool:
    """Whether a value is of a declared parameter type; items of collections are looked at as cel-go does: the first."""
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


#: Functions with one implementation for all types, and the Python types that have what it needs: values of other
#: types get the name of the function in the message, as they never reach it.
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


def dispatcher(function: str, overloads: Sequence[Overload]) -> Call:
    """A call that finds its overload by the values."""
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


def call_code(target: Call, arguments: Sequence[Code], price: int | Price, *, stops: bool = False) -> Code:
    """The call of a function with its price. One that `stops` at a failed argument charges nothing for itself then, as
    do all with more than two arguments."""
    cost = sum(argument.cost for argument in arguments)
    if isinstance(price, int):
        cost += price
        return Code(_plain(target, arguments, price if stops or len(arguments) > 2 else None), cost)
    if stops or len(arguments) > 2:
        return Code(_stopping(target, arguments, price), cost)
    return Code(_priced(target, arguments, price), cost)


def _plain(target: Call, arguments: Sequence[Code], refund: int | None) -> Eval:
    if refund is not None:
        values = in_order(arguments, refund)
        return lambda frame: _checked(frame, target(*values(frame)))
    if len(arguments) == 2:
        first, second = beside(*arguments), arguments[1].run
        return lambda frame: _checked(frame, target(first(frame), second(frame)))
    runs = [argument.run for argument in arguments]
    if len(runs) == 1:
        only = runs[0]
        return lambda frame: _checked(frame, target(only(frame)))
    return lambda frame: _checked(frame, target())


def _checked(frame: Frame, result: Any) -> Any:
    """What makes long lists for little cost has to let others run too."""
    if type(result) is list:
        work(frame, len(result))
    return result


def _stopping(target: Call, codes: Sequence[Code], price: Price) -> Eval:
    runs, behind = [code.run for code in codes], costs_behind(codes)

    def run(frame: Frame) -> Any:
        arguments: list[Any] = []
        try:
            for each in runs:
                arguments.append(each(frame))
        except ABSORBED:
            frame[COST] -= behind[len(arguments)]
            arguments.append(FAILED)
            if len(arguments) == len(runs):
                frame[COST] += failure_price(price, arguments)
            raise
        return _charged(frame, target, arguments, price)

    return run


def _priced(target: Call, codes: Sequence[Code], price: Price) -> Eval:
    runs = [code.run for code in codes]

    def run(frame: Frame) -> Any:
        arguments: list[Any] = []
        try:
            for each in runs:
                arguments.append(each(frame))
        except ABSORBED:
            behind = runs[len(arguments) + 1 :]
            arguments += [FAILED, *(value_or_failed(each, frame) for each in behind)]
            frame[COST] += failure_price(price, arguments)
            raise
        return _charged(frame, target, arguments, price)

    return run


def _charged(frame: Frame, target: Call, arguments: list[Any], price: Price) -> Any:
    try:
        result = target(*arguments)
    except ABSORBED:
        frame[COST] += failure_price(price, arguments)
        raise
    frame[COST] += price(arguments, result)
    if frame[COST] > frame[LIMIT]:
        overrun(frame)
    return _checked(frame, result)


def or_value(optional: Code, other: Code, *, unwrap: bool) -> Code:
    """`a.orValue(b)` or `a.or(b)`: the second is evaluated only when the first is empty, and the call is free."""
    first, second, cost = optional.run, other.run, other.cost

    def run(frame: Frame) -> Any:
        value = first(frame)
        if not isinstance(value, Optional_):
            raise NoSuchOverload
        if value.has_value:
            return value.value if unwrap else value
        frame[COST] += cost
        return second(frame)

    return Code(run, optional.cost)


def list_code(items: Sequence[Code], optional: frozenset[int], cost: int) -> Code:
    """`[a, ?b]`."""
    cost += sum(item.cost for item in items)
    values = in_order(items)
    if not optional:
        return Code(values, cost)
    marked = [index in optional for index in range(len(items))]

    def run(frame: Frame) -> Any:
        made = []
        for value, may_lack in zip(values(frame), marked, strict=True):
            if not may_lack:
                made.append(value)
            elif not isinstance(value, Optional_):
                raise EvaluationError(f"cannot initialize optional list element from non-optional value {value}")
            elif value.has_value:
                made.append(value.value)
        return made

    return Code(run, cost)


def map_code(entries: Sequence[tuple[Code, Code, bool]], cost: int) -> Code:
    """`{k: v, ?k: v}`. Of a key that comes twice the last value stays, as in cel-go (the language has it an error)."""
    parts = [part for key, value, _ in entries for part in (key, value)]
    values = in_order(parts)
    marked = [optional for _, _, optional in entries]

    def run(frame: Frame) -> Any:
        made: dict[Any, Any] = {}
        found = iter(values(frame))
        for key, value, optional in zip(found, found, marked, strict=True):
            if not optional:
                made[key] = value
            elif not isinstance(value, Optional_):
                raise EvaluationError(f"cannot initialize optional entry '{key}' from non-optional value {value}")
            elif value.has_value:
                made[key] = value.value
        return made

    return Code(run, cost + sum(part.cost for part in parts))
