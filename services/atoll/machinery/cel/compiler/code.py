"""The result of compiling a node: a closure and its static properties.

Passed between the parts of the compiler. Invariant: running `run` adds to the cost of the activation only what `cost`
does not include; the caller of `run` adds `cost`.
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
    """`attribute` marks a path from a variable or a value, which cel-go resolves as one step.

    `base` is the part of `cost` for that step itself, which cel-go does not charge if the path is a branch of `?:`, an
    index or a presence test. `constant` is the value if it is known at compile time. `slot` and `keys` describe a path
    through objects from a variable, so that longer paths become one closure.
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
        """Whether the value is known at compile time."""
        return self.constant is not UNSET

    @property
    def inner_cost(self) -> int:
        """The cost without that of the step itself."""
        return self.cost - self.base


def constant(value: Any) -> Code:
    """Return the code of a constant; cel-go charges nothing for it."""
    return Code(lambda activation: value, constant=value)
