"""Detection of comparisons of whole objects, or of lists and maps of objects.

Called by `Program` for callers with lists that compare in any order (sets and maps of a schema): only for such
expressions they convert an object as a whole beforehand. Invariant: every such comparison is found; one whose operand
types `dyn()` hides counts.
"""

from __future__ import annotations

from typing import Final

from atoll.machinery.cel.checker.checker import CheckedExpr
from atoll.machinery.cel.syntax.ast import Call, walk
from atoll.machinery.cel.types import Kind, Type

#: Functions that compare values for equality, and `dyn`, which hides the type of its argument.
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
    """Report whether a comparison in a checked tree may be one of objects, or of lists or maps of them."""
    return any(isinstance(expr, Call) and _compares(expr, checked) for expr in walk(checked.tree))


def _compares(call: Call, checked: CheckedExpr) -> bool:
    operands = call.arguments if call.target is None else [call.target, *call.arguments]
    return _name(call) in _COMPARING and any(_is_structure(checked.types.get(each.id)) for each in operands)


def _name(call: Call) -> str:
    """Return the function's qualified name: the checker leaves the name as written in the call."""
    return call.function if call.target is None or call.function in _COMPARING else f"sets.{call.function}"


def _is_structure(of: Type | None) -> bool:
    if of is None:
        return False
    if of.kind is Kind.OBJECT:
        return True
    return any(map(_is_structure, of.parameters))
