"""The errors of expressions that are written, by field, with Kubernetes' messages."""

from __future__ import annotations

from collections.abc import Iterator

from atoll.machinery.apiserver.admission.expressions.expression import CONDITION, Compiler, Expression
from atoll.machinery.kinds.checks import objects, text
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import invalid


def expression_errors(expression: Expression, field: str, source: str = "") -> Iterator[FieldError]:
    """Yield the error of an expression that does not compile; `source` is its text as it was written."""
    if expression.error.startswith("program instantiation failed"):
        yield FieldError("InternalError", field, f"Internal error: {expression.error}")
    elif expression.error:
        yield invalid(field, source or expression.text, expression.error)


def condition_errors(owner: Object, compiler: Compiler, field: str) -> Iterator[FieldError]:
    """Yield the errors of the matchConditions of a webhook or policy; blank texts have errors of the kind."""
    for index, entry in objects(owner, "matchConditions"):
        if text(entry, "expression").strip():
            compiled = compiler.expression(text(entry, "expression"), CONDITION)
            yield from expression_errors(compiled, f"{field}[{index}].expression")
