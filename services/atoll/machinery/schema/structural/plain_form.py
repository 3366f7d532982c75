"""The plain form of a schema: a msgspec type that takes objects which need defaults at most and are valid, in one pass
in C.

`structural_schema` asks it before the walks of `pruning` and `fast_validation`, which decide about what it refuses. A
place that msgspec cannot express is a `_Walked` type, whose values these walks look at. Invariant: an object that is
taken has no unknown field and no null, and is valid; it may lack defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from atoll.machinery.process.time_slicing import checkpoint, slice_pause
from atoll.machinery.schema.formats import USUAL_DATE_TIME
from atoll.machinery.schema.structural.compiler import compile_value
from atoll.machinery.schema.structural.defaulting import is_normal_value
from atoll.machinery.schema.structural.fast_validation import duplicate_items
from atoll.machinery.schema.structural.node import Node
from atoll.machinery.schema.structural.object_meta import METADATA

#: Types of objects that one form makes, each of 3 to 5.5 KB; places beyond are walked. Schemas that are never evicted,
#: which share those of their nodes, have more: a Pod has some hundred.
MAX_STRUCTS, MAX_PERMANENT_STRUCTS = 24, 256
#: Levels of a field set that a form takes.
_FIELD_SET_LEVELS = 12
_INTEGERS = {"": 63, "int64": 63, "int32": 31}
_DATE_TIME = Annotated[str, msgspec.Meta(pattern=f"^(?:{USUAL_DATE_TIME})\\Z")]
_META_FIELDS = ("apiVersion", "kind")
_ALTERNATIVES: Mapping[tuple[str | None, ...], Any] = {
    ("integer", "string"): Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | str,
    ("string", "number"): Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | float | str,
}

Takes: TypeAlias = Callable[[Any], bool]


def plain_form(root: Node, max_structs: int = MAX_STRUCTS) -> Takes:
    """Return the test whether an object needs no change but defaults, and is valid.

    A form that cannot be made takes nothing, and no form takes large objects, which are walked in slices. What a
    definition says of metadata beside its being an object is tested by its node.
    """
    form = _Forms(max_structs).root(root)
    if form is None:
        return lambda obj: False

    def takes(obj: Any) -> bool:
        try:
            return slice_pause() is None and bool(msgspec.convert(obj, form, dec_hook=_walk))
        except msgspec.ValidationError:
            return False

    named = root.properties.get("metadata")
    if named is None or named.plain is dict:
        return takes
    return lambda obj: takes(obj) and named.accept(named, obj["metadata"])


class _Walked:
    """A place whose values are walked, but the items of a list of other types: those have to differ only.

    A type has one value, which stands for each that it takes.
    """

    node: Node
    value: _Walked
    #: The type of an object with such a list as `f0`: msgspec reads other types anew for each value.
    items: Any = None


def _walk(place: type[_Walked], value: Any) -> _Walked:
    """Return the value that stands for a value without a fault. Raises ValueError."""
    node = place.node
    if place.items is not None:
        msgspec.convert({"f0": value}, place.items, dec_hook=_walk)
        if len(value) > 1 and duplicate_items(node, value):
            raise ValueError
    elif not ((type(value) is str or _stays(node, value)) and node.accept(node, value)):
        raise ValueError
    return place.value


def _stays(node: Node, value: Any) -> bool:
    """Whether a write leaves a value as it is."""
    return is_normal_value(node, value) and not _has_null(value)


def _has_null(value: Any) -> bool:
    """Whether a value is null or has one below."""
    if type(value) is dict:
        return any(map(_has_null, value.values()))
    return any(map(_has_null, value)) if type(value) is list else value is None


def _field_set() -> Any:
    """Return the type of fieldsV1: objects of objects."""
    found: Any = Annotated[dict[str, Any], msgspec.Meta(max_length=0)]
    for _ in range(_FIELD_SET_LEVELS):
        found = dict[str, found]
    return found


@cache
def _metadata() -> Any:
    """Return the type of ObjectMeta, which all schemas share."""
    return _Forms().metadata(compile_value(METADATA))


class _Forms:
    """Makes the types of one schema."""

    def __init__(self, max_structs: int = MAX_STRUCTS) -> None:
        self._max_structs = max_structs
        self._begun: set[int] = set()
        self._structs = 0

    def root(self, root: Node) -> Any | None:
        """Return the type of whole objects; None where a definition has defaults for metadata."""
        properties = dict(root.properties)
        named = [properties.pop(name) for name in _META_FIELDS if name in properties]
        declared = properties.pop("metadata", None)
        if declared is not None and (declared.has_default or declared.has_defaults_below):
            return None
        if root.meta is None or root.embedded or not _is_struct(root):
            return None
        if any(node.plain is not str for node in named):
            return None
        fields: list[tuple[str, Any]] = [("apiVersion", str), ("kind", str), ("metadata", _metadata())]
        return self._struct(root, fields, properties)

    def metadata(self, meta: Node) -> Any:
        """Return the type of ObjectMeta."""
        entries = meta.properties["managedFields"].items
        assert entries is not None
        entries.properties["fieldsV1"].form = _field_set()
        return self._type(meta)

    def _type(self, node: Node) -> Any:
        if id(node) in self._begun:
            # It refers to itself: the inner place is walked.
            return _walked(node)
        if node.form is None:
            checkpoint()
            self._begun.add(id(node))
            node.form = self._typed(node) or _walked(node)
            self._begun.discard(id(node))
        return node.form

    def _typed(self, node: Node) -> Any | None:
        """Return a type whose values are all plain; None if msgspec has none."""
        if node.one_of and not (node.all_of or node.any_of or node.not_ is not None):
            return _alternatives(node)
        if node.all_of or node.any_of or node.one_of or node.not_ is not None:
            return None
        if node.types == {"string"}:
            return _string(node)
        if node.enum is not None or len(node.types) != 1:
            return None
        if node.plain is bool:
            return bool
        if node.types == {"integer"}:
            return _integer(node)
        if node.types == {"array"}:
            return self._list(node)
        return self._object(node) if node.types == {"object"} and node.meta is None else None

    def _list(self, node: Node) -> Any | None:
        items = node.items
        if items is None or node.prune_items_by is not items:
            return None
        low, high = node.min_items, node.max_items
        if (low or 0) < 0 or (high or 0) < 0:
            return None
        found: Any = list[self._type(items)]  # type: ignore[misc]
        if low is not None or high is not None:
            found = Annotated[found, msgspec.Meta(min_length=low, max_length=high)]
        return _walked(node, msgspec.defstruct("List", [("f0", found)], gc=False)) if node.unique else found

    def _object(self, node: Node) -> Any | None:
        if node.closed or not _has_simple_keys(node):
            return None
        if node.additional is not None and not node.properties and not node.required:
            return dict[str, self._type(node.additional)]  # type: ignore[misc]
        return self._struct(node, [], node.properties) if node.properties and _is_struct(node) else None

    def _struct(self, node: Node, fields: list[tuple[str, Any]], properties: Any) -> Any | None:
        self._structs += 1
        needed = set(node.required) - {name for name, _ in fields}
        if self._structs > self._max_structs or not needed <= properties.keys():
            return None
        fields += [(name, self._type(properties[name])) for name in needed]
        optional = [(name, self._type(child)) for name, child in properties.items() if name not in needed]
        names = [name for name, _ in fields] + [name for name, _ in optional]
        declared: list[Any] = [(f"f{at}", type) for at, (_, type) in enumerate(fields)]
        declared += [(f"f{at}", type, None) for at, (_, type) in enumerate(optional, len(fields))]
        renamed = {f"f{at}": name for at, name in enumerate(names)}
        try:
            return msgspec.defstruct("Plain", declared, rename=renamed, forbid_unknown_fields=True, gc=False)
        except (TypeError, ValueError):
            # A name that msgspec does not write into JSON, such as one with a quote.
            return None


def _walked(node: Node, items: Any = None) -> type[_Walked]:
    found: type[_Walked] = type("_Place", (_Walked,), {"node": node, "items": items, "__slots__": ()})
    found.value = found()
    return found


def _has_simple_keys(node: Node) -> bool:
    counted = node.min_properties is not None or node.max_properties is not None
    return not (node.open or node.unions or counted or node.all_of or node.any_of or node.one_of)


def _is_struct(node: Node) -> bool:
    """Whether an object has the declared fields and no others."""
    asked = node.enum is not None or node.not_ is not None or node.additional is not None
    return node.types == {"object"} and not asked and _has_simple_keys(node)


def _string(node: Node) -> Any | None:
    low, high = node.min_length, node.max_length
    if node.enum is not None:
        words = [each for each in node.enum if type(each) is str]
        ruled = low is not None or high is not None or node.pattern or node.format_check is not None
        return Literal[tuple(words)] if words and not ruled else None
    if node.pattern or (low or 0) < 0 or (high or 0) < 0:
        return None
    if node.format_check is not None:
        return _DATE_TIME if node.format_name == "date-time" and low is None and high is None else None
    return str if low is None and high is None else Annotated[str, msgspec.Meta(min_length=low, max_length=high)]


def _alternatives(node: Node) -> Any | None:
    """Return the type of an IntOrString or a Quantity of built-in kinds; None for other alternatives."""
    if node.types or node.enum is not None or node.items is not None or node.properties or node.unions:
        return None
    if node.additional is not None or node.format_check is not None or node.pattern:
        return None
    return _ALTERNATIVES.get(tuple(each.source.get("type") if len(each.source) == 1 else None for each in node.one_of))


def _integer(node: Node) -> Any | None:
    bits = _INTEGERS.get(node.format)
    if bits is None or node.exclusive_min or node.exclusive_max or node.multiple_of is not None:
        return None
    lowest, highest = -(2**bits), 2**bits - 1
    low = lowest if node.minimum is None else node.minimum
    high = highest if node.maximum is None else node.maximum
    if not all(lowest <= bound <= highest and float(bound).is_integer() for bound in (low, high)):
        # No integer fits such a bound.
        return None
    return Annotated[int, msgspec.Meta(ge=int(low), le=int(high))]
