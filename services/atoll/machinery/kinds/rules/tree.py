"""The parts of a schema with rules, as a tree attached to the compiled schema.

`tree_of` makes it once for each schema and stores it with the schema, so that all clusters share it and it is dropped
with the schema. Rules are compiled on first use: a definition without writes costs nothing. Invariant: a part without
rules in or below it has no node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from atoll.machinery.kinds.rules.decl_types import DeclType, below, declare
from atoll.machinery.kinds.rules.escaping import escape
from atoll.machinery.kinds.rules.rule import Rule
from atoll.machinery.meta.objects import Object
from atoll.machinery.schema.structural.structural_schema import StructuralSchema

VALIDATIONS = "x-kubernetes-validations"
#: Stored with a schema without rules.
_NO_RULES: Final = object()


def _no_pause() -> None:
    return None


class RuleNode:
    """One part of a schema with rules in or below it."""

    __slots__ = ("_compiled", "_declared", "_parent", "_step", "additional", "entries", "items", "properties", "schema")

    def __init__(self, schema: Object, parent: RuleNode | None, step: str | None) -> None:
        self.schema = schema
        self.entries: list[Object] = schema.get(VALIDATIONS) or []
        self.properties: Mapping[str, RuleNode] = {}
        self.additional: RuleNode | None = None
        self.items: RuleNode | None = None
        self._parent = parent
        #: Name of the property, or None for an item or an additional property.
        self._step = step
        self._declared: DeclType | None = None
        self._compiled: tuple[Rule, ...] | None = None

    @property
    def type_name(self) -> str:
        """The type in errors; empty for int-or-string."""
        return self.schema.get("type") or ""

    @property
    def is_object(self) -> bool:
        """Whether this is a whole object: the root, or an embedded one."""
        return self._parent is None or self.schema.get("x-kubernetes-embedded-resource") is True

    @property
    def is_in_scope(self) -> bool:
        """Whether rules of this part or of a part above see it."""
        return bool(self.entries) or (self._parent is not None and self._parent.is_in_scope)

    @property
    def declared(self) -> DeclType | None:
        """The CEL view of this part; None if rules do not see it."""
        if self._declared is None:
            self._declared = self._from_parent() or (declare(self.schema, is_root=True) if self.is_object else None)
            self._declared = self._declared or below(self.schema)
        return self._declared

    def _from_parent(self) -> DeclType | None:
        parent = self._parent
        if parent is None or not parent.is_in_scope or (above := parent.declared) is None:
            return None
        if self._step is None:
            return above.item
        identifier = escape(self._step)
        return above.fields.get(identifier) if identifier is not None and above.fields is not None else None

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The compiled rules of this part; none if they do not see it."""
        return self._compiled if self._compiled is not None else self.compile()

    def compile(self, pause: Callable[[], None] = _no_pause) -> tuple[Rule, ...]:
        """Compile the rules, with calls of `pause` before and during the compilation of each."""
        if self._compiled is None:
            self._compiled = tuple(self._compile(self.declared, pause)) if self.declared is not None else ()
        return self._compiled

    def _compile(self, declared: DeclType, pause: Callable[[], None]) -> Iterator[Rule]:
        # The first rule loads the language.
        from atoll.machinery.kinds.rules.program import Compiler

        compiler = Compiler(self.schema, declared)
        for entry in self.entries:
            pause()
            yield compiler.compile(entry, pause)


def tree_of(schema: StructuralSchema) -> RuleNode | None:
    """Return the rules of a compiled schema, or None if it has none."""
    if not schema.may_contain(VALIDATIONS):
        return None
    found = schema.attachment
    if found is None:
        found = schema.attachment = rule_tree(schema.source) or _NO_RULES
    return found if isinstance(found, RuleNode) else None


def rule_tree(schema: Object) -> RuleNode | None:
    """Return the rules of a schema in a definition, not compiled; None if it has none."""
    return _node(schema, None, None)


def part_tree(schema: Object) -> RuleNode | None:
    """Return the rules of a part of a schema by itself, not compiled; None if it has none."""
    return _node(schema, RuleNode({}, None, None), None)


def _node(schema: Any, parent: RuleNode | None, step: str | None) -> RuleNode | None:
    if not isinstance(schema, dict):
        return None
    node = RuleNode(schema, parent, step)
    node.items = _node(schema.get("items"), node, None)
    node.additional = _node(schema.get("additionalProperties"), node, None)
    found = {key: _node(child, node, key) for key, child in (schema.get("properties") or {}).items()}
    node.properties = {key: child for key, child in found.items() if child is not None}
    return node if node.entries or node.items or node.additional or node.properties else None
