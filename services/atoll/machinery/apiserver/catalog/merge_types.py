"""The merge types of kinds, for field ownership and patches: compiled on first use and shared.

The REST handlers ask for them. Invariant: the schemas that the cache keeps alive have at most MAX_SCHEMA_BYTES of JSON.
"""

from __future__ import annotations

from functools import cache, lru_cache
from threading import Lock

from atoll.machinery.kinds import patch_markers
from atoll.machinery.kinds.kind import Kind, Schema
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.objects import Object
from atoll.machinery.patch.managedfields.options import NO_RESET, ResetFields, SchemaLookup, reset_fields, reset_paths
from atoll.machinery.patch.strategicmerge.paired_types import PairedSchema, PairedType
from atoll.machinery.patch.structuredmerge.topology import TypeSchema

#: Decoded, a schema takes some ten times its JSON. Those of built-in kinds stay in memory anyway: 1 KiB each.
MAX_SCHEMA_BYTES = 4 << 20
_BUILTIN_BYTES = 1024
#: A kind without a schema: maps are granular, lists atomic.
_OPEN: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


#: By the identity of the schema, which the entry keeps alive: schemas are shared values.
_compiled: LruCache[int, tuple[int, Schema, TypeSchema]] = LruCache(MAX_SCHEMA_BYTES, lambda entry: entry[0])
_lock = Lock()


#: Those of built-in kinds, which stay: as many as there are kinds.
_builtin: dict[int, tuple[Schema, TypeSchema]] = {}


def _type_schema(schema: Schema) -> TypeSchema:
    with _lock:
        known = _compiled.get(id(schema))
    if known is None:
        compiled = TypeSchema(schema.source, schema.definitions, patches_by_lists=True)
        known = schema.size_bytes or _BUILTIN_BYTES, schema, compiled
        with _lock:
            _compiled.put(id(schema), known)
    return known[2]


@cache
def open_schema() -> TypeSchema:
    """Return the merge type of objects without a schema."""
    return TypeSchema(_OPEN, {})


def type_schema_of(kind: Kind) -> TypeSchema:
    """Return the merge type of a kind's version."""
    schema = kind.schema
    if schema is None:
        return open_schema()
    return _builtin_type_schema(schema) if kind.builtin else _type_schema(schema)


def _builtin_type_schema(schema: Schema) -> TypeSchema:
    known = _builtin.get(id(schema))
    if known is None:
        compiled = TypeSchema(schema.source, schema.definitions, patches_by_lists=False)
        known = _builtin.setdefault(id(schema), (schema, compiled))
    return known[1]


def patch_schema_of(kind: Kind) -> TypeSchema | PairedSchema:
    """Return the type by which strategic merge patches merge: Kubernetes' own beside that of a definition."""
    declared = type_schema_of(kind)
    native = None if kind.builtin else _native(kind.api_version, kind.kind)
    return PairedSchema(PairedType(declared.root, native.root)) if native is not None else declared


@lru_cache(maxsize=64)
def _native(api_version: str, kind: str) -> TypeSchema | None:
    source = patch_markers.schema_of(api_version, kind)
    return TypeSchema(source, patch_markers.Messages()) if source is not None else None


def reset_of(kind: Kind, subresource: str) -> ResetFields:
    """Return the fields that a write through a subresource ("": the object) cannot own."""
    if not subresource and not kind.has_status and not kind.resets:
        return NO_RESET
    paths = kind.resets.get(subresource)
    return reset_fields(subresource, kind.has_status) if paths is None else reset_paths(*paths)


def schemas_of(kind: Kind) -> SchemaLookup | None:
    """Return the look-up of merge types by apiVersion, None for a removed version; None for a kind of one version."""
    if not kind.versions:
        return None
    compiled = _builtin_type_schema if kind.builtin else _type_schema

    def find(api_version: str) -> TypeSchema | None:
        schema = kind.versions.get(api_version)
        return compiled(schema) if schema is not None else None

    return find
