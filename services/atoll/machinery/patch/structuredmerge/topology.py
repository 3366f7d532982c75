"""How the parts of a kind merge, compiled lazily from its OpenAPI v3 schema.

The verb handlers pass a TypeSchema to apply, update and strategic merge, which walk values and types side by side;
the apiserver's catalogue keeps those in use. Invariants: a type is compiled when a value reaches it, so unused kinds
cost nothing and recursive schemas terminate; schema dictionaries are constants, here and in every caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from atoll.machinery.meta.objects import Object
from atoll.machinery.patch.structuredmerge.object_meta import OBJECT_META

# How values of a type merge. Atomic values (scalars among them) are replaced as a whole.
ATOMIC: Final = 0
MAP: Final = 1
SET: Final = 2
KEYED: Final = 3
#: No schema: maps merge, any other value is atomic.
OPEN: Final = 4

_REF = "#/components/schemas/"
_MAX_REFS = 32
_SCALARS = frozenset({"string", "integer", "number", "boolean"})
#: Python types whose values always fit a scalar. Floats are excluded: not every float is an integer.
_PLAIN: dict[str, type] = {"string": str, "boolean": bool, "integer": int, "number": int}
_TYPE_META: Object = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}


#: Struct fields that Go's types of built-in kinds always have, so that they are neither added nor removed.
_STRUCTS = ("spec", "status")


class Type:
    """One place of a schema. `merge` is ATOMIC, MAP, SET, KEYED or OPEN; the rest depends on it.

    scalar   type name of a scalar, "" where the type of the value is not checked
    plain    the Python type of the scalar's values; `Type` itself, which no value has, where there is none
    is_map, is_list   the required kind of container, atomic or not; both false where any value is allowed
    keys     field names that identify an item of a KEYED list
    defaults values of the keys that an item omits
    structs  fields of a built-in kind that are never absent
    patch_*  how strategic merge patch treats a list here (it has markers of its own)
    """

    __slots__ = (
        "_compiled",
        "_element",
        "_element_source",
        "_is_open",
        "_preserves",
        "_properties",
        "_schema",
        "declared_fields",
        "defaults",
        "is_list",
        "is_map",
        "keys",
        "merge",
        "patch_key",
        "patch_merges",
        "patch_replaces",
        "plain",
        "scalar",
        "structs",
    )

    def __init__(self, schema: TypeSchema, source: Object, preserves: bool = False) -> None:
        self._schema = schema
        # Preserving unknown fields applies to all descendants, up to the next reference.
        self._preserves = preserves or bool(source.get("x-kubernetes-preserve-unknown-fields"))
        self._properties: Mapping[str, Object] = source.get("properties") or {}
        is_builtin = "x-kubernetes-group-version-kind" in source
        self.structs = tuple(name for name in _STRUCTS if is_builtin and name in self._properties)
        self._compiled: dict[str, Type] = {}
        #: Declared fields that values have reached, by name.
        self.declared_fields: dict[str, FieldInfo] = {}
        self._element: Type | None = None
        self._element_source: Object | None = None
        self._is_open = False
        self.scalar = ""
        self.keys: tuple[str, ...] = ()
        self.defaults: Object = {}
        strategies = str(source.get("x-kubernetes-patch-strategy") or "").split(",")
        self.patch_merges = "merge" in strategies
        self.patch_replaces = "replace" in strategies
        self.patch_key: str = source.get("x-kubernetes-patch-merge-key") or ""
        self.is_map = False
        self.is_list = source.get("type") == "array"
        self.merge: int = self._list(source) if self.is_list else self._map_or_leaf(source)
        self.plain: type = _PLAIN.get(self.scalar, Type)

    def _list(self, source: Object) -> int:
        self._element_source = source.get("items") or {}
        kind = source.get("x-kubernetes-list-type")
        if kind == "map":
            self.keys = tuple(source.get("x-kubernetes-list-map-keys") or ())
        elif kind is None and self.patch_merges:
            # Types older than the list markers declare their merge by the patch strategy.
            kind = "map" if self.patch_key else "set"
            self.keys = (self.patch_key,) if self.patch_key else ()
        if kind == "map" and self.keys:
            self.defaults = self._key_defaults()
            self._patch_as_list(self.keys[0])
            return KEYED
        if kind == "set":
            self._patch_as_list("")
        if kind == "atomic" and self._schema.patches_by_lists:
            self.patch_replaces = True
        return SET if kind == "set" else ATOMIC

    def _patch_as_list(self, key: str) -> None:
        """Have strategic merge patches merge the list as it is declared to merge, by its first key."""
        if self._schema.patches_by_lists and not (self.patch_merges or self.patch_replaces):
            self.patch_merges, self.patch_key = True, key

    def _key_defaults(self) -> Object:
        element = self._schema.resolve(self._element_source or {})
        properties = element.get("properties") or {}
        defaults = {name: self._schema.resolve(properties.get(name) or {}).get("default") for name in self.keys}
        return {name: value for name, value in defaults.items() if value is not None}

    def _map_or_leaf(self, source: Object) -> int:
        name = source.get("type")
        if source.get("x-kubernetes-int-or-string") or source.get("format") == "int-or-string":
            return ATOMIC
        if name in _SCALARS:
            # Strings with a format (times, quantities) are not checked here, as in Kubernetes.
            self.scalar = "" if name == "string" and source.get("format") not in (None, "byte") else str(name)
            return ATOMIC
        extra = source.get("additionalProperties")
        if isinstance(extra, dict) and extra:
            self._element_source = extra
        elif extra is not False:
            # An object without declarations (RawExtension, JSON) is free-form.
            self._is_open = extra is not None or self._preserves or not self._properties
        self.is_map = bool(self._properties) or self._element_source is not None
        if source.get("x-kubernetes-map-type") == "atomic":
            return ATOMIC
        return MAP if self.is_map else OPEN

    def declares(self, name: str) -> bool:
        """Whether a field of this name is declared (an entry of a map is not)."""
        return name in self._properties

    def field(self, name: str) -> Type | None:
        """Return the type of a field or map entry; None where the schema does not allow one."""
        known = self._compiled.get(name)
        if known is not None:
            return known
        source = self._properties.get(name)
        if source is None:
            return self.element if self._is_open or self._element_source is not None else None
        return self._compiled.setdefault(name, self._schema.compile(source, self._preserves))

    def field_info(self, name: str) -> FieldInfo:
        """Describe a field or map entry. Declared fields are cached in `declared_fields`."""
        field, is_declared = self.field(name), name in self._properties
        info = FieldInfo("f:" + name, field, field.plain if field is not None else Type, is_declared)
        if is_declared:
            self.declared_fields[name] = info
        return info

    @property
    def element(self) -> Type:
        """The type of list items or map entries; open where the schema declares none."""
        if self._element is None:
            source = self._element_source
            self._element = self._schema.open if source is None else self._schema.compile(source, self._preserves)
        return self._element


class FieldInfo(NamedTuple):
    """A field of a map: its path element, its type as `Type.field` returns it, and that type's `plain`."""

    element: str
    field: Type | None
    plain: type
    is_declared: bool


