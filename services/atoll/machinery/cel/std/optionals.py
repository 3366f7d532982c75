"""Optional values: constructors, accessors, and the macros that map over them.

Always included, as in Kubernetes. The compiler evaluates `.?`, `[?]`, `or` and `orValue` lazily; their overloads here
declare the types only. Invariant: only `value()` of an empty optional is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from atoll.machinery.cel.equality import MISSING, find
from atoll.machinery.cel.errors import EvaluationError, NoSuchOverload
from atoll.machinery.cel.functions import Function, Overload
from atoll.machinery.cel.std.arithmetic import MIN_SECONDS
from atoll.machinery.cel.std.indexing import position
from atoll.machinery.cel.structures import ConstructedObject, Structure
from atoll.machinery.cel.syntax.ast import Expr, Ident, LoopParts, LoopVariables
from atoll.machinery.cel.syntax.expansion import Expander, Macro
from atoll.machinery.cel.types import BOOL, DYN, INT, STRING, ListType, MapType, OptionalType, TypeParameter, TypeType
from atoll.machinery.cel.values import NONE, SECOND, Duration, Optional_, Timestamp, TypeValue

_K, _V = TypeParameter("K"), TypeParameter("V")
_OPT = OptionalType(_V)
_LIST, _MAP = ListType(_V), MapType(_K, _V)
_UNUSED = "#unused"


def _value(optional: Optional_) -> Any:
    if not optional.has_value:
        raise EvaluationError("optional.none() dereference")
    return optional.value


def is_zero(value: Any) -> bool:
    """Report whether the value is the zero value of its type: false, 0, empty, null."""
    if isinstance(value, Timestamp | Duration):
        return value.nanos == (0 if isinstance(value, Duration) else MIN_SECONDS * SECOND)
    if isinstance(value, Optional_):
        return not value.has_value
    if isinstance(value, ConstructedObject):
        return not value.fields
    return value is None or (isinstance(value, bool | int | float | str | bytes | list | dict) and not value)


def _of_non_zero(value: Any) -> Optional_:
    return NONE if is_zero(value) else Optional_(value)


def find_in(of: Any, key: Any) -> Any:
    """Return the value under a key or index, or MISSING."""
    if isinstance(of, dict):
        return find(of, key)
    if isinstance(of, list):
        at = position(key)
        return of[at] if 0 <= at < len(of) else MISSING
    return of.dynamic(key) if isinstance(of, Structure) else MISSING


def _lazy(*_arguments: Any) -> Any:
    raise NoSuchOverload


def _unwrap(items: Sequence[Any]) -> list[Any]:
    for item in items:
        if not isinstance(item, Optional_):
            raise EvaluationError(f"value {item} is not optional")
    return [item.value for item in items if item.has_value]


def _opt_map(e: Expander, target: Expr, arguments: Sequence[Expr]) -> Expr:
    return _optional_map(e, "optMap", target, arguments, wrap=True)


def _opt_flat_map(e: Expander, target: Expr, arguments: Sequence[Expr]) -> Expr:
    return _optional_map(e, "optFlatMap", target, arguments, wrap=False)


def _optional_map(e: Expander, name: str, target: Expr, arguments: Sequence[Expr], *, wrap: bool) -> Expr:
    variable = arguments[0]
    if not isinstance(variable, Ident):
        raise e.error(variable, f"{name}() variable name must be a simple identifier")
    has_value = e.member_call("hasValue", target)
    bound = bind(e, variable.name, e.member_call("value", e.copy(target)), arguments[1])
    mapped = e.call("optional.of", bound) if wrap else bound
    return e.call("_?_:_", has_value, mapped, e.call("optional.none"))


def bind(e: Expander, name: str, value: Expr, result: Expr) -> Expr:
    """Return a comprehension over an empty list that binds a name to a value, evaluated once at its first use."""
    over, variables = e.list(), LoopVariables(_UNUSED, accumulator=name)
    return e.comprehension(over, variables, LoopParts(value, e.literal(False), e.ident(name), result))


FUNCTIONS = (
    Function("optional.of", (Overload("optional_of", (_V,), _OPT, Optional_),)),
    Function("optional.ofNonZeroValue", (Overload("optional_ofNonZeroValue", (_V,), _OPT, _of_non_zero),)),
    Function("optional.none", (Overload("optional_none", (), _OPT, lambda: NONE),)),
    Function("value", (Overload("optional_value", (_OPT,), _V, _value, member=True),)),
    Function("hasValue", (Overload("optional_hasValue", (_OPT,), BOOL, lambda o: o.has_value, member=True),)),
    Function("or", (Overload("optional_or_optional", (_OPT, _OPT), _OPT, _lazy, member=True),)),
    Function("orValue", (Overload("optional_orValue_value", (_OPT, _V), _V, _lazy, member=True),)),
    Function("_?._", (Overload("select_optional_field", (DYN, STRING), _OPT, _lazy),)),
    Function(
        "_[?_]",
        (
            Overload("list_optindex_optional_int", (_LIST, INT), _OPT, _lazy),
            Overload("optional_list_optindex_optional_int", (OptionalType(_LIST), INT), _OPT, _lazy),
            Overload("map_optindex_optional_value", (_MAP, _K), _OPT, _lazy),
            Overload("optional_map_optindex_optional_value", (OptionalType(_MAP), _K), _OPT, _lazy),
        ),
    ),
    Function(
        "_[_]",
        (
            Overload("optional_list_index_int", (OptionalType(_LIST), INT), _OPT, _lazy),
            Overload("optional_map_index_value", (OptionalType(_MAP), _K), _OPT, _lazy),
        ),
    ),
    Function("first", (Overload("list_first", (_LIST,), _OPT, lambda v: Optional_(v[0]) if v else NONE, member=True),)),
    Function("last", (Overload("list_last", (_LIST,), _OPT, lambda v: Optional_(v[-1]) if v else NONE, member=True),)),
    Function("optional.unwrap", (Overload("optional_unwrap", (ListType(_OPT),), _LIST, _unwrap),)),
    Function("unwrapOpt", (Overload("optional_unwrapOpt", (ListType(_OPT),), _LIST, _unwrap, member=True),)),
)
CONSTANTS = {"optional_type": (TypeType(_OPT), TypeValue("optional_type"))}
MACROS = (Macro("optMap", 2, True, _opt_map), Macro("optFlatMap", 2, True, _opt_flat_map))
