"""Declarations: the tables of an environment, and the scopes of loop variables above them.

The environment makes the tables, the checker looks names up. Invariant: tables do not change after the environment is
made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from atoll.machinery.cel.functions import Estimate, Overload, RuntimeCost
from atoll.machinery.cel.syntax.expansion import Macro
from atoll.machinery.cel.types import Type, TypeType
from atoll.machinery.cel.values import TypeValue


@dataclass(frozen=True, slots=True)
class Declaration:
    """The declaration of a name: a variable (`constant` False), or a constant or type with its value.

    `is_global` is False for loop variables.
    """

    name: str
    type: Type
    constant: bool = False
    value: Any = None
    is_global: bool = True


@dataclass(frozen=True, slots=True)
class Tables:
    """All declarations of an environment. Macros are keyed by name, number of arguments (-1: any), member."""

    names: Mapping[str, Declaration]
    functions: Mapping[str, tuple[Overload, ...]]
    macros: Mapping[tuple[str, int, bool], Macro]
    objects: Mapping[str, Type]
    costs: Mapping[str, tuple[RuntimeCost, ...]]
    estimates: Mapping[str, tuple[Estimate, ...]]
    container: str
    homogeneous: bool
    find_type: Callable[[str], Type | None] | None = None

    def declaration(self, name: str) -> Declaration | None:
        """Return the declaration of a qualified name."""
        found = self.names.get(name)
        if found is not None or self.find_type is None:
            return found
        of = self.find_type(name)
        return None if of is None else Declaration(name, TypeType(of), True, TypeValue(of.name))

    def object_type(self, name: str) -> Type | None:
        """Return the object type of a name."""
        found = self.objects.get(name)
        return self.find_type(name) if found is None and self.find_type is not None else found

    def candidates(self, name: str) -> Iterator[str]:
        """Yield the qualified names that a name may denote, the innermost namespace first."""
        if name.startswith("."):
            yield name[1:]
            return
        prefix = self.container
        while prefix:
            yield f"{prefix}.{name}"
            prefix = prefix.rpartition(".")[0]
        yield name


class Scope:
    """One level of local variables."""

    __slots__ = ("outer", "variables")

    def __init__(self, variables: dict[str, Type], outer: Scope | None) -> None:
        self.variables = variables
        self.outer = outer

    def find(self, name: str) -> Type | None:
        """Return the type of the innermost local variable of this name, or None."""
        scope: Scope | None = self
        while scope is not None:
            found = scope.variables.get(name)
            if found is not None:
                return found
            scope = scope.outer
        return None
