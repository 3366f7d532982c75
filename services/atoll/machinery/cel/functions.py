"""Declarations of functions and libraries: what a library contributes to an environment.

The standard library, `ext` and `libraries` write them; the checker reads signatures, the compiler calls and run-time
costs, `cost` the estimates. Invariant: an overload id names one signature in the whole package, because costs are
looked up by it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from atoll.machinery.cel.sizes import UNKNOWN_SIZE, CallEstimate, SizeEstimate
from atoll.machinery.cel.syntax.ast import Expr
from atoll.machinery.cel.syntax.expansion import Macro
from atoll.machinery.cel.types import Type

#: Run-time cost of a call: (overload id, arguments with the receiver first, result). None selects the default.
#: The overload id is "" if dyn leaves several overloads open.
RuntimeCost = Callable[[str, Sequence[Any], Any], int | None]


class Node(Protocol):
    """An expression, as the static estimate presents it to functions and size estimators."""

    @property
    def path(self) -> tuple[str, ...]:
        """Variable, then field names, `@items`, `@keys`, `@values`; empty if no variable leads to it."""

    @property
    def type(self) -> Type:
        """The checked type."""

    @property
    def expr(self) -> Expr | None:
        """The expression; None for the items of a list."""

    @property
    def computed_size(self) -> SizeEstimate | None:
        """The size, as far as the expression or the size estimator determines it."""


class SizeEstimator(Protocol):
    """Sizes of data from its declaration (maxLength, maxItems, maxProperties)."""

    def size(self, node: Node) -> SizeEstimate | None:
        """Return the size of the data at `node.path` of type `node.type`; None if the declaration does not bound it."""


@dataclass(frozen=True, slots=True)
class CallSite:
    """One call, as the static estimate presents it to functions. `target` is None for calls without a receiver."""

    function: str
    overload: str
    target: Node | None
    arguments: Sequence[Node]
    sizes: SizeEstimator

    def size(self, node: Node) -> SizeEstimate:
        """Return the computed size, else the estimator's, else 0 to 2^64-1."""
        size = node.computed_size
        if size is None:
            size = self.sizes.size(node)
        return UNKNOWN_SIZE if size is None else size


#: Static cost of a call without its arguments. None selects the default.
Estimate = Callable[[CallSite], CallEstimate | None]


@dataclass(frozen=True, slots=True)
class Overload:
    """One signature. `member` overloads have the receiver as first parameter.

    `call` receives plain values and raises EvaluationError. It receives values of the declared types only: where dyn
    leaves a type open, the compiled call tests the arguments and raises NoSuchOverload itself. `cost` and `estimate`
    take precedence over the tables of libraries. `guarded` False declares that `call` tests its arguments itself.
    `pattern_at` is the index of an argument that is a pattern: a literal pattern that does not compile fails the
    program, not the evaluation.
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
    """A name and its overloads. Overloads of one name from several libraries are merged."""

    name: str
    overloads: tuple[Overload, ...]


@dataclass(frozen=True, slots=True)
class Library:
    """The contribution of a library to an environment.

    `types`: names that denote a type in expressions (`net.IP`), also the types of its opaque values. `constants`: names
    with a value, `name -> (type, value)`. `costs`, `estimates`: by function name. They apply to every overload of the
    function from any library, after the overload's own price and before the default: Kubernetes prices functions of
    cel-go's libraries this way. `find_type` declares object types by their name, after all declared names.
    """

    name: str
    functions: tuple[Function, ...] = ()
    types: tuple[Type, ...] = ()
    constants: Mapping[str, tuple[Type, Any]] = field(default_factory=dict)
    macros: tuple[Macro, ...] = ()
    costs: Mapping[str, RuntimeCost] = field(default_factory=dict)
    estimates: Mapping[str, Estimate] = field(default_factory=dict)
    find_type: Callable[[str], Type | None] | None = None
