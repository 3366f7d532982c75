"""Compilation of the text of a rule: programs with the types of its part of the schema, and their static cost.

`tree` compiles the rules of one part together, and imports this on the first rule, so that a server without rules does
not load the language. Invariant: nothing is raised; the result holds the errors of a rule.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from atoll.machinery.cel import types
from atoll.machinery.cel.bounds import replace_pause
from atoll.machinery.cel.environment import Environment
from atoll.machinery.cel.errors import CompileError, ProgramError
from atoll.machinery.cel.functions import Node
from atoll.machinery.cel.libraries.base import COMPATIBILITY, rule_libraries
from atoll.machinery.cel.sizes import SizeEstimate
from atoll.machinery.kinds.rules.decl_types import DeclType, Sizes
from atoll.machinery.kinds.rules.rule import OLD_SELF, SELF, Expression, Rule
from atoll.machinery.meta.objects import Object
from atoll.machinery.schema.definitions.rule_field_path import resolve_field_path

#: Name of the type of `self` in messages. Kubernetes generates a random one for each compilation.
_SCOPE = "selfType"


class _Estimator:
    def __init__(self, declared: DeclType) -> None:
        self._sizes = Sizes(declared)

    def size(self, node: Node) -> SizeEstimate | None:
        most = self._sizes.most(node.path)
        return None if most is None else SizeEstimate(0, most)


@cache
def _base(is_new: bool) -> Environment:
    """Return the environment of rules: functions of the compatibility version for new rules, all functions for stored
    ones.
    """
    return Environment({}, rule_libraries(COMPATIBILITY if is_new else None))


def base_environment(*, is_new: bool = True) -> Environment:
    """Return the environment of expressions of tenants, without variables: of new ones, or of stored ones."""
    return _base(is_new)


def _describe_error(error: CompileError, wanted: types.Type) -> str:
    """Return an error in Kubernetes' words; for a messageExpression the caller adds the keyword in front."""
    if isinstance(error, ProgramError):
        return f"{'program ' if wanted == types.BOOL else ''}instantiation failed: {error}"
    return f"compilation failed: {error}"


class Compiler:
    """Compiles the rules of one part of a schema."""

    def __init__(self, schema: Object, declared: DeclType) -> None:
        self._schema = schema
        self._sizes = _Estimator(declared)
        self._self = declared.cel_type(_SCOPE)
        self._has_sets = declared.is_special
        self._environments: dict[tuple[bool, bool], Environment] = {}

    def compile(self, entry: Object, pause: Callable[[], None] | None = None) -> Rule:
        """Compile one rule. A text of 100 KB takes half a second, in which `pause` is called often."""
        before = replace_pause(pause)
        try:
            return self._rule(entry)
        finally:
            replace_pause(before)

    def _rule(self, entry: Object) -> Rule:
        text = entry.get("rule") or ""
        if not text.strip():
            return Rule(entry)
        optional = entry.get("optionalOldSelf") is True
        rule = self._expression(text, optional, types.BOOL)
        if rule.program is None:
            return Rule(entry, rule)
        text, field_path = entry.get("messageExpression") or "", entry.get("fieldPath") or ""
        message = self._expression(text, optional, types.STRING) if text else None
        has_field = bool(field_path) and (message is None or not message.error)
        field = resolve_field_path(field_path, self._schema) if has_field else None
        return Rule(entry, rule, message, OLD_SELF in rule.program.variables, field or "")

    def _expression(self, text: str, optional: bool, wanted: types.Type) -> Expression:
        error_if_new = ""
        try:
            program = self._environment(optional, is_new=True).compile(text)
        except CompileError as error:
            error_if_new = _describe_error(error, wanted)
            try:
                program = self._environment(optional, is_new=False).compile(text)
            except CompileError as stored:
                return Expression(None, error=_describe_error(stored, wanted))
        if program.type != wanted:
            what = "cel expression must evaluate to a bool" if wanted == types.BOOL else "must evaluate to a string"
            return Expression(None, error=what)
        whole = self._has_sets and program.compares_structures
        return Expression(program, program.estimate(self._sizes).max, whole, error_if_new=error_if_new)

    def _environment(self, optional: bool, *, is_new: bool) -> Environment:
        key = optional, is_new
        environment = self._environments.get(key)
        if environment is None:
            before = types.OptionalType(self._self) if optional else self._self
            environment = self._environments[key] = _base(is_new).extend({SELF: self._self, OLD_SELF: before})
        return environment
