"""A structural schema: prune, default, validate and list unknown fields of objects.

Kinds hold one (`kinds.kind.Schema`) and verb handlers call it. `compile_schema` makes a permanent one. `schema_for`
makes one from its JSON, shared by all clusters with the same JSON: it is decoded and compiled when an object is first
walked, and the result is cached with a bound in bytes, so that five hundred definitions take five hundred texts.
Invariant: schemas are shared and never change.
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
from atoll.machinery.process.time_slicing import checkpoint
from atoll.machinery.schema.structural import list_types, pruning
from atoll.machinery.schema.structural.compiler import Referenced, compile_root
from atoll.machinery.schema.structural.defaulting import default, is_normal, may_lack_defaults
from atoll.machinery.schema.structural.node import Node
from atoll.machinery.schema.structural.plain_form import MAX_PERMANENT_STRUCTS, MAX_STRUCTS, Takes, plain_form
from atoll.machinery.schema.structural.ratcheting import NO_OLD_VALUE, OldValue
from atoll.machinery.schema.structural.validation import ErrorCollector, validate, validate_embedded

#: Schemas cached by their source; each takes little more than its JSON.
CACHE_SIZE = 4096
#: JSON of the schemas that are cached compiled, in bytes. A compiled schema takes about ten times its JSON.
COMPILED_BYTES = 6 * 1024 * 1024
#: What the plain form of a schema weighs among them.
_FORM_BYTES = 12 * 1024


class _CompiledSchema:
    """The decoded and compiled forms of a schema, evicted by size. Publishing a schema needs the source only."""

    __slots__ = ("_referenced", "_root", "attachment", "definitions", "has_defaults", "source", "takes")

    def __init__(
        self, source: Object, definitions: Mapping[str, Object] | None, referenced: Referenced | None = None
    ) -> None:
        self.source = source
        self.definitions = definitions
        self._referenced = referenced
        self.attachment: Any = None
        self._root: Node | None = None
        #: The plain form, which replaces this by itself on first use.
        self.takes: Takes = self._first_taken
        #: Whether an object that is taken may lack defaults; known once one was.
        self.has_defaults = True

    def _first_taken(self, obj: Any) -> bool:
        limit = MAX_PERMANENT_STRUCTS if self.definitions is not None else MAX_STRUCTS
        self.takes = plain_form(self.root, limit)
        self.has_defaults = may_lack_defaults(self.root)
        return self.takes(obj)

    @property
    def root(self) -> Node:
        """Compiled on first use."""
        if self._root is None:
            self._root = compile_root(self.source, self.definitions, self._referenced)
        return self._root


class StructuralSchema:
    """A schema of whole objects. `source` and `definitions` are constants, in their published form."""

    __slots__ = ("_json", "_permanent", "_permanent_root", "definitions")

    def __init__(self, permanent: _CompiledSchema | None, json: bytes, definitions: Mapping[str, Object]) -> None:
        self._permanent = permanent
        self._permanent_root = permanent.root if permanent is not None else None
        self._json = json
        self.definitions = definitions

    @property
    def _compiled(self) -> _CompiledSchema:
        return self._permanent or _compiled_for(self._json)

    @property
    def _root(self) -> Node:
        return self._permanent_root or _compiled_for(self._json).root

    @property
    def source(self) -> Object:
        """The published schema. Decoded again after eviction."""
        return self._compiled.source

    @property
    def size_bytes(self) -> int:
        """Size of the source in JSON; 0 for a permanently compiled schema."""
        return len(self._json)

    def may_contain(self, keyword: str) -> bool:
        """Whether a keyword may occur; True where that is unknown. Does not compile."""
        return not self._json or keyword.encode() in self._json

    @property
    def attachment(self) -> Any:
        """A value that an upper layer derived from the same source, evicted together with it; None at first."""
        return self._compiled.attachment

    @attachment.setter
    def attachment(self, value: Any) -> None:
        self._compiled.attachment = value

    def is_plain(self, obj: Object) -> bool:
        """Whether an object is known to be valid and to need defaults at most, as most of a write are."""
        return (self._permanent or _compiled_for(self._json)).takes(obj)

    def complete(self, obj: Object) -> bool:
        """Set the defaults of an object that is known to need no other change and to be valid, as most of a write are.
        Return False, without a change, for any other."""
        compiled = self._permanent or _compiled_for(self._json)
        if not compiled.takes(obj):
            return False
        if compiled.has_defaults:
            default(compiled.root, obj)
        return True

    def unknown_fields(self, obj: Object) -> list[str]:
        """List the paths that the schema does not declare, metadata included, in document order."""
        if (self._permanent or _compiled_for(self._json)).takes(obj):
            return []
        root = self._permanent_root or _compiled_for(self._json).root
        if pruning.is_clean(root, obj):
            return []
        paths: list[str] = []
        pruning.collect_unknown(root, obj, "", paths)
        return paths

    def normalize(self, obj: Object) -> None:
        """Prune, then default; most objects of a write need neither."""
        if self.complete(obj):
            return
        root = self._permanent_root or _compiled_for(self._json).root
        if not is_normal(root, obj):
            pruning.prune(root, obj)
            checkpoint()
            default(root, obj)

    def prune(self, obj: Object) -> None:
        """Drop, in place, unknown fields, and nulls that are neither allowed nor have a default."""
        pruning.prune(self._root, obj)

    def default(self, obj: Object) -> None:
        """Fill missing fields, and nulls that are not allowed, in place. Call it after prune."""
        default(self._root, obj)

    def default_plain(self, obj: Object) -> None:
        """Set the defaults of an object that `is_plain`."""
        compiled = self._permanent or _compiled_for(self._json)
        if compiled.has_defaults:
            default(compiled.root, obj)

    def validate(self, obj: Object, old: Object | None = None) -> list[FieldError]:
        """Return every violation, in document order for each object; empty if there is none.

        With `old`, the previous object, violations in unchanged parts are not reported, and duplicate items of sets and
        maps only if the old object had none. Embedded metadata is always validated.
        """
        if (self._permanent or _compiled_for(self._json)).takes(obj):
            return []
        root = self._permanent_root or _compiled_for(self._json).root
        if root.accept(root, obj):
            return []
        out = ErrorCollector()
        validate(root, obj, "", out, NO_OLD_VALUE if old is None else OldValue(old, is_root=True))
        validate_embedded(root, obj, "", out.errors)
        if old is None or not list_types.duplicate_errors(root, old):
            out.errors.extend(list_types.duplicate_errors(root, obj))
        return out.errors


def compile_schema(
    source: Object, definitions: Mapping[str, Object] | None = None, referenced: Referenced | None = None
) -> StructuralSchema:
    """Compile the schema of whole objects permanently.

    `source` is an OpenAPI v3 schema as in a CustomResourceDefinition. With `definitions` it is that of a built-in kind:
    `$ref`s are looked up there by the last part of their path, and a missing definition allows any value. Keywords of
    wrong types are ignored; patterns that RE2 rejects match nothing. Schemas with the same definitions share the nodes
    of `referenced`.
    """
    return StructuralSchema(_CompiledSchema(source, definitions, referenced), b"", definitions or {})


_cache: OrderedDict[bytes, StructuralSchema] = OrderedDict()
_compiled: LruCache[bytes, tuple[int, _CompiledSchema]] = LruCache(COMPILED_BYTES, lambda entry: entry[0])
_cache_lock = Lock()


def _compiled_for(json: bytes) -> _CompiledSchema:
    with _cache_lock:
        known = _compiled.get(json)
    if known is None:
        known = len(json) + _FORM_BYTES, _CompiledSchema(decode(json), None)
        with _cache_lock:
            _compiled.put(json, known)
    return known[1]


def schema_for(source: bytes) -> StructuralSchema:
    """Return the schema of a source in JSON, the same value for equal bytes among the last CACHE_SIZE used.

    `source` must be a valid JSON object, such as a result of `meta.objects.encode_json`.
    """
    digest = hashlib.sha256(source).digest()
    with _cache_lock:
        if known := _cache.get(digest):
            _cache.move_to_end(digest)
            return known
    schema = StructuralSchema(None, source, {})
    with _cache_lock:
        _cache[digest] = schema
        if len(_cache) > CACHE_SIZE:
            _cache.popitem(last=False)
    return schema
