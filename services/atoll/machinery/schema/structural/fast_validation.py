"""Validation that only answers whether a value is valid, as fast as Python can: the path of almost every write.

`compiler` picks one of these functions for each node; `structural_schema` calls that of the root and runs `validation`
only for invalid objects. Invariant: a value is accepted exactly if `validation` reports no error.
"""

from __future__ import annotations

import math
from typing import Any

from atoll.machinery.meta.equality import same
from atoll.machinery.meta.objects import encode_json
from atoll.machinery.process.time_slicing import PART, in_parts
from atoll.machinery.schema.formats import usual_date_time
from atoll.machinery.schema.structural.node import Accept, Node
from atoll.machinery.schema.structural.object_meta import embedded_errors

TYPE_NAMES: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    dict: "object",
    list: "array",
    type(None): "null",
}

_RANGES = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}
_FLOAT32_MAX = 3.4028235677973366e38
#: Largest float that is exactly an integer; Go does not treat larger ones as integers.
_JSON_INTEGER_MAX = float(2**53 - 1)


def accept_function(node: Node) -> Accept:
    """Return the cheapest test of all keywords of the node. Reads the node itself, not its children."""
    if node.all_of or node.any_of or node.one_of or node.not_ is not None or node.nullable:
        return accept_any
    if node.types == {"string"}:
        return _string_test(node)
    if node.enum is not None:
        return accept_any
    if node.types == {"object"}:
        simple = node.min_properties is None and node.max_properties is None and not node.closed and node.meta is None
        return accept_struct if simple else accept_object
    if node.types == {"array"}:
        return accept_array
    if node.types == {"integer"} and node.format != "int32" and node.multiple_of is None:
        return _integer_test(node)
    return accept_any


def _string_test(node: Node) -> Accept:
    if node.enum is not None:
        words = frozenset(each for each in node.enum if type(each) is str)
        if has_string_rules(node):
            return lambda node, value: type(value) is str and value in words and string_fits(node, value)
        return lambda node, value: type(value) is str and value in words
    low, high, matches, is_formatted = node.min_length or 0, node.max_length, node.pattern_matches, node.format_check
    if is_formatted is not None and matches is None and high is None and not low:
        if node.format_name == "date-time":
            return lambda node, value: type(value) is str and (bool(usual_date_time(value)) or is_formatted(value))
        return lambda node, value: type(value) is str and is_formatted(value)
    if node.format_check is not None or matches is None:
        return accept_string
    if high is None:
        return lambda node, value: type(value) is str and low <= len(value) and matches(value)
    return lambda node, value: type(value) is str and low <= len(value) <= high and matches(value)


def _integer_test(node: Node) -> Accept:
    """Return the test of integers with plain bounds; values beyond them take the full test."""
    low = _RANGES["int64"][0] if node.minimum is None else math.ceil(node.minimum)
    high = _RANGES["int64"][1] if node.maximum is None else math.floor(node.maximum)
    if node.exclusive_min or node.exclusive_max or not (in_range(node, low) and in_range(node, high)):
        return accept_any
    bounds = (node.minimum, node.maximum)
    if any(bound is not None and not in_range(node, bound) for bound in bounds):
        return accept_any
    return lambda node, value: (type(value) is int and low <= value <= high) or accept_any(node, value)


def plain_type(node: Node) -> type:
    """Return the Python type whose values are all valid, for scalars without rules and free-form objects; else Node,
    which no value has."""
    asks = node.enum is not None or node.all_of or node.any_of or node.one_of or node.not_ is not None
    if not asks and node.types == {"boolean"}:
        return bool
    if not asks and node.types == {"string"} and not has_string_rules(node):
        return str
    if not asks and node.accept is accept_struct and not (node.properties or node.additional or node.required):
        return dict
    return Node


def has_string_rules(node: Node) -> bool:
    """Whether strings have further rules."""
    return node.min_length is not None or node.max_length is not None or bool(node.pattern or node.format_check)


def accept_string(node: Node, value: Any) -> bool:
    """Accept by a node of type string only."""
    return type(value) is str and string_fits(node, value)


def string_fits(node: Node, value: str) -> bool:
    """Check lengths in characters, pattern, format."""
    if node.max_length is not None and len(value) > node.max_length:
        return False
    if node.min_length is not None and len(value) < node.min_length:
        return False
    if node.pattern_matches is not None and not node.pattern_matches(value):
        return False
    return node.format_check is None or node.format_check(value)


def accept_struct(node: Node, value: Any) -> bool:
    """Accept by a node of type object whose rules concern keys and their values only."""
    if type(value) is not dict:
        return False
    properties, additional = node.properties, node.additional
    fields = value.items()
    for key, item in fields if len(value) <= PART else in_parts(fields):
        child = properties.get(key, additional)
        if child is not None and type(item) is not child.plain and not child.accept(child, item):
            return False
    for key in node.required:  # noqa: SIM110 - a generator costs more than the loop, and this is the hot path
        if key not in value:
            return False
    return True


def accept_object(node: Node, value: Any) -> bool:
    """Accept by a node of type object only."""
    if not accept_struct(node, value):
        return False
    if node.closed and not value.keys() <= node.properties.keys():
        return False
    if node.min_properties is not None and len(value) < node.min_properties:
        return False
    if node.max_properties is not None and len(value) > node.max_properties:
        return False
    meta = node.meta
    if meta is None:
        return True
    metadata = value.get("metadata")
    if metadata is not None and not meta.accept(meta, metadata):
        return False
    if type(value.get("apiVersion", "")) is not str or type(value.get("kind", "")) is not str:
        return False
    return not node.embedded or not embedded_errors(value, "")


