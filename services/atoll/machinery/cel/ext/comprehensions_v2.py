"""Comprehensions with two variables: index and item of a list, key and value of a map.

`all`, `exists`, `existsOne`, `transformList`, `transformMap`, `transformMapEntry`. Invariant: the expanded trees are
those of cel-go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from atoll.machinery.cel.functions import Function, Library, Overload
from atoll.machinery.cel.std.indexing import insert_new
from atoll.machinery.cel.syntax.ast import Expr, LoopParts, LoopVariables
from atoll.machinery.cel.syntax.expansion import Expander, Macro
from atoll.machinery.cel.syntax.macros import all_loop, exists_loop, exists_one_loop, iteration_variable
from atoll.machinery.cel.types import MapType, TypeParameter

_K, _V = TypeParameter("K"), TypeParameter("V")
_MAP = MapType(_K, _V)
_INSERT = "cel.@mapInsert"


def _insert(into: dict[Any, Any], key: Any, value: Any) -> dict[Any, Any]:
    return _insert_all(into, {key: value})


def _insert_all(into: dict[Any, Any], entries: dict[Any, Any]) -> dict[Any, Any]:
    result = dict(into)
    for key, value in entries.items():
        insert_new(result, key, value)
    return result


def _variables(e: Expander, arguments: Sequence[Expr]) -> LoopVariables:
    first, second = iteration_variable(e, arguments[0]), iteration_variable(e, arguments[1])
    if first == second:
        raise e.error(arguments[1], f"duplicate variable name: {first}")
    return LoopVariables(first, second)


def _quantifier(loop: Callable[[Expander, Expr, LoopVariables, Expr], Expr]) -> Callable[..., Expr]:
    def expand(e: Expander, target: Expr, arguments: Sequence[Expr]) -> Expr:
        return loop(e, target, _variables(e, arguments), arguments[2])

    return expand


def _transform(step: Callable[[Expander, Sequence[Expr]], Expr], *, into_map: bool) -> Callable[..., Expr]:
    def expand(e: Expander, target: Expr, arguments: Sequence[Expr]) -> Expr:
        variables = _variables(e, arguments)
        init = e.map() if into_map else e.list()
        body = step(e, arguments)
        if len(arguments) == 4:
            body = e.call("_?_:_", arguments[2], body, e.accumulator())
        return e.comprehension(target, variables, LoopParts(init, e.literal(True), body, e.accumulator()))

    return expand


def _list_step(e: Expander, arguments: Sequence[Expr]) -> Expr:
    return e.call("_+_", e.accumulator(), e.list(arguments[-1]))


def _map_step(e: Expander, arguments: Sequence[Expr]) -> Expr:
    return e.call(_INSERT, e.accumulator(), e.copy(arguments[0]), arguments[-1])


def _entry_step(e: Expander, arguments: Sequence[Expr]) -> Expr:
    return e.call(_INSERT, e.accumulator(), arguments[-1])


_LIST, _TO_MAP, _ENTRY = (
    _transform(_list_step, into_map=False),
    _transform(_map_step, into_map=True),
    _transform(_entry_step, into_map=True),
)

COMPREHENSIONS_V2 = Library(
    "cel.lib.ext.comprev2",
    functions=(
        Function(
            _INSERT,
            (
                Overload("@mapInsert_map_key_value", (_MAP, _K, _V), _MAP, _insert),
                Overload("@mapInsert_map_map", (_MAP, _MAP), _MAP, _insert_all),
            ),
        ),
    ),
    macros=(
        Macro("all", 3, True, _quantifier(all_loop)),
        Macro("exists", 3, True, _quantifier(exists_loop)),
        Macro("existsOne", 3, True, _quantifier(exists_one_loop)),
        Macro("exists_one", 3, True, _quantifier(exists_one_loop)),
        Macro("transformList", 3, True, _LIST),
        Macro("transformList", 4, True, _LIST),
        Macro("transformMap", 3, True, _TO_MAP),
        Macro("transformMap", 4, True, _TO_MAP),
        Macro("transformMapEntry", 3, True, _ENTRY),
        Macro("transformMapEntry", 4, True, _ENTRY),
    ),
)
