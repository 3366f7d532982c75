"""How functions, macros and types are declared: the form in which libraries hand themselves to an environment.

Written by the standard library, by `ext` and by `libraries`; read by the checker (signatures), the compiler
(calls, run-time costs) and the estimate. Invariant: an overload id names one signature in the whole package,
because costs are looked up by it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from atoll.machinery.cel.sizes import CallEstimate, SizeEstimate
from atoll.machinery.cel.syntax.ast import Expr
from atoll.machinery.cel.syntax.expansion import Macro
from atoll.machinery.cel.types import Type

#: Run-time cost of a call: (overload id, arguments with the target first, result). None leaves it to the default.
#: The overload id is "" where dyn left several overloads open.
RuntimeCost = Callable[[str, Sequence[Any], Any], int | None]


class Node(Protocol):
    """An expression as the static estimate shows it to functions and size estimators."""

    @property
    def path(self) -> tuple[str, ...]:
        """Variable, then field names, `@items`, `@keys`, `@values`; empty when not reachable from a variable."""

    @property
    def type(self) -> Type:
        """The checked type."""

    @property
    def expr(self) -> Expr | None:
        """The expression; None for the items of a list."""

    @property
    def computed_size(self) -> SizeEstimate | None:
        """The size as far as the expression or the estimator tells."""


class SizeEstimator(Protocol):
    """Sizes of data that only its declaration knows (maxLength, maxItems, maxProperties)."""

    def size(self, node: Node) -> SizeEstimate | None:
        """The size of the data at `node.path` of type `node.type`; None when nothing is known."""


@dataclass(frozen=True, slots=True)
class CallSite:
    """One call as the static estimate sees it. `target` is None for calls that are no member calls."""

    function: str
    overload: str
    target: Node | None
    arguments: Sequence[Node]
    sizes: SizeEstimator

    def size(self, node: Node) -> SizeEstimate:
        """The computed size, else the estimator's, else 0 to 2^64-1."""
        known = node.computed_size
        if known is None:
            known = self.sizes.size(node)
        return SizeEstimate(0, (1 << 64) - 1) if known is None else known


#: Static cost of a call without its arguments. None leaves it to the default.
Estimate = Callable[[CallSite], CallEstimate | None]


@dataclass(frozen=True, slots=True)
class Overload:
    """One signature. `member` overloads have the target as first parameter.

    `call` gets plain values and raises EvaluationError. It sees only values of the declared types: where dyn
    left a type open, the compiled call tests the arguments and raises NoSuchOverload itself.
    `cost` and `estimate` win over those of a library's tables. `guarded` False says that `call` looks at its
    arguments itself. `pattern_at` is the index of an argument that is a pattern: one that is written out and does not
    compile fails the program, not the evaluation.
    """

    id: str
    parameters: tuple[Type, ...]
    result: Type
    call: Callable[..., Any]
    member: bool = False
    cost: RuntimeCost | None = None
    estimate: Estimate | None = None
    guarded: bool = True
    pattern_at: int | None = None


@dataclass(frozen=True, slots=True)
class Function:
    """A name and its overloads. The same name in two libraries adds up."""

    name: str
    overloads: tuple[Overload, ...]


@dataclass(frozen=True, slots=True)
class Library:
    """What a library adds to an environment.

    `types`: names that stand for a type in expressions (`net.IP`), also the types of its opaque values.
    `constants`: names with a value, `name -> (type, value)`.
    `costs`, `estimates`: by function name, asked for every overload of it whichever library declared it, after
    the overload's own and before the default (Kubernetes prices functions of cel-go's libraries so).
    """

    name: str
    functions: tuple[Function, ...] = ()
    types: tuple[Type, ...] = ()
    constants: Mapping[str, tuple[Type, Any]] = field(default_factory=dict)
    macros: tuple[Macro, ...] = ()
    costs: Mapping[str, RuntimeCost] = field(default_factory=dict)
    estimates: Mapping[str, Estimate] = field(default_factory=dict)
