"""The rule by which amounts of containers make those of a Pod, for limits of ranges and for quotas alike.

Containers and sidecars (containers that start the Pod and stay) run together; each other container that starts the Pod
runs beside the sidecars that were started before it. Pure. Invariant: the sums are exact, and of equal amounts the
first stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar


class _Ordered(Protocol):
    def __gt__(self, other: Any, /) -> bool: ...


A = TypeVar("A", bound=_Ordered)


def of_pod(
    containers: Iterable[Mapping[str, A]], starting: Iterable[tuple[dict[str, A], bool]], plus: Callable[[A, A], A]
) -> dict[str, A]:
    """Return the amounts of a Pod by resource; `starting` has for each container whether it stays. `plus` adds two."""
    total: dict[str, A] = {}
    for amounts in containers:
        add(total, amounts, plus)
    sidecars: dict[str, A] = {}
    peak: dict[str, A] = {}
    for amounts, stays in starting:
        if stays:
            add(total, amounts, plus)
            add(sidecars, amounts, plus)
            raise_to(peak, sidecars)
        else:
            add(amounts, sidecars, plus)
            raise_to(peak, amounts)
    raise_to(total, peak)
    return total


def add(total: dict[str, A], more: Mapping[str, A], plus: Callable[[A, A], A]) -> None:
    """Add amounts to a total, by resource."""
    for name, amount in more.items():
        total[name] = plus(total[name], amount) if name in total else amount


def raise_to(total: dict[str, A], least: Mapping[str, A]) -> None:
    """Make every amount at least the other."""
    for name, amount in least.items():
        if name not in total or amount > total[name]:
            total[name] = amount
