"""A compiled schema: the object that kinds hold (`kinds.kind.Schema`) and verb handlers call.

`compile_schema` makes one; `schema_for` keeps those of equal source once for all clusters, in a bounded cache, so
that an idle workspace costs no schema. Values are shared and never change.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from threading import Lock
from typing import Any

from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema import lists, trim
from atoll.machinery.schema.build import build_root
from atoll.machinery.schema.node import Node
from atoll.machinery.schema.ratchet import NOTHING, Old
from atoll.machinery.schema.report import Report, report, report_embedded

#: Schemas kept compiled. A large one (Gateway API's HTTPRoute) takes about 1 MB.
CACHE_SIZE = 256


class StructuralSchema:
    """A schema of whole objects. `source` and `definitions` are as published; nobody may change them."""

    __slots__ = ("_root", "definitions", "source")

    def __init__(self, source: Object, definitions: Mapping[str, Object], root: Node) -> None:
        self.source = source
        self.definitions = definitions
        self._root = root

    def unknown_fields(self, obj: Object) -> list[str]:
        """Paths that the schema does not declare, in document order; unknown metadata fields are among them."""
        if trim.is_clean(self._root, obj):
            return []
        found: list[str] = []
        trim.unknown(self._root, obj, "", found)
        return found

    def prune(self, obj: Object) -> None:
        """Drop, in place, unknown fields, and nulls that are neither allowed nor defaulted."""
        trim.prune(self._root, obj)

    def default(self, obj: Object) -> None:
        """Fill missing fields, and nulls that are not allowed, in place. Call it after prune."""
        trim.default(self._root, obj)

    def validate(self, obj: Object, old: Object | None = None) -> list[FieldError]:
        """Every violation, in document order for each object; empty if there is none.

        With `old`, the object before, violations in parts that did not change are not told, and repeated items of
        sets and maps only if there were none before. Embedded metadata is always judged.
        """
        root = self._root
        if root.accept(root, obj):
            return []
        out = Report()
        report(root, obj, "", out, NOTHING if old is None else Old(old, is_root=True))
        report_embedded(root, obj, "", out.errors)
        if old is None or not lists.repeated(root, old):
            out.errors.extend(lists.repeated(root, obj))
        return out.errors


def compile_schema(source: Object, definitions: Mapping[str, Object] | None = None) -> StructuralSchema:
    """Compile the schema of whole objects.

    `source` is an OpenAPI v3 schema as a CustomResourceDefinition holds it. With `definitions` it is a built-in
    kind's: `$ref`s are looked up there by the last part of their path, and a definition that is missing allows
    anything. Keywords of wrong types say nothing; patterns that are no RE2 match nothing.
    """
    return StructuralSchema(source, definitions or {}, build_root(source, definitions))


_cache: OrderedDict[bytes, StructuralSchema] = OrderedDict()
_cache_lock = Lock()


def schema_for(source: bytes) -> StructuralSchema:
    """The compiled schema of a source in JSON: one value for equal bytes while it is among the last CACHE_SIZE used.

    `source` must be a valid JSON object, such as `meta.objects.encode_json` gives.
    """
    mark = hashlib.sha256(source).digest()
    with _cache_lock:
        if known := _cache.get(mark):
            _cache.move_to_end(mark)
            return known
    compiled = compile_schema(decode(source))
    with _cache_lock:
        _cache[mark] = compiled
        if len(_cache) > CACHE_SIZE:
            _cache.popitem(last=False)
    return compiled


def has_rules(schema: Object) -> bool:
    """Whether a schema, at any depth, has x-kubernetes-validations, which are kept but not evaluated."""
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
