"""Specialised closures for the operators that rules consist of: logic, comparisons, sums, membership.

The compiler uses them by overload id in place of a general call. Invariant: for values of its types each has the same
result as the `call` of the overload.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from atoll.machinery.cel.compiler.activation import ABSORBED, COST, LIMIT, Activation, Eval, charge_copies, check_budget
from atoll.machinery.cel.compiler.code import Code, constant
from atoll.machinery.cel.compiler.error_costs import value_or_error
from atoll.machinery.cel.errors import EvaluationError, NoSuchOverload
from atoll.machinery.cel.values import INT_MAX, INT_MIN

_Binary = Callable[[Eval, Eval], Eval]


def logic(terms: Sequence[Code], stop: bool) -> Code:
    """Return `&&` (stop False) or `||` (stop True) over all terms: the first term with the value `stop` decides and
    absorbs errors.
    """
    if len(terms) == 2:
        return Code(_two(terms[0].run, terms[1], stop), terms[0].cost)
    pairs = [(terms[0].run, 0), *((term.run, term.cost) for term in terms[1:])]
    go_on = not stop

    def run(activation: Activation) -> Any:
        pending: Exception | None = None
        for term, cost in pairs:
            activation[COST] += cost
            try:
                value = term(activation)
            except ABSORBED as error:
                pending = pending or error
                continue
            if value is stop:
                return stop
            if value is not go_on:
                pending = pending or NoSuchOverload()
        if pending is not None:
            raise pending
        return go_on

    return Code(run, terms[0].cost)


def _two(left: Eval, second: Code, stop: bool) -> Eval:
    right, cost, go_on = second.run, second.cost, not stop

    def run(activation: Activation) -> Any:
        try:
            value = left(activation)
        except ABSORBED as error:
            pending: Exception = error
        else:
            if value is stop:
                return stop
            if value is go_on:
                activation[COST] += cost
                value = right(activation)
                if value is stop or value is go_on:
                    return value
                raise NoSuchOverload
            pending = NoSuchOverload()
        activation[COST] += cost
        try:
            if right(activation) is stop:
                return stop
        except ABSORBED:
            # Of two errors the first is reported.
            pass
        raise pending

    return run


def conditional(condition: Code, if_true: Code, if_false: Code) -> Code:
    """Return `c ? t : f`; a path in a branch is not charged for its step."""
    test, yes, no = condition.run, if_true.run, if_false.run
    yes_cost, no_cost = if_true.inner_cost, if_false.inner_cost

    def run(activation: Activation) -> Any:
        value = test(activation)
        if value is True:
            activation[COST] += yes_cost
            return yes(activation)
        if value is False:
            activation[COST] += no_cost
            return no(activation)
        raise NoSuchOverload

    return Code(run, condition.cost, attribute=True)


def negation(operand: Eval) -> Eval:
    """`!x`."""

    def run(activation: Activation) -> Any:
        value = operand(activation)
        if value is True or value is False:
            return not value
        raise NoSuchOverload

    return run


def _less(a: Eval, b: Eval) -> Eval:
    return lambda activation: a(activation) < b(activation)


def _less_equals(a: Eval, b: Eval) -> Eval:
    return lambda activation: a(activation) <= b(activation)


def _greater(a: Eval, b: Eval) -> Eval:
    return lambda activation: a(activation) > b(activation)


def _greater_equals(a: Eval, b: Eval) -> Eval:
    return lambda activation: a(activation) >= b(activation)


def _add_int(a: Eval, b: Eval) -> Eval:
    def run(activation: Activation) -> Any:
        value = a(activation) + b(activation)
        if INT_MIN <= value <= INT_MAX:
            return value
        raise EvaluationError("integer overflow")

    return run


def _subtract_int(a: Eval, b: Eval) -> Eval:
    def run(activation: Activation) -> Any:
        value = a(activation) - b(activation)
        if INT_MIN <= value <= INT_MAX:
            return value
        raise EvaluationError("integer overflow")

    return run


def _multiply_int(a: Eval, b: Eval) -> Eval:
    def run(activation: Activation) -> Any:
        value = a(activation) * b(activation)
        if INT_MIN <= value <= INT_MAX:
            return value
        raise EvaluationError("integer overflow")

    return run


def _add_list(a: Eval, b: Eval) -> Eval:
    def run(activation: Activation) -> Any:
        value = a(activation) + b(activation)
        charge_copies(activation, len(value))
        return value

    return run


#: Overloads with a constant price.
BINARY: Final[dict[str, _Binary]] = {
    "add_int64": _add_int,
    "subtract_int64": _subtract_int,
    "multiply_int64": _multiply_int,
    "add_list": _add_list,
    **{f"less_{of}": _less for of in ("int64", "uint64", "int64_uint64", "uint64_int64")},
    **{f"less_equals_{of}": _less_equals for of in ("int64", "uint64", "int64_uint64", "uint64_int64")},
    **{f"greater_{of}": _greater for of in ("int64", "uint64", "int64_uint64", "uint64_int64")},
    **{f"greater_equals_{of}": _greater_equals for of in ("int64", "uint64", "int64_uint64", "uint64_int64")},
}


def equal_plain(a: Eval, b: Eval, negated: bool) -> Eval:
    """Return `==` or `!=` if Python's equality is CEL's: both sides are of one plain type."""
    if negated:
        return lambda activation: a(activation) != b(activation)
    return lambda activation: a(activation) == b(activation)


def equal_text(a: Eval, b: Eval, negated: bool) -> Eval:
    """Return `==` or `!=` of strings or bytes, with the price of traversing the shorter one."""

    def run(activation: Activation) -> Any:
        try:
            x = a(activation)
        except ABSORBED:
            # The other side is evaluated in any case; an error has size 1.
            size = len(value_or_error(b, activation))
            activation[COST] += min(size, 1)
            raise
        try:
            y = b(activation)
        except ABSORBED:
            activation[COST] += 1 if x else 0
            raise
        activation[COST] += (min(len(x), len(y)) + 9) // 10
        if activation[COST] > activation[LIMIT]:
            check_budget(activation)
        return (x == y) is not negated

    return run


def member_of_constants(value: Code, items: Sequence[Any], *, texts: bool, numbers: bool) -> Code:
    """Return `x in [literals]`, which cel-go turns into a set with free lookups.

    `texts` and `numbers` declare that the static type of the value is string, or int or uint.
    """
    if not items:
        return constant(False)
    inner = value.run
    kinds = {type(item) is bool for item in items}
    of_all = frozenset((type(item) is bool, item) for item in items)
    if (texts or numbers) and kinds == {False}:
        plain = frozenset(items)
        return Code(lambda activation: inner(activation) in plain, value.cost)

    def run(activation: Activation) -> Any:
        found = inner(activation)
        if isinstance(found, list | dict):
            return False
        return (type(found) is bool, found) in of_all

    return Code(run, value.cost)