def accept_array(node: Node, value: Any) -> bool:
    """Accept by a node of type array only."""
    if type(value) is not list:
        return False
    size = len(value)
    if node.min_items is not None and size < node.min_items:
        return False
    if node.max_items is not None and size > node.max_items:
        return False
    items = node.items
    if items is not None:
        plain, accept = items.plain, items.accept
        for item in value if size <= PART else in_parts(value):
            if type(item) is not plain and not accept(items, item):
                return False
    return not node.unique or not duplicate_items(node, value)


def accept_any(node: Node, value: Any) -> bool:
    """Accept by any node."""
    if value is None:
        return (node.nullable or not node.types) and (node.enum is None or None in node.enum)
    kind = type(value)
    if not type_fits(node, value):
        return False
    if kind is str:
        if not string_fits(node, value):
            return False
    elif kind is dict:
        if not accept_object(node, value):
            return False
    elif kind is list:
        if not accept_array(node, value):
            return False
    elif kind is not bool and not number_fits(node, value):
        return False
    return (node.enum is None or in_enum(node.enum, value)) and _accept_junctors(node, value)


def _accept_junctors(node: Node, value: Any) -> bool:
    for each in node.all_of:
        if not each.accept(each, value):
            return False
    if node.any_of and not any(each.accept(each, value) for each in node.any_of):
        return False
    if node.one_of and sum(each.accept(each, value) for each in node.one_of) != 1:
        return False
    return node.not_ is None or not node.not_.accept(node.not_, value)


def type_fits(node: Node, value: Any) -> bool:
    """Whether a value other than null has one of the node's types; 1.0 is an integer, 1 is a number.

    Without types, a string format still excludes other types, as in Go.
    """
    if not node.types:
        return not node.format_name or type(value) is str or type(value) is list
    name = TYPE_NAMES[type(value)]
    if name in node.types:
        return True
    if name == "integer":
        return "number" in node.types
    return name == "number" and "integer" in node.types and is_json_integer(value)


def is_json_integer(value: float) -> bool:
    """Whether a float is an integer."""
    return value.is_integer() and abs(value) <= _JSON_INTEGER_MAX


def number_fits(node: Node, value: float) -> bool:
    """Check format range, bounds, multipleOf."""
    if not in_range(node, value):
        return False
    low, high = node.minimum, node.maximum
    if high is not None and (value > high or (node.exclusive_max and value == high) or not in_range(node, high)):
        return False
    if low is not None and (value < low or (node.exclusive_min and value == low) or not in_range(node, low)):
        return False
    return node.multiple_of is None or is_multiple(value, node.multiple_of)


def in_range(node: Node, value: float) -> bool:
    """Whether a number, or a bound, is within the range of the node's number format."""
    if node.format in ("int32", "int64"):
        low, high = _RANGES[node.format]
        return float(value).is_integer() and low <= value <= high
    if node.format == "float":
        return abs(value) <= _FLOAT32_MAX
    if node.types == {"integer"}:
        low, high = _RANGES["int64"]
        return float(value).is_integer() and low <= value <= high
    return True


def is_multiple(value: float, factor: float) -> bool:
    """Whether a value is a multiple of a factor, with Go's tolerance for fractions."""
    if factor <= 0:
        return False
    if isinstance(value, int) and float(factor).is_integer():
        return value % int(factor) == 0
    quotient = 1 / factor * value if factor < 1 else value / factor
    return math.isclose(quotient, round(quotient), rel_tol=1e-9, abs_tol=0.0)


def in_enum(enum: tuple[Any, ...], value: Any) -> bool:
    """Whether a value is in the enum; true is not 1, but 1.0 is."""
    return any(same(each, value) for each in enum)


def duplicate_items(node: Node, value: list[Any]) -> list[tuple[int, Any]]:
    """Return index and identity of the items that repeat an earlier one, once for each identity.

    The identity is the item of a set, and the object of its key fields in a list of type map.
    """
    if len(value) < 2 or (node.map_keys and _differ_by_name(value, node.map_keys[0])):
        return []
    seen: dict[Any, int] = {}
    repeated = []
    for index, item in enumerate(value):
        identity = _identity(node, item)
        key = _hashable(identity)
        seen[key] = seen.get(key, 0) + 1
        if seen[key] == 2:
            repeated.append((index, identity))
    return repeated


def _differ_by_name(value: list[Any], key: str) -> bool:
    """Whether all items are objects with different strings or integers at the first key: most lists of type map."""
    names = [item.get(key) if type(item) is dict else None for item in value]
    return len(set(map(type, names))) == 1 and type(names[0]) in (str, int) and len(set(names)) == len(names)


def _identity(node: Node, item: Any) -> Any:
    if node.list_type != "map":
        return item
    return {key: item[key] for key in node.map_keys if key in item} if type(item) is dict else {}


def _hashable(value: Any) -> Any:
    """Return a hashable value that is equal exactly for equal JSON values."""
    kind = type(value)
    return encode_json(value) if kind is dict or kind is list else (kind, value)
