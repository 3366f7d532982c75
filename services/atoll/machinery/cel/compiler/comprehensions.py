"""Closures for comprehensions: the loops of all, exists, exists_one, map, filter, the transform macros, and `cel.bind`.

Called by the compiler, which recognizes the macro by the shape of the tree. Invariant: the cost of each iteration is
charged before it runs, and each iteration checks the limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from atoll.machinery.cel.compiler.activation import ABSORBED, COST, LIMIT, Activation, check_budget
from atoll.machinery.cel.compiler.code import UNSET, Code
from atoll.machinery.cel.errors import EvaluationError, NoSuchOverload
from atoll.machinery.cel.values import Duration, Optional_, Timestamp, TypeValue, UInt

_END = object()


@dataclass(frozen=True, slots=True)
class Loop:
    """The range of a loop, the slots of its variables (the second -1 in the form with one) and of its result."""

    range: Code
    first: int
    second: int
    accumulator: int


Iterate = Callable[[Activation], Iterable[Any]]


def _iterations(loop: Loop, own_cost: int = 1) -> Iterate:
    """Return the iterations of a loop.

    With two variables each is a pair. If the range fails, the loop's own cost is refunded.
    """
    source = loop.range.run
    pairs = loop.second >= 0

    def iterate(activation: Activation) -> Iterable[Any]:
        try:
            values = source(activation)
        except ABSORBED:
            activation[COST] -= own_cost
            raise
        if isinstance(values, list):
            return enumerate(values) if pairs else values
        if isinstance(values, dict):
            return values.items() if pairs else values
        raise EvaluationError(_not_iterable(values, pairs))

    return iterate


#: cel-go's messages contain the names of its Go types.
_GO_TYPES: Final = {
    bool: "types.Bool",
    int: "types.Int",
    UInt: "types.Uint",
    float: "types.Double",
    str: "types.String",
    bytes: "types.Bytes",
    type(None): "types.Null",
    Timestamp: "types.Timestamp",
    Duration: "types.Duration",
    TypeValue: "*types.Type",
    Optional_: "*types.Optional",
}


def _not_iterable(value: Any, pairs: bool) -> str:
    name = _GO_TYPES.get(type(value), type(value).__name__)
    return f"unsupported comprehension range type: {name}" if pairs else f"got '{name}', expected iterable type"


def quantifier(loop: Loop, predicate: Code, stop: bool, condition_cost: int) -> Code:
    """Return `all` (stop False) or `exists` (stop True): an iteration that decides absorbs errors."""
    iterate, test = _iterations(loop), predicate.run
    first, second = loop.first, loop.second
    iteration_cost = condition_cost + 1 + predicate.cost
    go_on = not stop

    def run(activation: Activation) -> Any:
        pending: Exception | None = None
        rest = iter(iterate(activation))
        for item in rest:
            activation[COST] += iteration_cost
            if activation[COST] > activation[LIMIT]:
                check_budget(activation)
            if second < 0:
                activation[first] = item
            else:
                activation[first], activation[second] = item
            try:
                value = test(activation)
            except ABSORBED as error:
                pending = pending or error
                continue
            if value is go_on:
                continue
            if value is stop:
                # cel-go evaluates the condition once more if an item is left.
                if next(rest, _END) is not _END:
                    activation[COST] += condition_cost
                return stop
            pending = pending or NoSuchOverload()
        if pending is not None:
            raise pending
        return go_on

    return Code(run, loop.range.cost + 1)


@dataclass(frozen=True, slots=True)
class Step:
    """One iteration that builds a list or a map, and its cost. `condition` is None without a filter."""

    condition: Code | None
    value: Code
    value_cost: int


def transform_list(loop: Loop, step: Step) -> Code:
    """Return `map`, `filter` and `transformList`: they append in place instead of adding lists.

    After an error cel-go iterates to the end, and the price includes that.
    """
    iterate, make = _iterations(loop), step.value.run
    first, second = loop.first, loop.second
    test, test_cost = (None, 0) if step.condition is None else (step.condition.run, step.condition.cost)
    value_cost = step.value_cost

    def passes(activation: Activation) -> bool:
        activation[COST] += test_cost
        if activation[COST] > activation[LIMIT]:
            check_budget(activation)
        value = test(activation) if test is not None else True
        if value is True or value is False:
            return value
        raise NoSuchOverload

    def run(activation: Activation) -> Any:
        items: list[Any] = []
        pending: Exception | None = None
        for item in iterate(activation):
            if second < 0:
                activation[first] = item
            else:
                activation[first], activation[second] = item
            try:
                if test is not None and not passes(activation):
                    continue
            except ABSORBED as error:
                # A failed condition replaces the list so far, including earlier errors.
                pending = error
                continue
            activation[COST] += value_cost
            if activation[COST] > activation[LIMIT]:
                check_budget(activation)
            try:
                items.append(make(activation))
            except ABSORBED as error:
                pending = pending or error
        if pending is not None:
            raise pending
        return items

    return Code(run, loop.range.cost + 1)


def transform_map(loop: Loop, step: Step, insert: Callable[[Activation, dict[Any, Any]], None]) -> Code:
    """Return `transformMap` and `transformMapEntry`: `insert` adds the entries of an iteration in place."""
    iterate = _iterations(loop)
    first, second = loop.first, loop.second
    test, test_cost = (None, 0) if step.condition is None else (step.condition.run, step.condition.cost)
    value_cost = step.value_cost

    def run(activation: Activation) -> Any:
        entries: dict[Any, Any] = {}
        for item in iterate(activation):
            activation[first], activation[second] = item
            activation[COST] += test_cost
            if activation[COST] > activation[LIMIT]:
                check_budget(activation)
            if test is not None:
                value = test(activation)
                if value is False:
                    continue
                if value is not True:
                    raise NoSuchOverload
            activation[COST] += value_cost
            insert(activation, entries)
        return entries

    return Code(run, loop.range.cost + 1)


def bind(name_slot: int, result: Code) -> Code:
    """Return `cel.bind`: the value is computed at its first use (see `bound_variable`)."""
    run_result = result.run

    def run(activation: Activation) -> Any:
        activation[name_slot] = UNSET
        return run_result(activation)

    return Code(run, result.cost)


def bound_variable(slot: int, value: Code) -> Code:
    """Return a variable of `cel.bind`."""
    make, cost = value.run, value.cost

    def run(activation: Activation) -> Any:
        found = activation[slot]
        if found is UNSET:
            activation[COST] += cost
            found = activation[slot] = make(activation)
        return found

    return Code(run, 1, attribute=True, base=1)


def count(loop: Loop, predicate: Code) -> Code:
    """Return `exists_one`: it counts over the whole range."""
    iterate, test, cost = _iterations(loop, 2), predicate.run, predicate.cost
    first, second = loop.first, loop.second

    def run(activation: Activation) -> Any:
        found = 0
        pending: Exception | None = None
        for item in iterate(activation):
            activation[COST] += cost
            if activation[COST] > activation[LIMIT]:
                check_budget(activation)
            if second < 0:
                activation[first] = item
            else:
                activation[first], activation[second] = item
            try:
                value = test(activation)
            except ABSORBED as error:
                pending = error
                continue
            if value is True:
                activation[COST] += 2
                found += 1
            elif value is not False:
                pending = NoSuchOverload()
        if pending is not None:
            raise pending
        return found == 1

    # The result compares the count with 1: a step, and the size of the smaller number.
    return Code(run, loop.range.cost + 2)
