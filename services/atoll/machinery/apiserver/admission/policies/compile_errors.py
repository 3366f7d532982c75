"""The errors of the expressions of a policy that is written: each one that does not compile, by field.

`writes` runs it beside the event loop. Expressions of the replaced policy may use functions that new ones may not.
Messages and order are Kubernetes'; blank texts have errors of the kind already.
"""

from __future__ import annotations

from collections.abc import Iterator

from atoll.machinery.apiserver.admission.expressions.expression import ANNOTATION, CONDITION, MESSAGE, Compiler, Pause
from atoll.machinery.apiserver.admission.expressions.field_errors import condition_errors, expression_errors
from atoll.machinery.apiserver.admission.policies.program import mutations_of
from atoll.machinery.kinds.checks import objects, text
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError

#: Where a spec has expressions: the lists, and the fields of their items.
_EXPRESSIONS = (
    ("matchConditions", "expression"),
    ("variables", "expression"),
    ("validations", "expression"),
    ("validations", "messageExpression"),
    ("auditAnnotations", "valueExpression"),
)


def policy_errors(spec: Object, old: Object, pause: Pause) -> list[FieldError]:
    """Return the errors of the expressions of a policy of either kind; `old` is the replaced spec, or empty."""
    stored = {text(each, field) for name, field in _EXPRESSIONS for _, each in objects(old, name)}
    stored |= {mutation.text for mutation in mutations_of(old)}
    params = bool(spec.get("paramKind"))
    errors = list[FieldError]()
    if not old or any(old.get(field) != spec.get(field) for field in ("paramKind", "matchConditions")):
        # Conditions are compiled without variables, although they may use them when they are evaluated.
        conditions = Compiler(params=params, stored=stored, variables=False, pause=pause)
        errors += condition_errors(spec, conditions, "spec.matchConditions")
    compiler = Compiler(params=params, stored=stored, variables=bool(objects(spec, "variables")), pause=pause)
    errors += _variable_errors(spec, compiler)
    return [*errors, *_validation_errors(spec, compiler), *_mutation_errors(spec, compiler)]


def _variable_errors(spec: Object, compiler: Compiler) -> Iterator[FieldError]:
    for index, entry in objects(spec, "variables"):
        if text(entry, "expression").strip():
            compiled = compiler.variable(text(entry, "name"), text(entry, "expression"))
            yield from expression_errors(compiled, f"spec.variables[{index}].expression")


def _validation_errors(spec: Object, compiler: Compiler) -> Iterator[FieldError]:
    for index, entry in objects(spec, "validations"):
        at, expression, message = (
            f"spec.validations[{index}]",
            text(entry, "expression"),
            text(entry, "messageExpression"),
        )
        if expression.strip():
            yield from expression_errors(compiler.expression(expression, CONDITION), f"{at}.expression")
        if message.strip():
            compiled = compiler.expression(message, MESSAGE, authorizer=False)
            yield from expression_errors(compiled, f"{at}.messageExpression")
    for index, entry in objects(spec, "auditAnnotations"):
        if text(entry, "valueExpression").strip():
            compiled = compiler.expression(text(entry, "valueExpression").strip(), ANNOTATION)
            field = f"spec.auditAnnotations[{index}].valueExpression"
            yield from expression_errors(compiled, field, text(entry, "valueExpression"))


def _mutation_errors(spec: Object, compiler: Compiler) -> Iterator[FieldError]:
    for mutation in mutations_of(spec):
        if mutation.text.strip():
            compiled = compiler.mutation(mutation.text, is_patch=mutation.is_patch)
            yield from expression_errors(compiled, mutation.field)
