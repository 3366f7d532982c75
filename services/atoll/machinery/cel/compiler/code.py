"""What compiling an expression gives: a closure and what is known about it.

Passed between the parts of the compiler. Invariant: running `run` adds only what `cost` does not say to the
frame's cost; whoever runs it adds `cost`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from atoll.machinery.cel.compiler.activation import Eval


class _Unset:
    __slots__ = ()


UNSET: Final = _Unset()


@dataclass(slots=True)
class Code:
    """`attribute` marks a path from a variable or a value, which cel-go resolves as one step; `base` is the part of
    `cost` that it charges for that step itself, and leaves out where the path is a branch of `?:`, an index or a
    presence test. `constant` is the value where it is known. `slot` and `keys` describe a path through objects
    from a variable, so that longer paths become one closure.
    """

    run: Eval
    cost: int = 0
    attribute: bool = False
    base: int = 0
    constant: Any = UNSET
    slot: int = -1
    keys: tuple[str, ...] = ()

    @property
    def is_constant(self) -> bool:
        """Whether the value is known."""
        return self.constant is not UNSET

    @property
    def inner_cost(self) -> int:
        """The cost where the step itself is not charged."""
        return self.cost - self.base


def constant(value: Any) -> Code:
    """A value that is known; cel-go charges nothing for it."""
    return Code(lambda activation: value, constant=value)
