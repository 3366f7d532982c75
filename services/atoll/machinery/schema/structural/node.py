"""A compiled schema node: plain tables that the walkers read, made once and shared by all clusters.

`compiler` makes nodes from OpenAPI sources; `pruning`, `defaulting`, `fast_validation` and `validation` walk them.
Nodes form a graph, with cycles where a schema refers to itself. Invariant: a compiled node never changes, but for the
type that `plain_form` derives from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from atoll.machinery.meta.objects import Object

Accept = Callable[["Node", Any], bool]


def _not_compiled(node: Node, value: Any) -> bool:
    raise AssertionError("a node is used before it is compiled")


class Node:
    """One place of a schema. Fields have the meaning of their keywords; absent bounds are None."""

    __slots__ = (
        "accept",
        "additional",
        "all_of",
        "any_of",
        "closed",
        "default",
        "default_properties",
        "embedded",
        "enum",
        "exclusive_max",
        "exclusive_min",
        "form",
        "format",
        "format_check",
        "format_name",
        "has_default",
        "has_defaults_below",
        "items",
        "list_type",
        "map_keys",
        "max_items",
        "max_length",
        "max_properties",
        "maximum",
        "meta",
        "min_items",
        "min_length",
        "min_properties",
        "minimum",
        "multiple_of",
        "not_",
        "nullable",
        "one_of",
        "open",
        "pattern",
        "pattern_matches",
        "plain",
        "properties",
        "properties_with_defaults",
        "prune_items_by",
        "required",
        "source",
        "type_name",
        "types",
        "unions",
        "unique",
    )

    def __init__(self, source: Object) -> None:
        self.source = source
        #: Allowed JSON types; empty for any.
        self.types: frozenset[str] = frozenset()
        #: The types as in messages: `string`, `integer,string`.
        self.type_name = ""
        self.nullable = False
        self.properties: Mapping[str, Node] = {}
        #: Schema of undeclared keys.
        self.additional: Node | None = None
        #: Undeclared keys stay (additionalProperties: true, preserve-unknown-fields, an untyped node).
        self.open = False
        #: Undeclared keys are an error (additionalProperties: false).
        self.closed = False
        self.items: Node | None = None
        #: The node that prunes the items of a list: `items`, or an empty node where no list is declared.
        self.prune_items_by: Node | None = None
        #: Whether it has a default, and whether any node here or below has one.
        self.has_default = self.has_defaults_below = False
        #: Returns a new copy of the default.
        self.default: Callable[[], Any] = lambda: None
        #: The properties with a default.
        self.default_properties: tuple[tuple[str, Node], ...] = ()
        #: The properties with nodes that have defaults, here or below.
        self.properties_with_defaults: Mapping[str, Node] = {}
        self.embedded = False
        #: Schema of ObjectMeta, in addition to the properties; for roots and embedded objects.
        self.meta: Node | None = None
        #: Nodes of anyOf that also define the structure (built-in kinds only).
        self.unions: tuple[Node, ...] = ()
        self.list_type = ""
        self.map_keys: tuple[str, ...] = ()
        self.required: tuple[str, ...] = ()
        self.enum: tuple[Any, ...] | None = None
        self.minimum: float | None = None
        self.maximum: float | None = None
        self.exclusive_min = self.exclusive_max = False
        self.multiple_of: float | None = None
        self.min_length: int | None = None
        self.max_length: int | None = None
        self.pattern = ""
        self.pattern_matches: Callable[[str], bool] | None = None
        #: The format of a number, which bounds its range; string formats have a check.
        self.format = self.format_name = ""
        self.format_check: Callable[[str], bool] | None = None
        self.min_items: int | None = None
        self.max_items: int | None = None
        self.unique = False
        self.min_properties: int | None = None
        self.max_properties: int | None = None
        self.all_of: tuple[Node, ...] = ()
        self.any_of: tuple[Node, ...] = ()
        self.one_of: tuple[Node, ...] = ()
        self.not_: Node | None = None
        #: The fast test of this node; see `fast_validation`.
        self.accept: Accept = _not_compiled
        #: The type of the plain form, made on first use.
        self.form: Any = None
        #: The Python type whose values are all valid here, or a type that no value has.
        self.plain: type = Node

    def child(self, key: str) -> Node | None:
        """Return the schema of the value at a key, or None where nothing is declared."""
        return self.properties.get(key) or self.additional
