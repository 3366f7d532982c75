"""Whether an expression compares whole objects, or lists and maps of them.

`Program` answers it for callers whose objects hold lists that are equal in any order: only for such expressions do
they have to convert an object as a whole beforehand. Invariant: no such comparison is missed; one whose operands' types
`dyn()` hid counts.
"""

from __future__ import annotations

from typing import Final

from atoll.machinery.cel.checker.checker import CheckedExpr
from atoll.machinery.cel.syntax.ast import Call, walk
from atoll.machinery.cel.types import Kind, Type

#: Functions that ask whether values are equal, and the one that hides what it is given.
_COMPARING: Final = frozenset(
    {
        "_==_",
        "_!=_",
        "@in",
        "indexOf",
        "lastIndexOf",
        "distinct",
        "includes",
        "sets.contains",
        "sets.equivalent",
        "sets.intersects",
        "dyn",
    }
)


def compares_structures(checked: CheckedExpr) -> bool:
    """Whether any comparison in a checked tree may be one of objects, or of lists or maps of them."""
    return any(isinstance(expr, Call) and _compares(expr, checked) for expr in walk(checked.tree))


def _compares(call: Call, checked: CheckedExpr) -> bool:
    operands = call.arguments if call.target is None else [call.target, *call.arguments]
    return _name(call) in _COMPARING and any(_is_structure(checked.types.get(each.id)) for each in operands)


def _name(call: Call) -> str:
    """The function's full name: the checker leaves that of a qualified one in the call itself."""
    return call.function if call.target is None or call.function in _COMPARING else f"sets.{call.function}"


def _is_structure(of: Type | None) -> bool:
    if of is None:
        return False
    if of.kind is Kind.OBJECT:
        return True
    return any(map(_is_structure, of.parameters))
