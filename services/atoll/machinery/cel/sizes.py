"""Sizes of values, and ranges of sizes and costs with arithmetic that saturates at 2^64-1, as in cel-go.

The run-time costs, the static estimate and functions with estimates of their own use it. Invariant: 0 <= min, max <=
2^64-1.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

from atoll.machinery.cel.values import Optional_, UInt

MAX: Final = (1 << 64) - 1

STRING_FACTOR: Final = 0.1
REGEX_FACTOR: Final = 0.25

_SCALARS: Final = frozenset({int, bool, float, UInt, type(None)})
_SIZED: Final = frozenset({str, bytes, list, dict})


def saturated_sum(x: int, y: int) -> int:
    """Return x + y, at most 2^64-1."""
    return min(x + y, MAX)


def saturated_product(x: int, y: int) -> int:
    """Return x * y, at most 2^64-1."""
    return min(x * y, MAX)


def scaled(x: int, factor: float) -> int:
    """Return x * factor, computed in doubles and rounded up, at most 2^64-1."""
    product = math.ceil(float(x) * factor)
    return min(product, MAX)


class CostEstimate(NamedTuple):
    """The range of the cost of an operation."""

    min: int
    max: int

    def plus(self, other: CostEstimate) -> CostEstimate:
        """Return the sum."""
        return CostEstimate(saturated_sum(self.min, other.min), saturated_sum(self.max, other.max))

    def times(self, other: CostEstimate) -> CostEstimate:
        """Return the product."""
        return CostEstimate(saturated_product(self.min, other.min), saturated_product(self.max, other.max))

    def scaled(self, factor: float) -> CostEstimate:
        """Return the range multiplied by a factor, rounded up."""
        return CostEstimate(scaled(self.min, factor), scaled(self.max, factor))

    def union(self, other: CostEstimate) -> CostEstimate:
        """Return the range that covers both."""
        return CostEstimate(min(self.min, other.min), max(self.max, other.max))


class SizeEstimate(NamedTuple):
    """The range of a size: code points, bytes, items or entries."""

    min: int
    max: int

    def plus(self, other: SizeEstimate) -> SizeEstimate:
        """Return the sum."""
        return SizeEstimate(saturated_sum(self.min, other.min), saturated_sum(self.max, other.max))

    def times(self, other: SizeEstimate) -> SizeEstimate:
        """Return the product."""
        return SizeEstimate(saturated_product(self.min, other.min), saturated_product(self.max, other.max))

    def scaled(self, factor: float) -> CostEstimate:
        """Return the cost of this many units at `factor` each, rounded up."""
        return CostEstimate(scaled(self.min, factor), scaled(self.max, factor))

    def cost_of_each(self, cost: CostEstimate) -> CostEstimate:
        """Return the cost of an operation of this cost on every item."""
        return CostEstimate(saturated_product(self.min, cost.min), saturated_product(self.max, cost.max))

    def union(self, other: SizeEstimate) -> SizeEstimate:
        """Return the range that covers both."""
        return SizeEstimate(min(self.min, other.min), max(self.max, other.max))


UNKNOWN_SIZE: Final = SizeEstimate(0, MAX)


class CallEstimate(NamedTuple):
    """The cost of a call without its arguments, and the size of its result if it is computable."""

    cost: CostEstimate
    size: SizeEstimate | None = None


def size_of(value: Any) -> int:
    """Return the size as `size()` returns it; 1 for values without a size."""
    kind = type(value)
    if kind in _SIZED:
        return len(value)
    if kind in _SCALARS:
        return 1
    if isinstance(value, list | dict):
        return len(value)
    if isinstance(value, Optional_):
        return size_of(value.value) if value.has_value else 1
    sized = getattr(value, "cel_size", None)
    return 1 if sized is None else int(sized())
