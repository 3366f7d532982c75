"""Closures for folds: the loops of all, exists, map, filter and their fellows, and `cel.bind`.

Called by the compiler. The macros' shapes get loops of their own; any other fold runs as it is written.
Invariant: the cost of each turn is charged before the turn, and each turn looks at the limit.
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
    """What is folded: the range, the slots of the variables (the second -1 in the form with one) and of the result."""

    range: Code
    first: int
    second: int
    accumulator: int


Turns = Callable[[Activation], Iterable[Any]]


def _items(loop: Loop, own_cost: int = 1) -> Turns:
    """The turns of a fold. With two variables each turn is a pair. Without a range the fold costs nothing itself."""
    source = loop.range.run
    pairs = loop.second >= 0

    def turns(activation: Activation) -> Iterable[Any]:
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

    return turns


#: cel-go prints the types of its implementation.
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
    """`all` (stop False) or `exists` (stop True): errors wait for a turn that decides."""
    turns, test = _items(loop), predicate.run
    first, second = loop.first, loop.second
    turn_cost = condition_cost + 1 + predicate.cost
    go_on = not stop

    def run(activation: Activation) -> Any:
        waiting: Exception | None = None
        rest = iter(turns(activation))
        for item in rest:
            activation[COST] += turn_cost
            if activation[COST] > activation[LIMIT]:
                check_budget(activation)
            if second < 0:
                activation[first] = item
            else:
                activation[first], activation[second] = item
            try:
                value = test(activation)
            except ABSORBED as error:
                waiting = waiting or error
                continue
            if value is go_on:
                continue
            if value is stop:
                # The condition is looked at once more where a turn is left.
                if next(rest, _END) is not _END:
                    activation[COST] += condition_cost
                return stop
            waiting = waiting or NoSuchOverload()
        if waiting is not None:
            raise waiting
        return go_on

    return Code(run, loop.range.cost + 1)


@dataclass(frozen=True, slots=True)
class Step:
    """One turn of a gathering fold: its parts and what it costs. `condition` is None without a filter."""

    condition: Code | None
    value: Code
    taken_cost: int


def transform_list(loop: Loop, step: Step) -> Code:
    """`map`, `filter` and `transformList`: appends in place instead of adding lists. After an error cel-go goes on to
    the end, and so does the price."""
    turns, make = _items(loop), step.value.run
    first, second = loop.first, loop.second
    test, test_cost = (None, 0) if step.condition is None else (step.condition.run, step.condition.cost)
    taken_cost = step.taken_cost

    def passes(activation: Activation) -> bool:
        activation[COST] += test_cost
        if activation[COST] > activation[LIMIT]:
            check_budget(activation)
        value = test(activation) if test is not None else True
        if value is True or value is False:
            return value
        raise NoSuchOverload

    def run(activation: Activation) -> Any:
        made: list[Any] = []
        waiting: Exception | None = None
        for item in turns(activation):
            if second < 0:
                activation[first] = item
            else:
                activation[first], activation[second] = item
            try:
                if test is not None and not passes(activation):
                    continue
            except ABSORBED as error:
                # A failed condition takes the place of what was gathered, the errors before it included.
                waiting = error
                continue
            activation[COST] += taken_cost
            if activation[COST] > activation[LIMIT]:
                check_budget(activation)
            try:
                made.append(make(activation))
            except ABSORBED as error:
                waiting = waiting or error
        if waiting is not None:
            raise waiting
        return made

    return Code(run, loop.range.cost + 1)


def transform_map(loop: Loop, step: Step, insert: Callable[[Activation, dict[Any, Any]], None]) -> Code:
    """`transformMap` and `transformMapEntry`: inserts in place. `insert` adds the turn's entries."""
    turns = _items(loop)
    first, second = loop.first, loop.second
    test, test_cost = (None, 0) if step.condition is None else (step.condition.run, step.condition.cost)
    taken_cost = step.taken_cost

    def run(activation: Activation) -> Any:
        made: dict[Any, Any] = {}
        for item in turns(activation):
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
            activation[COST] += taken_cost
            insert(activation, made)
        return made

    return Code(run, loop.range.cost + 1)


def bind(name_slot: int, result: Code) -> Code:
    """`cel.bind`: the value is made when it is first used (see `bound`)."""
    run_result = result.run

    def run(activation: Activation) -> Any:
        activation[name_slot] = UNSET
        return run_result(activation)

    return Code(run, result.cost)


def bound_variable(slot: int, value: Code) -> Code:
    """A variable of `cel.bind`."""
    make, cost = value.run, value.cost

    def run(activation: Activation) -> Any:
        found = activation[slot]
        if found is UNSET:
            activation[COST] += cost
            found = activation[slot] = make(activation)
        return found

    return Code(run, 1, True, 1)


def count(loop: Loop, predicate: Code) -> Code:
    """`exists_one`: counts to the end."""
    turns, test, cost = _items(loop, 2), predicate.run, predicate.cost
    first, second = loop.first, loop.second

    def run(activation: Activation) -> Any:
        found = 0
        waiting: Exception | None = None
        for item in turns(activation):
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
                waiting = error
                continue
            if value is True:
                activation[COST] += 2
                found += 1
            elif value is not False:
                waiting = NoSuchOverload()
        if waiting is not None:
            raise waiting
        return found == 1

    # The result compares the count with 1: a step, and the shorter of two numbers.
    return Code(run, loop.range.cost + 2)
