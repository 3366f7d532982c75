"""`quantity(text)`, `isQuantity(text)`, and exact arithmetic and comparison of quantities.

Part of `base`. Kubernetes' equality accepts a parsed quantity on its right side, not a computed one: `quantity(...) ==
sum` is an error, `sum == quantity(...)` is not. This is kept, because stored rules rely on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from atoll.machinery.cel.errors import EvaluationError, NoSuchOverload
from atoll.machinery.cel.functions import Function, Library, Overload
from atoll.machinery.cel.libraries.kubernetes_value import KubernetesValue
from atoll.machinery.cel.libraries.values import quantities
from atoll.machinery.cel.libraries.values.quantities import Amount
from atoll.machinery.cel.types import BOOL, DOUBLE, INT, STRING, ObjectType

TYPE: Final = ObjectType("kubernetes.Quantity", {})


class Quantity(KubernetesValue):
    """A quantity as a CEL value; `is_computed` marks sums and differences."""

    __slots__ = ("amount", "is_computed")
    cel_type = TYPE

    def __init__(self, amount: Amount, *, is_computed: bool = False) -> None:
        self.amount = amount
        self.is_computed = is_computed

    def equals(self, other: Quantity) -> bool:
        if other.is_computed:
            raise NoSuchOverload
        return self.amount.compare(other.amount) == 0

    def __hash__(self) -> int:
        return hash(self.amount.approximate())


def parse(text: str) -> Quantity:
    """Return the quantity of a text. Raises EvaluationError."""
    try:
        return Quantity(quantities.parse(text))
    except ValueError as error:
        raise EvaluationError(str(error)) from None


def _is_quantity(text: str) -> bool:
    try:
        quantities.parse(text)
    except ValueError:
        return False
    return True


def _sign(value: Quantity) -> int:
    return value.amount.sign()


def _is_integer(value: Quantity) -> bool:
    return value.amount.integer() is not None


def _as_integer(value: Quantity) -> int:
    number = value.amount.integer()
    if number is None:
        raise EvaluationError("cannot convert value to integer")
    return number


def _as_float(value: Quantity) -> float:
    return value.amount.approximate()


def _arithmetic(left: Amount, right: Amount, operation: Callable[[Amount, Amount], Amount]) -> Quantity:
    try:
        return Quantity(operation(left, right), is_computed=True)
    except ValueError as error:
        raise EvaluationError(str(error)) from None


def _add(value: Quantity, other: Quantity) -> Quantity:
    return _arithmetic(value.amount, other.amount, Amount.add)


def _add_int(value: Quantity, other: int) -> Quantity:
    return _arithmetic(value.amount, quantities.whole(other), Amount.add)


def _sub(value: Quantity, other: Quantity) -> Quantity:
    return _arithmetic(value.amount, other.amount, Amount.subtract)


def _sub_int(value: Quantity, other: int) -> Quantity:
    return _arithmetic(value.amount, quantities.whole(other), Amount.subtract)


def _compare(value: Quantity, other: Quantity) -> int:
    return value.amount.compare(other.amount)


def _is_greater(value: Quantity, other: Quantity) -> bool:
    return value.amount.compare(other.amount) > 0


def _is_less(value: Quantity, other: Quantity) -> bool:
    return value.amount.compare(other.amount) < 0


LIBRARY: Final = Library(
    "kubernetes.quantity",
    (
        Function("quantity", (Overload("string_to_quantity", (STRING,), TYPE, parse),)),
        Function("isQuantity", (Overload("is_quantity_string", (STRING,), BOOL, _is_quantity),)),
        # Declared without a receiver, as in Kubernetes: sign(q), not q.sign().
        Function("sign", (Overload("quantity_sign", (TYPE,), INT, _sign),)),
        Function("isInteger", (Overload("quantity_is_integer", (TYPE,), BOOL, _is_integer, member=True),)),
        Function("asInteger", (Overload("quantity_get_int", (TYPE,), INT, _as_integer, member=True),)),
        Function("asApproximateFloat", (Overload("quantity_get_float", (TYPE,), DOUBLE, _as_float, member=True),)),
        Function(
            "isGreaterThan", (Overload("quantity_is_greater_than", (TYPE, TYPE), BOOL, _is_greater, member=True),)
        ),
        Function("isLessThan", (Overload("quantity_is_less_than", (TYPE, TYPE), BOOL, _is_less, member=True),)),
        Function("compareTo", (Overload("quantity_compare_to", (TYPE, TYPE), INT, _compare, member=True),)),
        Function(
            "add",
            (
                Overload("quantity_add", (TYPE, TYPE), TYPE, _add, member=True),
                Overload("quantity_add_int", (TYPE, INT), TYPE, _add_int, member=True),
            ),
        ),
        Function(
            "sub",
            (
                Overload("quantity_sub", (TYPE, TYPE), TYPE, _sub, member=True),
                Overload("quantity_sub_int", (TYPE, INT), TYPE, _sub_int, member=True),
            ),
        ),
    ),
)
