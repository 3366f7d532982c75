"""The compiled expressions of a policy: what both kinds share, and those of each kind.

`compiled_policies` keeps them by content; `validation` evaluates them. Invariant: a program depends on the spec alone,
so all workspaces with the same policy share it. An expression that does not compile is part of it and fails when it is
evaluated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from atoll.machinery.apiserver.admission.expressions.expression import (
    ANNOTATION,
    CONDITION,
    MESSAGE,
    Compiler,
    Expression,
    Pause,
)
from atoll.machinery.kinds.checks import objects, text
from atoll.machinery.meta.objects import Object


class PolicyProgram(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of both kinds of policies: match conditions, and variables by name in their order."""

    conditions: tuple[Expression, ...]
    variables: Mapping[str, Expression]

    @property
    def scope(self) -> Mapping[str, Expression] | None:
        """The variables; None without any, which saves making them available."""
        return self.variables or None

    @property
    def size_bytes(self) -> int:
        """What it takes in memory."""
        return 1024 + sum(each.size_bytes for each in self.expressions())

    def expressions(self) -> Iterator[Expression]:
        """Yield all of its expressions."""
        yield from self.conditions
        yield from self.variables.values()


class Validation(msgspec.Struct, frozen=True):
    """One entry of spec.validations."""

    expression: Expression
    message: Expression | None
    #: What a failure says if the message expression has no value.
    text: str
    reason: str


class AuditAnnotation(msgspec.Struct, frozen=True):
    """One entry of spec.auditAnnotations."""

    key: str
    expression: Expression


class ValidatingProgram(PolicyProgram, frozen=True, kw_only=True):
    """The compiled spec of a ValidatingAdmissionPolicy."""

    validations: tuple[Validation, ...]
    annotations: tuple[AuditAnnotation, ...]

    @property
    def has_messages(self) -> bool:
        return any(validation.message is not None for validation in self.validations)

    def expressions(self) -> Iterator[Expression]:
        yield from super().expressions()
        for each in self.validations:
            yield from (each.expression,) if each.message is None else (each.expression, each.message)
        yield from (each.expression for each in self.annotations)


class Mutation(msgspec.Struct, frozen=True):
    """One entry of spec.mutations: a JSON patch, else an apply configuration."""

    expression: Expression
    is_patch: bool


class MutatingProgram(PolicyProgram, frozen=True, kw_only=True):
    """The compiled spec of a MutatingAdmissionPolicy."""

    mutations: tuple[Mutation, ...]

    def expressions(self) -> Iterator[Expression]:
        yield from super().expressions()
        yield from (each.expression for each in self.mutations)


class SharedParts(msgspec.Struct, frozen=True):
    """What a compiler leaves for the rest of a policy: conditions and variables, compiled in its scope."""

    conditions: tuple[Expression, ...]
    variables: Mapping[str, Expression]


def compile_shared(spec: Object, compiler: Compiler) -> SharedParts:
    """Compile the variables of a policy, then its match conditions, which may use them."""
    variables = {text(each, "name"): each for _, each in objects(spec, "variables")}
    compiled = {name: compiler.variable(name, text(each, "expression")) for name, each in variables.items()}
    conditions = [
        compiler.expression(text(each, "expression"), CONDITION) for _, each in objects(spec, "matchConditions")
    ]
    return SharedParts(tuple(conditions), compiled)


def compile_validating(spec: Object, pause: Pause | None = None) -> ValidatingProgram:
    """Compile the spec of a stored ValidatingAdmissionPolicy. `pause` is called often, and may raise."""
    compiler = Compiler(params=bool(spec.get("paramKind")), pause=pause)
    shared = compile_shared(spec, compiler)
    return ValidatingProgram(
        conditions=shared.conditions,
        variables=shared.variables,
        validations=tuple(_validation(each, compiler) for _, each in objects(spec, "validations")),
        annotations=tuple(
            AuditAnnotation(text(each, "key"), compiler.expression(text(each, "valueExpression").strip(), ANNOTATION))
            for _, each in objects(spec, "auditAnnotations")
        ),
    )


def _validation(entry: Object, compiler: Compiler) -> Validation:
    expression, message = text(entry, "expression"), text(entry, "messageExpression")
    return Validation(
        compiler.expression(expression, CONDITION),
        compiler.expression(message, MESSAGE, authorizer=False) if message else None,
        text(entry, "message").strip() or f"failed expression: {expression.strip()}",
        text(entry, "reason") or "Invalid",
    )


class MutationText(NamedTuple):
    """The expression of an entry of spec.mutations, with its field."""

    field: str
    text: str
    is_patch: bool


def mutations_of(spec: Object) -> Iterator[MutationText]:
    """Yield the expressions of the mutations of a stored or written spec."""
    for index, entry in objects(spec, "mutations"):
        is_patch = text(entry, "patchType") == "JSONPatch"
        form = "jsonPatch" if is_patch else "applyConfiguration"
        if isinstance(entry.get(form), dict):
            yield MutationText(f"spec.mutations[{index}].{form}.expression", text(entry, form, "expression"), is_patch)


def compile_mutating(spec: Object, pause: Pause | None = None) -> MutatingProgram:
    """Compile the spec of a stored MutatingAdmissionPolicy. `pause` is called often, and may raise."""
    compiler = Compiler(params=bool(spec.get("paramKind")), pause=pause)
    shared = compile_shared(spec, compiler)
    return MutatingProgram(
        conditions=shared.conditions,
        variables=shared.variables,
        mutations=tuple(
            Mutation(compiler.mutation(each.text, is_patch=each.is_patch), each.is_patch) for each in mutations_of(spec)
        ),
    )
