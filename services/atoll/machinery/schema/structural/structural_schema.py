"""A compiled schema: the object that kinds hold (`kinds.kind.Schema`) and verb handlers call.

`compile_schema` makes one for good. `schema_for` makes one that holds nothing but its JSON, once for all clusters with
the same: it is decoded and compiled when an object is first walked, and that is kept in a cache with a bound in bytes,
so that five hundred definitions cost five hundred texts. Values are shared and never change.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from threading import Lock
from typing import Any

from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.structural import list_types, pruning
from atoll.machinery.schema.structural.compiler import build_root
from atoll.machinery.schema.structural.node import Node
from atoll.machinery.schema.structural.ratcheting import NO_OLD_VALUE, OldValue
from atoll.machinery.schema.structural.validation import ErrorCollector, validate, validate_embedded

#: Schemas that are found by their source; each is little more than its JSON.
CACHE_SIZE = 4096
#: JSON of the schemas that are kept compiled, in bytes. Compiled, a schema takes about ten times its JSON.
COMPILED_BYTES = 6 * 1024 * 1024


class _CompiledSchema:
    """What is dropped when it was not used for long. The source alone is wanted where a schema is published."""

    __slots__ = ("_root", "attachment", "definitions", "source")

    def __init__(self, source: Object, definitions: Mapping[str, Object] | None) -> None:
        self.source = source
        self.definitions = definitions
        self.attachment: Any = None
        self._root: Node | None = None

    @property
    def root(self) -> Node:
        """Compiled on first use."""
        if self._root is None:
            self._root = build_root(self.source, self.definitions)
        return self._root


class StructuralSchema:
    """A schema of whole objects. `source` and `definitions` are as published; nobody may change them."""

    __slots__ = ("_json", "_made", "definitions")

    def __init__(self, made: _CompiledSchema | None, json: bytes, definitions: Mapping[str, Object]) -> None:
        self._made = made
        self._json = json
        self.definitions = definitions

    @property
    def _compiled(self) -> _CompiledSchema:
        return self._made or _compiled_for(self._json)

    @property
    def _root(self) -> Node:
        return self._compiled.root

    @property
    def source(self) -> Object:
        """As published. Document anew where it was not used for long."""
        return self._compiled.source

    @property
    def size_bytes(self) -> int:
        """Size of the source in JSON; 0 for one that is compiled for good."""
        return len(self._json)

    def may_contain(self, keyword: str) -> bool:
        """Whether a keyword occurs at all; true where that is not known. Costs no compiling."""
        return not self._json or keyword.encode() in self._json

    @property
    def attachment(self) -> Any:
        """What an upper layer compiled of the same source, kept and dropped together with it; None at first."""
        return self._compiled.attachment

    @attachment.setter
    def attachment(self, value: Any) -> None:
        self._compiled.attachment = value

    def unknown_fields(self, obj: Object) -> list[str]:
        """Paths that the schema does not declare, in document order; unknown metadata fields are among them."""
        if pruning.is_clean(self._root, obj):
            return []
        found: list[str] = []
        pruning.unknown(self._root, obj, "", found)
        return found

    def prune(self, obj: Object) -> None:
        """Drop, in place, unknown fields, and nulls that are neither allowed nor default_properties."""
        pruning.prune(self._root, obj)

    def default(self, obj: Object) -> None:
        """Fill missing fields, and nulls that are not allowed, in place. Call it after prune."""
        pruning.default(self._root, obj)

    def validate(self, obj: Object, old: Object | None = None) -> list[FieldError]:
        """Every violation, in document order for each object; empty if there is none.

        With `old`, the object before, violations in parts that did not change are not told, and duplicate_errors items of
        sets and maps only if there were none before. Embedded metadata is always judged.
        """
        root = self._root
        if root.accept(root, obj):
            return []
        out = ErrorCollector()
        validate(root, obj, "", out, NO_OLD_VALUE if old is None else OldValue(old, is_root=True))
        validate_embedded(root, obj, "", out.errors)
        if old is None or not list_types.duplicate_errors(root, old):
            out.errors.extend(list_types.duplicate_errors(root, obj))
        return out.errors


def compile_schema(source: Object, definitions: Mapping[str, Object] | None = None) -> StructuralSchema:
    """Compile the schema of whole objects.

    `source` is an OpenAPI v3 schema as a CustomResourceDefinition holds it. With `definitions` it is a built-in
    kind's: `$ref`s are looked up there by the last part of their path, and a definition that is missing allows
    anything. Keywords of wrong types say nothing; patterns that are no RE2 match nothing.
    """
    compiled = _CompiledSchema(source, definitions)
    compiled.root  # noqa: B018  (what compiles one for good pays for it here, not with the first object)
    return StructuralSchema(compiled, b"", definitions or {})


_cache: OrderedDict[bytes, StructuralSchema] = OrderedDict()
_compiled: LruCache[bytes, tuple[int, _CompiledSchema]] = LruCache(COMPILED_BYTES, lambda entry: entry[0])
_cache_lock = Lock()


def _compiled_for(json: bytes) -> _CompiledSchema:
    with _cache_lock:
        known = _compiled.get(json)
    if known is None:
        known = len(json), _CompiledSchema(decode(json), None)
        with _cache_lock:
            _compiled.put(json, known)
    return known[1]


def schema_for(source: bytes) -> StructuralSchema:
    """The schema of a source in JSON: one value for equal bytes while it is among the last CACHE_SIZE used.

    `source` must be a valid JSON object, such as `meta.objects.encode_json` gives.
    """
    mark = hashlib.sha256(source).digest()
    with _cache_lock:
        if known := _cache.get(mark):
            _cache.move_to_end(mark)
            return known
    made = StructuralSchema(None, source, {})
    with _cache_lock:
        _cache[mark] = made
        if len(_cache) > CACHE_SIZE:
            _cache.popitem(last=False)
    return made


def has_rules(schema: Object) -> bool:
    """Whether a schema, at any depth, has x-kubernetes-validations."""
    todo: list[Any] = [schema]
    while todo:
        item = todo.pop()
        if isinstance(item, list):
            todo.extend(item)
        elif isinstance(item, dict):
            if isinstance(rules := item.get("x-kubernetes-validations"), list) and rules:
                return True
            todo.extend(value for key, value in item.items() if key not in ("default", "example", "enum"))
    return False
