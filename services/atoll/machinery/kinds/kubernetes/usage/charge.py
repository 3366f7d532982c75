"""What one object uses of quotas, and which scopes of quotas it is in.

Evaluators make it of stored JSON. Invariant: amounts are what Kubernetes' evaluators of the same kind count, by the
name of the resource in `spec.hard`; a name that is absent uses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal

import msgspec

from atoll.machinery.meta import quantity

#: Whole for what is counted, exact decimals of what is measured.
Amount = int | Decimal
#: Amounts as an object's JSON has them.
Quantities = dict[str, str | int | float]
Totals = dict[str, Decimal]


class Scope(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One requirement of a quota: the object is in the scope (`Exists`), and its value there is one of `values`."""

    name: str
    operator: str = "Exists"
    values: tuple[str, ...] = ()


class Charge(msgspec.Struct, frozen=True, gc=False):
    """`scopes` are those that the kind has, with the values of the object there; None: it is not in the scope.

    `requested` is what a user can ask for in an update: while it is equal, no quota refuses a change. `missing` are the
    names of what a quota may require, each with the containers that do not say it.
    """

    amounts: Mapping[str, Amount]
    scopes: Mapping[str, tuple[str, ...] | None] = {}
    requested: object = None
    missing: Mapping[str, tuple[str, ...]] = {}

    def amount(self, resource: str, scopes: Iterable[Scope]) -> Amount:
        """Return what a quota with the scopes counts."""
        used = self.amounts.get(resource, 0)
        return used if used and self.is_in(scopes) else 0

    def is_in(self, scopes: Iterable[Scope]) -> bool:
        return all(self._matches(scope) for scope in scopes)

    def _matches(self, scope: Scope) -> bool:
        if scope.name not in self.scopes:
            return False
        found = self.scopes[scope.name]
        match scope.operator:
            case "In":
                return any(value in scope.values for value in found or ())
            case "NotIn":
                return found is None or any(value not in scope.values for value in found)
            case "DoesNotExist":
                return found is None
        return found is not None


#: The use of what is not there, or cannot be read.
NOTHING = Charge({})


def totals(quantities: Quantities | None) -> Totals:
    """Return the values of quantities, without those that are none."""
    found = {}
    for name, value in (quantities or {}).items():
        try:
            found[name] = quantity.amount(value)
        except ValueError:
            continue
    return found


def plus(one: Amount, other: Amount) -> Amount:
    """Return the exact sum; whole of two whole amounts."""
    if isinstance(one, int) and isinstance(other, int):
        return one + other
    return quantity.add(Decimal(one), Decimal(other))


def in_all(amounts: Iterable[Amount]) -> Amount:
    total: Amount = 0
    for amount in amounts:
        total = plus(total, amount)
    return total