class TypeSchema:
    """One version of a kind as a tree of Types. `root` is the object itself, with metadata and type fields.

    `patches_by_lists`: strategic merge patches merge lists by the list types that the schema declares. Schemas of
    definitions have no markers of their own for these patches.
    """

    def __init__(self, source: Object, definitions: Mapping[str, Object], *, patches_by_lists: bool = False) -> None:
        self.source, self.patches_by_lists = source, patches_by_lists
        self.definitions = definitions
        self._named: dict[str, Type] = {}
        self.open = Type(self, {"x-kubernetes-preserve-unknown-fields": True})
        self.root = Type(self, _with_metadata(self, self.resolve(source)))

    def compile(self, source: Object, preserves: bool = False) -> Type:
        """Return the Type of a schema. A plain reference is compiled once, under its name."""
        name = _reference(source)
        if name is None:
            return Type(self, self._embedded(source), preserves)
        known = self._named.get(name)
        if known is None:
            known = self._named[name] = Type(self, self._embedded(self.resolve(source)))
        return known

    def resolve(self, source: Object) -> Object:
        """Return the schema with its `$ref` or `allOf: [{$ref}]` replaced by the target; its own markers win.

        A name that does not resolve leaves the place open.
        """
        for _ in range(_MAX_REFS):
            name = source.get("$ref")
            wrapped = source.get("allOf")
            if name is None and isinstance(wrapped, list) and len(wrapped) == 1:
                name = wrapped[0].get("$ref")
            if name is None:
                return source
            target = self.definitions.get(str(name).removeprefix(_REF))
            if target is None:
                return {"x-kubernetes-preserve-unknown-fields": True}
            own = {key: value for key, value in source.items() if key not in {"$ref", "allOf"}}
            source = {**target, **own}
        return {"x-kubernetes-preserve-unknown-fields": True}

    def _embedded(self, source: Object) -> Object:
        source = self.resolve(source)
        return _with_metadata(self, source) if source.get("x-kubernetes-embedded-resource") else source


def _reference(source: Object) -> str | None:
    """Return the name of a schema that is only a reference (description and default do not count)."""
    name = source.get("$ref")
    wrapped = source.get("allOf")
    if name is None and isinstance(wrapped, list) and len(wrapped) == 1:
        name = wrapped[0].get("$ref")
    if name is None or any(key.startswith("x-kubernetes-") for key in source):
        return None
    return str(name)


def _with_metadata(schema: TypeSchema, source: Object) -> Object:
    """Return an object's schema with the fields of every object: apiVersion, kind and the full ObjectMeta.

    A CRD declares `metadata: {type: object}`, possibly with rules for the name.
    """
    properties = source.get("properties") or {}
    metadata = schema.resolve(properties.get("metadata") or {})
    if "managedFields" not in (metadata.get("properties") or {}):
        metadata = OBJECT_META
    return {**source, "properties": {**properties, **_TYPE_META, "metadata": metadata}}
