"""Compiles OpenAPI sources to nodes.

`structural_schema` calls `compile_root` once for each schema, `definitions.defaults` calls `compile_value`. Sources of
custom resources are structural: undeclared fields are unknown. Sources of built-in kinds come with definitions and
declare less: `$ref`s (alone, or in an allOf of one as published documents write them) may form cycles, an object
without properties is open, and one schema among several alternatives defines the structure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from itertools import repeat
from typing import Any

import msgspec

from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.meta.regexp import PatternError, compile_pattern, matches
from atoll.machinery.process.time_slicing import checkpoint, in_parts
from atoll.machinery.schema import formats
from atoll.machinery.schema.structural import fast_validation
from atoll.machinery.schema.structural.node import Node
from atoll.machinery.schema.structural.object_meta import METADATA

#: Keywords beside a reference that do not constrain the value.
_SILENT = frozenset({"description", "title", "example", "externalDocs", "$ref", "allOf"})
_COUNTS = (
    ("minLength", "min_length"),
    ("maxLength", "max_length"),
    ("minItems", "min_items"),
    ("maxItems", "max_items"),
    ("minProperties", "min_properties"),
    ("maxProperties", "max_properties"),
)
_NONE: Mapping[str, Node] = {}
_NUMBERS = (("minimum", "minimum"), ("maximum", "maximum"), ("multipleOf", "multiple_of"))

#: Complete nodes of the definitions that were referred to: by name, and by the keywords beside the reference as JSON.
Referenced = dict[tuple[str, bytes], Node]


def compile_root(
    source: Object, definitions: Mapping[str, Object] | None, referenced: Referenced | None = None
) -> Node:
    """Compile the node of a whole object. apiVersion, kind and metadata are always declared.

    Schemas with the same definitions share the nodes of `referenced`, which gets those that are new.
    """
    compiler = _Compiler(definitions, referenced)
    root = compiler.node(source)
    root.meta = _metadata(compiler.native)
    root.accept = fast_validation.accept_function(root)
    if definitions is not None:
        root.properties = {key: child for key, child in root.properties.items() if key != "metadata"}
    compiler.finish()
    return root


def compile_value(source: Object, definitions: Mapping[str, Object] | None = None) -> Node:
    """Compile the node of a part of an object, such as a default's."""
    compiler = _Compiler(definitions)
    node = compiler.node(source)
    compiler.finish()
    return node


@cache
def _metadata(native: bool) -> Node:
    """Return the node of ObjectMeta, which all schemas share."""
    return compile_value(METADATA, {} if native else None)


class _Compiler:
    """Compiles one schema. References with the same keywords beside them share one node."""

    def __init__(self, definitions: Mapping[str, Object] | None, shared: Referenced | None = None) -> None:
        self.native = definitions is not None
        self.definitions = definitions if definitions is not None else {}
        self._shared = shared if shared is not None else {}
        # Of this schema alone until they are complete, as others may be compiled at the same time.
        self._referenced: Referenced = {}
        self._nothing: Node | None = None
        self._all: list[Node] = []

    def node(self, source: Any) -> Node:
        """Compile a source. One that is not an object counts as empty."""
        if not isinstance(source, dict):
            source = {}
        name = _reference(source)
        if name is None:
            return self._filled(Node(source), source)
        beside = {key: value for key, value in source.items() if key not in _SILENT}
        mark = (name, encode_json(beside))
        known = self._shared.get(mark) or self._referenced.get(mark)
        if known is None:
            checkpoint()
            merged = {**self.definitions.get(name, {}), **beside}
            # Registered before it is filled, because it may refer to itself.
            known = self._referenced[mark] = Node(merged)
            self._filled(known, merged)
        return known

    def nothing(self) -> Node:
        """Return the node of an undeclared place: any value is valid and loses all its fields. One for each schema."""
        if self._nothing is None:
            self._nothing = Node({})
            self._nothing.nullable = True
            self._nothing.accept = fast_validation.accept_any
            self._nothing.prune_items_by = self._nothing
        return self._nothing

    def finish(self) -> None:
        """Compute which nodes have defaults below, which needs the whole graph; then they are complete."""
        for node in self._all:
            node.default_properties = tuple((key, child) for key, child in node.properties.items() if child.has_default)
            node.has_defaults_below = bool(node.default_properties)
        changed = True
        while changed:
            changed = False
            for node in in_parts(self._all):
                if not node.has_defaults_below and any(
                    child.has_defaults_below or child.has_default for child in _children(node)
                ):
                    node.has_defaults_below = changed = True
        for node in in_parts(self._all):
            below = {key: child for key, child in node.properties.items() if child.has_defaults_below}
            node.properties_with_defaults = below or _NONE
        self._shared.update(self._referenced)

    def _filled(self, node: Node, source: Object) -> Node:
        self._all.append(node)
        _fill_types(node, source)
        self._fill_structure(node, source)
        if self.native:
            self._open_untyped(node, source)
        _fill_limits(node, source)
        _fill_format(node, source, self.native)
        _fill_default(node, source)
        self._fill_junctors(node, source)
        _fill_lists(node, source)
        node.accept = fast_validation.accept_function(node)
        node.plain = fast_validation.plain_type(node)
        return node

    def _fill_structure(self, node: Node, source: Object) -> None:
        node.properties = {key: self.node(value) for key, value in _mapping(source, "properties").items()}
        node.open = source.get("x-kubernetes-preserve-unknown-fields") is True
        extra = source.get("additionalProperties")
        if isinstance(extra, dict):
            node.additional = self.node(extra)
        elif extra is True and self.native:
            node.open = True
        elif isinstance(extra, bool):
            # Kubernetes keeps the keys, and prunes below them since nothing is declared there.
            node.additional = self.nothing()
        node.closed = extra is False
        items = source.get("items")
        if isinstance(items, dict):
            # Items of a list that preserves unknown fields preserve them too.
            node.items = self.node({**items, "x-kubernetes-preserve-unknown-fields": True} if node.open else items)
        node.prune_items_by = node.items or (None if self.native or node.open else self.nothing())
        if source.get("x-kubernetes-embedded-resource") is True:
            node.embedded = True
            node.meta = _metadata(self.native)

    def _open_untyped(self, node: Node, source: Object) -> None:
        if not node.properties and node.additional is None and node.types <= {"object"}:
            node.open = True
        if not node.types:
            node.nullable = True
            node.unions = tuple(self.node(each) for each in _list(source, "anyOf") if _is_structure(each))
            if node.unions and node.items is None:
                node.items = next((each.items for each in node.unions if each.items is not None), None)
                node.prune_items_by = node.items

    def _fill_junctors(self, node: Node, source: Object) -> None:
        node.all_of = tuple(self.node(each) for each in _list(source, "allOf"))
        node.any_of = tuple(self.node(each) for each in _list(source, "anyOf"))
        node.one_of = tuple(self.node(each) for each in _list(source, "oneOf"))
        node.not_ = self.node(source["not"]) if isinstance(source.get("not"), dict) else None


