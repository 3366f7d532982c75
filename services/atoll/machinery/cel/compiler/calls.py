"""Closures for calls, list literals and map literals, with their prices.

Called by the compiler. Invariant: the price of a call is charged after its arguments, and a failed argument or call is
charged as cel-go charges it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from atoll.machinery.cel.compiler.activation import ABSORBED, COST, LIMIT, Activation, Eval, charge_copies, check_budget
from atoll.machinery.cel.compiler.code import Code
from atoll.machinery.cel.compiler.error_costs import (
    ERROR_VALUE,
    costs_after,
    evaluate_in_order,
    failed_call_price,
    first_operand,
    value_or_error,
)
from atoll.machinery.cel.cost.runtime_cost import Price
from atoll.machinery.cel.dispatch import Implementation
from atoll.machinery.cel.errors import EvaluationError, NoSuchOverload
from atoll.machinery.cel.structures import StructureType
from atoll.machinery.cel.values import Optional_


def call_code(target: Implementation, arguments: Sequence[Code], price: int | Price, *, stops: bool = False) -> Code:
    """Return the call of a function with its price.

    A call with `stops` charges nothing for itself after a failed argument; neither do calls with more than two
    arguments.
    """
    cost = sum(argument.cost for argument in arguments)
    if isinstance(price, int):
        cost += price
        return Code(_plain(target, arguments, price if stops or len(arguments) > 2 else None), cost)
    if stops or len(arguments) > 2:
        return Code(_stopping(target, arguments, price), cost)
    return Code(_priced(target, arguments, price), cost)


def _plain(target: Implementation, arguments: Sequence[Code], refund: int | None) -> Eval:
    if refund is not None:
        values = evaluate_in_order(arguments, refund)
        return lambda activation: _count_list(activation, target(*values(activation)))
    if len(arguments) == 2:
        first, second = first_operand(*arguments), arguments[1].run
        return lambda activation: _count_list(activation, target(first(activation), second(activation)))
    runs = [argument.run for argument in arguments]
    if len(runs) == 1:
        only = runs[0]
        return lambda activation: _count_list(activation, target(only(activation)))
    return lambda activation: _count_list(activation, target())


def _count_list(activation: Activation, result: Any) -> Any:
    """Return the result and account for it if it is a list, which may be long although its price is low."""
    if type(result) is list:
        charge_copies(activation, len(result))
    return result


def _stopping(target: Implementation, codes: Sequence[Code], price: Price) -> Eval:
    runs, refunds = [code.run for code in codes], costs_after(codes)

    def run(activation: Activation) -> Any:
        arguments: list[Any] = []
        try:
            for each in runs:
                arguments.append(each(activation))
        except ABSORBED:
            activation[COST] -= refunds[len(arguments)]
            arguments.append(ERROR_VALUE)
            if len(arguments) == len(runs):
                activation[COST] += failed_call_price(price, arguments)
            raise
        return _call_and_charge(activation, target, arguments, price)

    return run


def _priced(target: Implementation, codes: Sequence[Code], price: Price) -> Eval:
    runs = [code.run for code in codes]

    def run(activation: Activation) -> Any:
        arguments: list[Any] = []
        try:
            for each in runs:
                arguments.append(each(activation))
        except ABSORBED:
            later = runs[len(arguments) + 1 :]
            arguments += [ERROR_VALUE, *(value_or_error(each, activation) for each in later)]
            activation[COST] += failed_call_price(price, arguments)
            raise
        return _call_and_charge(activation, target, arguments, price)

    return run


def _call_and_charge(activation: Activation, target: Implementation, arguments: list[Any], price: Price) -> Any:
    try:
        result = target(*arguments)
    except ABSORBED:
        activation[COST] += failed_call_price(price, arguments)
        raise
    activation[COST] += price(arguments, result)
    if activation[COST] > activation[LIMIT]:
        check_budget(activation)
    return _count_list(activation, result)


def or_value(optional: Code, other: Code, *, unwrap: bool) -> Code:
    """Return `a.orValue(b)` or `a.or(b)`: the second is evaluated only if the first is empty, and the call is free."""
    first, second, cost = optional.run, other.run, other.cost

    def run(activation: Activation) -> Any:
        value = first(activation)
        if not isinstance(value, Optional_):
            raise NoSuchOverload
        if value.has_value:
            return value.value if unwrap else value
        activation[COST] += cost
        return second(activation)

    return Code(run, optional.cost)


def list_code(items: Sequence[Code], optional: frozenset[int], cost: int) -> Code:
    """`[a, ?b]`."""
    cost += sum(item.cost for item in items)
    values = evaluate_in_order(items)
    if not optional:
        return Code(values, cost)
    marked = [index in optional for index in range(len(items))]

    def run(activation: Activation) -> Any:
        result = []
        for value, is_optional in zip(values(activation), marked, strict=True):
            if not is_optional:
                result.append(value)
            elif not isinstance(value, Optional_):
                raise EvaluationError(f"cannot initialize optional list element from non-optional value {value}")
            elif value.has_value:
                result.append(value.value)
        return result

    return Code(run, cost)


class EntryCode(NamedTuple):
    """The code of one entry of a map or a struct."""

    key: Code
    value: Code
    optional: bool


def map_code(entries: Sequence[EntryCode], cost: int) -> Code:
    """Return `{k: v, ?k: v}`.

    The last value of a repeated key stays, as in cel-go (the specification makes it an error).
    """
    parts = [part for entry in entries for part in (entry.key, entry.value)]
    values = evaluate_in_order(parts)
    marked = [entry.optional for entry in entries]

    def run(activation: Activation) -> Any:
        result: dict[Any, Any] = {}
        found = iter(values(activation))
        for key, value, optional in zip(found, found, marked, strict=True):
            if not optional:
                result[key] = value
            elif not isinstance(value, Optional_):
                raise EvaluationError(f"cannot initialize optional entry '{key}' from non-optional value {value}")
            elif value.has_value:
                result[key] = value.value
        return result

    return Code(run, cost + sum(part.cost for part in parts))


def structure_code(of: StructureType, fields: Code) -> Code:
    """Return the structure of a type with the fields of a map."""
    run = fields.run
    return Code(lambda activation: of.make(of, run(activation)), fields.cost)
