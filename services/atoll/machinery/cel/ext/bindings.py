"""`cel.bind(name, value, expression)`."""

from __future__ import annotations

from collections.abc import Sequence

from atoll.machinery.cel.functions import Library
from atoll.machinery.cel.std.optionals import bind
from atoll.machinery.cel.syntax.ast import Expr, Ident
from atoll.machinery.cel.syntax.expansion import Expander, Macro


def _bind(e: Expander, target: Expr, arguments: Sequence[Expr]) -> Expr | None:
    if not isinstance(target, Ident) or target.name != "cel":
        return None
    name = arguments[0]
    if not isinstance(name, Ident):
        raise e.error(name, "cel.bind() variable names must be simple identifiers")
    return bind(e, name.name, arguments[1], arguments[2])


BINDINGS = Library("cel.lib.ext.cel.bindings", macros=(Macro("bind", 3, True, _bind),))
