"""A compiled schema node: plain tables that the walkers read, made once and shared by every cluster.

`build` makes nodes from OpenAPI sources, `trim` prunes and defaults by them, `accept` answers yes or no fast, and
`validate` tells what is wrong. Nodes form a graph, with cycles where a schema refers to itself, and never change once
built.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from atoll.machinery.meta.objects import Object

Accept = Callable[["Node", Any], bool]


def _not_compiled(node: Node, value: Any) -> bool:
    raise AssertionError("a node is used before it was built")


class Node:
    """One place of a schema. Fields keep the meaning of the keywords they come from; absent bounds are None."""

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
        #: JSON types that are allowed; empty for any.
        self.types: frozenset[str] = frozenset()
        #: The types as messages name them: `string`, `integer,string`.
        self.type_name = ""
        self.nullable = False
        self.properties: Mapping[str, Node] = {}
        #: Schema of keys that are no properties.
        self.additional: Node | None = None
        #: Keys that are no properties stay (additionalProperties: true, preserve-unknown-fields, an untyped node).
        self.open = False
        #: Keys that are no properties are an error (additionalProperties: false).
        self.closed = False
        self.items: Node | None = None
        #: What trims the items of a list: `items`, or where no list is declared a node that knows nothing.
        self.prune_items_by: Node | None = None
        self.has_default = False
        #: A fresh copy of the default.
        self.default: Callable[[], Any] = lambda: None
        #: Properties that have a default, as the defaulter needs them.
        self.default_properties: tuple[tuple[str, Node], ...] = ()
        #: Whether there is anything to default here or below.
        self.has_defaults_below = False
        self.embedded = False
        #: Schema of `metadata` that every object has, beside what the properties say; for roots and embedded ones.
        self.meta: Node | None = None
        #: Nodes of anyOf that also give the structure (built-in kinds alone).
        self.unions: tuple[Node, ...] = ()
        self.list_type = ""
        self.map_keys: tuple[str, ...] = ()
        self.required: tuple[str, ...] = ()
        self.enum: tuple[Any, ...] | None = None
        self.minimum: float | None = None
        self.maximum: float | None = None
        self.exclusive_min = False
        self.exclusive_max = False
        self.multiple_of: float | None = None
        self.min_length: int | None = None
        self.max_length: int | None = None
        self.pattern = ""
        self.pattern_matches: Callable[[str], bool] | None = None
        #: Number formats bound the range; string formats have a check.
        self.format = ""
        self.format_name = ""
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
        #: The fast test for this node; see `accept`.
        self.accept: Accept = _not_compiled
        #: The Python type whose every value is fine here, or a type that no value has.
        self.plain: type = Node

    def child(self, key: str) -> Node | None:
        """Schema of the value at a key, or None where nothing is said of it."""
        return self.properties.get(key) or self.additional
