"""From the text of a rule to what `rule` holds: compiled under the types of its part of the schema, and priced.

`tree` asks for the rules of one part together, and imports this only then: a server without rules does without the
language. Invariant: nothing is raised, what is wrong with a rule is in the result.
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

#: Name of the type of `self` in messages. Kubernetes draws one for each compilation, so that nobody relies on it.
_SCOPE = "selfType"


class _Estimator:
    def __init__(self, declared: DeclType) -> None:
        self._sizes = Sizes(declared)

    def size(self, node: Node) -> SizeEstimate | None:
        most = self._sizes.most(node.path)
        return None if most is None else SizeEstimate(0, most)


@cache
def _base(is_new: bool) -> Environment:
    """What rules may call: what all versions have that this one must live with, or all there is."""
    return Environment({}, rule_libraries(COMPATIBILITY if is_new else None))


def base_environment() -> Environment:
    """What expressions that tenants write today may call, without variables."""
    return _base(True)


def _describe_error(error: CompileError, wanted: types.Type) -> str:
    """An error in Kubernetes' words, to which those of a message put the keyword in front."""
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
        """One rule. A text of 100 KB takes half a second, in which `pause` is called often."""
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
        known = self._environments.get(key)
        if known is None:
            before = types.OptionalType(self._self) if optional else self._self
            known = self._environments[key] = _base(is_new).extend({SELF: self._self, OLD_SELF: before})
        return known
