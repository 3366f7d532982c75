"""Closures for folds: the loops of all, exists, map, filter and their fellows, and `cel.bind`.

Called by the compiler. The macros' shapes get loops of their own; any other fold runs as it is written.
Invariant: the cost of each turn is charged before the turn, and each turn looks at the limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from atoll.machinery.cel.compiler.activation import ABSORBED, COST, LIMIT, Frame, overrun
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


Turns = Callable[[Frame], Iterable[Any]]


def _items(loop: Loop, own_cost: int = 1) -> Turns:
    """The turns of a fold. With two variables each turn is a pair. Without a range the fold costs nothing itself."""
    source = loop.range.run
    pairs = loop.second >= 0

    def turns(frame: Frame) -> Iterable[Any]:
        try:
            values = source(frame)
        except ABSORBED:
            frame[COST] -= own_cost
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

    def run(frame: Frame) -> Any:
        waiting: Exception | None = None
        rest = iter(turns(frame))
        for item in rest:
            frame[COST] += turn_cost
            if frame[COST] > frame[LIMIT]:
                overrun(frame)
            if second < 0:
                frame[first] = item
            else:
                frame[first], frame[second] = item
            try:
                value = test(frame)
            except ABSORBED as error:
                waiting = waiting or error
                continue
            if value is go_on:
                continue
            if value is stop:
                # The condition is looked at once more where a turn is left.
                if next(rest, _END) is not _END:
                    frame[COST] += condition_cost
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


def gather_list(loop: Loop, step: Step) -> Code:
    """`map`, `filter` and `transformList`: appends in place instead of adding lists. After an error cel-go goes on to
    the end, and so does the price."""
    turns, make = _items(loop), step.value.run
    first, second = loop.first, loop.second
    test, test_cost = (None, 0) if step.condition is None else (step.condition.run, step.condition.cost)
    taken_cost = step.taken_cost

    def passes(frame: Frame) -> bool:
        frame[COST] += test_cost
        if frame[COST] > frame[LIMIT]:
            overrun(frame)
        value = test(frame) if test is not None else True
        if value is True or value is False:
            return value
        raise NoSuchOverload

    def run(frame: Frame) -> Any:
        made: list[Any] = []
        waiting: Exception | None = None
        for item in turns(frame):
            if second < 0:
                frame[first] = item
            else:
                frame[first], frame[second] = item
            try:
                if test is not None and not passes(frame):
                    continue
            except ABSORBED as error:
                # A failed condition takes the place of what was gathered, the errors before it included.
                waiting = error
                continue
            frame[COST] += taken_cost
            if frame[COST] > frame[LIMIT]:
                overrun(frame)
            try:
                made.append(make(frame))
            except ABSORBED as error:
                waiting = waiting or error
        if waiting is not None:
            raise waiting
        return made

    return Code(run, loop.range.cost + 1)


def gather_map(loop: Loop, step: Step, insert: Callable[[Frame, dict[Any, Any]], None]) -> Code:
    """`transformMap` and `transformMapEntry`: inserts in place. `insert` adds the turn's entries."""
    turns = _items(loop)
    first, second = loop.first, loop.second
    test, test_cost = (None, 0) if step.condition is None else (step.condition.run, step.condition.cost)
    taken_cost = step.taken_cost

    def run(frame: Frame) -> Any:
        made: dict[Any, Any] = {}
        for item in turns(frame):
            frame[first], frame[second] = item
            frame[COST] += test_cost
            if frame[COST] > frame[LIMIT]:
                overrun(frame)
            if test is not None:
                value = test(frame)
                if value is False:
                    continue
                if value is not True:
                    raise NoSuchOverload
            frame[COST] += taken_cost
            insert(frame, made)
        return made

    return Code(run, loop.range.cost + 1)


def bind(name_slot: int, result: Code) -> Code:
    """`cel.bind`: the value is made when it is first used (see `bound`)."""
    run_result = result.run

    def run(frame: Frame) -> Any:
        frame[name_slot] = UNSET
        return run_result(frame)

    return Code(run, result.cost)


def bound(slot: int, value: Code) -> Code:
    """A variable of `cel.bind`."""
    make, cost = value.run, value.cost

    def run(frame: Frame) -> Any:
        found = frame[slot]
        if found is UNSET:
            frame[COST] += cost
            found = frame[slot] = make(frame)
        return found

    return Code(run, 1, True, 1)


def count(loop: Loop, predicate: Code) -> Code:
    """`exists_one`: counts to the end."""
    turns, test, cost = _items(loop, 2), predicate.run, predicate.cost
    first, second = loop.first, loop.second

    def run(frame: Frame) -> Any:
        found = 0
        waiting: Exception | None = None
        for item in turns(frame):
            frame[COST] += cost
            if frame[COST] > frame[LIMIT]:
                overrun(frame)
            if second < 0:
                frame[first] = item
            else:
                frame[first], frame[second] = item
            try:
                value = test(frame)
            except ABSORBED as error:
                waiting = error
                continue
            if value is True:
                frame[COST] += 2
                found += 1
            elif value is not False:
                waiting = NoSuchOverload()
        if waiting is not None:
            raise waiting
        return found == 1

    # The result compares the count with 1: a step, and the shorter of two numbers.
    return Code(run, loop.range.cost + 2)
