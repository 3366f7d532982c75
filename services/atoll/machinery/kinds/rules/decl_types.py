"""The CEL view of a schema: types, bounds on sizes, and the conversion of JSON to CEL values.

`tree` and `definition` declare each schema once; `program` gets the types with names for the scope of a rule.
Invariant: undeclared parts are invisible to rules, as in Kubernetes: parts that preserve unknown fields without further
declaration, lists and maps of such parts, and all metadata except the names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from atoll.machinery.cel import types
from atoll.machinery.cel.errors import EvaluationError
from atoll.machinery.cel.syntax.parser import RESERVED
from atoll.machinery.kinds.rules import values
from atoll.machinery.kinds.rules.escaping import escape
from atoll.machinery.meta.cached_property import cached_property
from atoll.machinery.meta.objects import Object

#: The request size by which Kubernetes' cost model bounds sizes without a declared limit.
MAX_REQUEST_SIZE = 3 * 1024 * 1024
_MAX_TEXT = MAX_REQUEST_SIZE - 2
_MAX_NAME = 253
#: Sizes in JSON, with quotes, of strings with a format: the longest, the shortest.
_TIMES = {"duration": (32, 3), "date": (12, 12), "date-time": (32, 21)}

Convert = Callable[[Any], Any]


class DeclType:
    """One part of a schema as rules see it.

    `size` is the limit of elements, characters or entries (0 if it has no meaning), `least` the smallest size in JSON.
    `convert` maps a JSON value to the CEL value; None if they are the same.
    """

    def __init__(self, type: types.Type, least: int, size: int = 0, convert: Convert | None = None) -> None:
        self.type = type
        self.least = least
        self.size = size
        self.convert = convert
        #: Fields of an object by escaped name; None for other types.
        self.fields: dict[str, DeclType] | None = None
        #: JSON names of the fields whose escaped names differ.
        self.names: dict[str, str] = {}
        #: Items of a list, values of a map.
        self.item: DeclType | None = None

    def cel_type(self, name: str) -> types.Type:
        """Return the CEL type; objects in it are named by their path below `name`."""
        if self.fields is not None:
            return types.ObjectType(name, _Fields(self, name))
        if self.item is None:
            return self.type
        if self.type is _LIST:
            return types.ListType(self.item.cel_type(f"{name}.@idx"))
        return types.MapType(types.STRING, self.item.cel_type(f"{name}.@elem"))

    @cached_property
    def is_special(self) -> bool:
        """Whether the CEL value of any part differs from its JSON, so that JSON comparison is wrong."""
        inner = [*(self.fields or {}).values(), *([self.item] if self.item is not None else [])]
        return self.convert is not None or any(child.is_special for child in inner)

    def value(self, value: Any) -> Any:
        """Return the CEL value of a JSON value other than null; fields of objects in it are converted when selected."""
        return value if self.convert is None else self.convert(value)

    def deep_value(self, value: Any) -> Any:
        """Return the same with all fields of all objects converted, for comparison; values without a CEL form stay."""
        if value is None or not self.is_special:
            return value
        if self.fields is not None and type(value) is dict:
            children = {self.names.get(name, name): child for name, child in self.fields.items()}
            value = {key: children[key].deep_value(item) if key in children else item for key, item in value.items()}
        elif self.item is not None and type(value) is list:
            value = [self.item.deep_value(item) for item in value]
        elif self.item is not None and type(value) is dict:
            value = {key: self.item.deep_value(item) for key, item in value.items()}
        try:
            return self.value(value)
        except EvaluationError:
            return value


_LIST, _MAP, _OBJECT = types.ListType(types.DYN), types.MapType(types.STRING, types.DYN), types.ObjectType("object", {})
_KEY = DeclType(types.STRING, 2)


class _Fields(Mapping[str, types.Field]):
    """Fields of an object type, made on access: most rules select a few of many."""

    def __init__(self, declared: DeclType, name: str) -> None:
        self._declared, self._name = declared, name
        self._made: dict[str, types.Field] = {}

    def __getitem__(self, key: str) -> types.Field:
        if key not in self._made:
            self._made[key] = self._field(key)
        return self._made[key]

    def _field(self, key: str) -> types.Field:
        declared = self._declared
        assert declared.fields is not None
        # A reserved word is accepted unescaped as well, where the grammar allows it after a dot.
        found = declared.fields.get(key)
        if found is None and key in RESERVED:
            found = declared.fields[f"__{key}__"]
            return types.Field(found.cel_type(f"{self._name}.__{key}__"), found.convert)
        if found is None:
            raise KeyError(key)
        return types.Field(found.cel_type(f"{self._name}.{key}"), found.convert, declared.names.get(key))

    def __iter__(self) -> Iterator[str]:
        return iter(self._declared.fields or ())

    def __len__(self) -> int:
        return len(self._declared.fields or ())


def declare(schema: Object, *, is_root: bool = False) -> DeclType | None:
    """Return a schema as rules see it; None if they do not. `is_root` for whole objects, including embedded ones."""
    if schema.get("x-kubernetes-int-or-string") is True:
        size = _text_size(schema)
        return DeclType(types.DYN, 1, _MAX_TEXT if size is None else size)
    kind = schema.get("type")
    if kind == "object":
        return _object(schema, is_root=is_root)
    if kind == "array":
        return _list(schema)
    if kind == "string":
        return _string(schema)
    if kind == "boolean":
        return DeclType(types.BOOL, 4)
    if kind == "number":
        return DeclType(types.DOUBLE, 1, convert=values.number)
    return DeclType(types.INT, 1) if kind == "integer" else None


def below(schema: Object) -> DeclType | None:
    """Declare a schema inside another one."""
    return declare(schema, is_root=schema.get("x-kubernetes-embedded-resource") is True)


def whole_object(schema: Object) -> Object:
    """Return a schema with the fields that rules see of every object: kind, apiVersion and the names in metadata."""
    properties: Object = schema.get("properties") or {}
    metadata = _mapping(properties.get("metadata"))
    names = _mapping(metadata.get("properties"))
    fields = [properties.get("kind"), properties.get("apiVersion"), names.get("name"), names.get("generateName")]
    if metadata.get("type") == "object" and all(_mapping(each).get("type") == "string" for each in fields):
        return schema
    visible = {
        "name": _capped(names.get("name"), _MAX_NAME),
        # The server appends at least one character to the prefix.
        "generateName": _capped(names.get("generateName"), _MAX_NAME - 1),
    }
    added = {"kind": {"type": "string"}, "apiVersion": {"type": "string"}}
    return {**schema, "properties": {**properties, **added, "metadata": {"type": "object", "properties": visible}}}


def _capped(schema: Any, size: int) -> Object:
    own = _mapping(schema).get("maxLength")
    return {"type": "string", "maxLength": own if type(own) is int and own < size else size}


def _mapping(value: Any) -> Object:
    return value if isinstance(value, dict) else {}


def _bound(schema: Object, keyword: str) -> int | None:
    value = schema.get(keyword)
    return max(int(value), 0) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _text_size(schema: Object) -> int | None:
    """Return the limit in bytes of a string with maxLength, which counts characters of up to four bytes."""
    bound = _bound(schema, "maxLength")
    return None if bound is None else bound * 4


def _string(schema: Object) -> DeclType:
    form = schema.get("format")
    if form == "byte":
        bound = _bound(schema, "maxLength")
        return DeclType(types.BYTES, 2, _MAX_TEXT if bound is None else bound, values.decoded)
    if isinstance(form, str) and form in _TIMES:
        size, least = _TIMES[form]
        if form == "duration":
            return DeclType(types.DURATION, least, size, values.duration)
        return DeclType(types.TIMESTAMP, least, size, values.date if form == "date" else values.date_time)
    size_of_text = _text_size(schema)
    if size_of_text is None:
        words = schema.get("enum") or ()
        longest = max((len(each.encode()) for each in words if isinstance(each, str)), default=0)
        size_of_text = longest if words else _MAX_TEXT
    return DeclType(types.STRING, 2, size_of_text)


def _list(schema: Object) -> DeclType | None:
    items = schema.get("items")
    item = below(items) if isinstance(items, dict) else None
    if item is None:
        return None
    size = _bound(schema, "maxItems")
    keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
    convert = values.of_items(item.convert, schema.get("x-kubernetes-list-type"), keys)
    declared = DeclType(_LIST, 2, _MAX_TEXT // (item.least + 1) if size is None else size, convert)
    declared.item = item
    return declared


def _object(schema: Object, *, is_root: bool) -> DeclType | None:
    additional = schema.get("additionalProperties")
    if not is_root and isinstance(additional, dict):
        value = below(additional)
        if value is None:
            return None
        size = _bound(schema, "maxProperties")
        # A key takes quotes, a colon, a comma and two characters.
        entries = _MAX_TEXT // (value.least + 6) if size is None else size
        declared = DeclType(_MAP, 2, entries, values.of_entries(value.convert))
        declared.item = value
        return declared
    return _struct(whole_object(schema) if is_root else schema)


def _struct(schema: Object) -> DeclType:
    properties, required = _mapping(schema.get("properties")), frozenset(schema.get("required") or ())
    fields, names, least, nullable = {}, {}, 2, False
    for name, child in properties.items():
        field = below(child) if isinstance(child, dict) else None
        if field is None:
            continue
        nullable = nullable or child.get("nullable") is True
        identifier = escape(name)
        if identifier is not None:
            fields[identifier] = field
            if identifier != name:
                names[identifier] = name
        if name in required and child.get("default") is None:
            least += len(name.encode()) + field.least + 4
    declared = DeclType(_OBJECT, least, 0, values.without_nulls if nullable else None)
    declared.fields, declared.names = fields, names
    return declared


class Sizes:
    """Size limits of data for the static cost of a rule, by the declared type of `self`."""

    def __init__(self, declared: DeclType) -> None:
        self._declared = declared

    def most(self, path: tuple[str, ...]) -> int | None:
        """Return the limit of elements at a path that begins with the variable; None if it is not declared."""
        at: DeclType | None = self._declared
        for step in path[1:]:
            if at is None:
                return None
            if step == "@keys":
                at = _KEY if at.type is _MAP else None
            elif step in ("@items", "@values"):
                at = at.item
            else:
                at = at.fields.get(step) if at.fields is not None else None
        return None if at is None or not path else at.size


def most_instances(declared: DeclType) -> int:
    """Return how often data of this type fits into the largest request: the bound of rules inside unbounded lists and
    maps.
    """
    return MAX_REQUEST_SIZE // (declared.least + 1)