def _reference(source: Object) -> str | None:
    """Return the name of the definition that a source refers to, or None."""
    reference = source.get("$ref")
    if reference is None and "type" not in source and "properties" not in source:
        parts = _list(source, "allOf")
        if len(parts) == 1 and isinstance(parts[0], dict) and set(parts[0]) == {"$ref"}:
            reference = parts[0]["$ref"]
    return reference.rpartition("/")[2] if isinstance(reference, str) else None


def _is_structure(source: Any) -> bool:
    return isinstance(source, dict) and ("$ref" in source or "properties" in source or source.get("type") == "array")


def _children(node: Node) -> list[Node]:
    children = [*node.properties.values(), *node.unions]
    children += [child for child in (node.additional, node.items, node.meta) if child is not None]
    return children


def _mapping(source: Object, key: str) -> Object:
    value = source.get(key)
    return value if isinstance(value, dict) else {}


def _list(source: Object, key: str) -> list[Any]:
    value = source.get(key)
    return value if isinstance(value, list) else []


def _fill_types(node: Node, source: Object) -> None:
    declared = source.get("type")
    if source.get("x-kubernetes-int-or-string") is True:
        node.types, node.type_name = frozenset({"integer", "string"}), "integer,string"
    elif isinstance(declared, str) and declared:
        node.types, node.type_name = frozenset({declared}), declared
    node.nullable = source.get("nullable") is True


def _fill_limits(node: Node, source: Object) -> None:
    for keyword, field in _COUNTS:
        value = source.get(keyword)
        if isinstance(value, int) and not isinstance(value, bool):
            setattr(node, field, value)
    for keyword, field in _NUMBERS:
        value = source.get(keyword)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            setattr(node, field, value)
    node.exclusive_min = source.get("exclusiveMinimum") is True
    node.exclusive_max = source.get("exclusiveMaximum") is True
    node.required = tuple(key for key in _list(source, "required") if isinstance(key, str))
    enum = source.get("enum")
    node.enum = tuple(enum) if isinstance(enum, list) and enum else None
    pattern = source.get("pattern")
    if isinstance(pattern, str) and pattern:
        node.pattern, node.pattern_matches = pattern, _pattern(pattern)


def _pattern(pattern: str) -> Callable[[str], bool]:
    try:
        compile_pattern(pattern)
        return partial(matches, pattern)
    except PatternError:
        # Definitions with such patterns are invalid; one stored earlier matches nothing, as in Kubernetes.
        return lambda text: False


def _fill_format(node: Node, source: Object, native: bool) -> None:
    name, declared = source.get("format"), source.get("type") or ""
    if not isinstance(name, str) or not isinstance(declared, str) or "x-kubernetes-int-or-string" in source:
        return
    if formats.is_recognized(declared, name):
        node.format_name = name
        node.format = name if declared in ("integer", "number") else ""
        check = formats.check_of(declared, name)
        node.format_check = _or_empty(check) if check is not None and native and name == "byte" else check


def _or_empty(check: Callable[[str], bool]) -> Callable[[str], bool]:
    """Allow the empty string, which Go decodes to no bytes; the format of custom resources does not allow it."""
    return lambda text: not text or check(text)


def _fill_default(node: Node, source: Object) -> None:
    value = source.get("default")
    if value is None:
        return
    node.has_default = True
    if isinstance(value, (dict, list)):
        node.default = partial(msgspec.json.decode, encode_json(value))
    else:
        # As a constant function without a call in Python.
        node.default = repeat(value).__next__


def _fill_lists(node: Node, source: Object) -> None:
    list_type = source.get("x-kubernetes-list-type")
    node.list_type = list_type if isinstance(list_type, str) else ""
    node.map_keys = tuple(key for key in _list(source, "x-kubernetes-list-map-keys") if isinstance(key, str))
    node.unique = node.list_type == "set" or (node.list_type == "map" and bool(node.map_keys))
