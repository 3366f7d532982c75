"""Assignability of types, with type variables, as cel-go's checker decides it.

Called by the checker. Invariant: a failed attempt leaves the bindings unchanged; a successful one may bind variables.
"""

from __future__ import annotations

from collections.abc import Sequence

from atoll.machinery.cel.types import DYN, Kind, Type, is_dyn

_NULLABLE = frozenset({Kind.OPAQUE, Kind.OBJECT, Kind.ANY, Kind.DURATION, Kind.TIMESTAMP})
_NESTED = frozenset({Kind.OPAQUE, Kind.LIST, Kind.MAP})


class Bindings:
    """The bindings of type variables so far."""

    __slots__ = ("_bound", "_trail")

    def __init__(self) -> None:
        self._bound: dict[str, Type] = {}
        #: The changes of the running attempt: names and their previous bindings.
        self._trail: list[tuple[str, Type | None]] = []

    def assignable(self, to: Type, given: Type) -> bool:
        """Report whether a `given` value is assignable to `to`; if so, bind variables of both."""
        return self.all_assignable((to,), (given,))

    def all_assignable(self, to: Sequence[Type], given: Sequence[Type]) -> bool:
        """The same for a list of arguments: all or none."""
        self._trail.clear()
        if self._lists(to, given):
            return True
        for name, before in reversed(self._trail):
            if before is None:
                del self._bound[name]
            else:
                self._bound[name] = before
        return False

    def _bind(self, name: str, to: Type) -> None:
        self._trail.append((name, self._bound.get(name)))
        self._bound[name] = to

    def resolve(self, of: Type, *, free_to_dyn: bool = False) -> Type:
        """Return the type with its bound variables replaced, and free variables replaced by dyn on request."""
        if of.kind is Kind.PARAMETER:
            bound = self._bound.get(of.name)
            if bound is not None:
                return self.resolve(bound, free_to_dyn=free_to_dyn)
            return DYN if free_to_dyn else of
        if not of.parameters:
            return of
        parameters = tuple(self.resolve(p, free_to_dyn=free_to_dyn) for p in of.parameters)
        return of if parameters == of.parameters else Type(of.kind, of.name, parameters)

    def _lists(self, to: Sequence[Type], given: Sequence[Type]) -> bool:
        return len(to) == len(given) and all(self._one(a, b) for a, b in zip(to, given, strict=True))

    def _one(self, to: Type, given: Type) -> bool:
        if given.kind is Kind.PARAMETER:
            valid, bound = self._substitute(to, given)
            if valid or bound:
                return valid
        if to.kind is Kind.PARAMETER:
            return self._substitute(given, to)[0]
        if is_dyn(to) or is_dyn(given) or Kind.ERROR in (to.kind, given.kind):
            return True
        if to.kind is Kind.NULL or given.kind is Kind.NULL:
            other = given if to.kind is Kind.NULL else to
            return other.kind is Kind.NULL or other.kind in _NULLABLE or other.nullable
        if to.kind is Kind.TYPE or given.kind is Kind.TYPE:
            return to.kind is given.kind
        if to.kind in _NESTED:
            return to.kind is given.kind and to.name == given.name and self._lists(to.parameters, given.parameters)
        return to.kind is given.kind and to.name == given.name

    def _substitute(self, value: Type, variable: Type) -> tuple[bool, bool]:
        """Unify `value` with a type variable: (possible, the variable was bound already)."""
        if value == variable:
            return True, True
        bound = self._bound.get(variable.name)
        if bound is None:
            if self._does_not_occur(variable, value):
                self._bind(variable.name, value)
                return True, False
            return False, False
        if value == bound:
            return True, True
        if not self._one(value, bound):
            return False, True
        general = most_general(value, bound)
        if self._does_not_occur(variable, general):
            self._bind(variable.name, general)
        return True, True

    def _does_not_occur(self, variable: Type, within: Type) -> bool:
        if variable == within:
            return False
        if within.kind is Kind.PARAMETER:
            bound = self._bound.get(within.name)
            return bound is None or self._does_not_occur(variable, bound)
        return all(self._does_not_occur(variable, p) for p in within.parameters)


def most_general(first: Type, second: Type) -> Type:
    """Return the less specific of two types that unify."""
    return first if _less_specific(first, second) else second


def _less_specific(first: Type, second: Type) -> bool:
    if is_dyn(first) or first.kind is Kind.PARAMETER:
        return True
    if is_dyn(second) or second.kind is Kind.PARAMETER or first.kind is not second.kind:
        return False
    if first.kind in _NESTED:
        same = first.name == second.name and len(first.parameters) == len(second.parameters)
        return same and all(_less_specific(a, b) for a, b in zip(first.parameters, second.parameters, strict=True))
    return first.kind is Kind.TYPE or first == second


def signature(types: Sequence[Type], member: bool) -> str:
    """Return `(int, string)`, or `int.(string)` for a member call."""
    shown = [str(t) for t in types]
    if member:
        return f"{shown[0]}.({', '.join(shown[1:])})"
    return f"({', '.join(shown)})"
