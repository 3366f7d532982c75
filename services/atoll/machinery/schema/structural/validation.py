"""Validation with error messages, in the texts and the order of Kubernetes' validator (go-openapi's).

`structural_schema` calls it after `fast_validation` found an object invalid, `definitions.defaults` for defaults.
Every check also counts its matches: when no alternative of an anyOf or oneOf fits, the errors of the alternative with
the most matches are reported, as in go-openapi. With an old object, errors in unchanged parts are dropped (ratcheting).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from atoll.machinery.meta.status import FieldError
from atoll.machinery.process.time_slicing import checkpoint
from atoll.machinery.schema import fielderrors as errors
from atoll.machinery.schema.structural import fast_validation
from atoll.machinery.schema.structural.node import Node
from atoll.machinery.schema.structural.object_meta import embedded_errors
from atoll.machinery.schema.structural.ratcheting import NO_OLD_VALUE, OldValue

_NATURAL_FORMATS: dict[type, str] = {int: "int64", float: "float64"}


class ErrorCollector:
    """Collects the errors of one validation. `base` is the field of the validated value, if any."""

    def __init__(self, base: str = "") -> None:
        self.base = base
        self.errors: list[FieldError] = []

    def field(self, path: str) -> str:
        """Return the field of an error at a path inside the value."""
        path = path.removeprefix(".")
        if not self.base:
            return path or errors.NO_FIELD
        return f"{self.base}.{path}" if path else self.base

    def add(self, *found: FieldError) -> None:
        """Add errors that are not known yet: alternatives often agree on a missing field."""
        self.errors.extend(error for error in dict.fromkeys(found) if error not in self.errors)

    def add_without_field(self, detail: str) -> None:
        """Add an error whose text, not its field, names its place."""
        self.add(errors.invalid(self.base or errors.NO_FIELD, "", detail))


def validate(node: Node, value: Any, path: str, out: ErrorCollector, old: OldValue = NO_OLD_VALUE) -> int:
    """Append every violation of a node by a value; return the number of checks that matched."""
    checkpoint()
    start = len(out.errors)
    matched = _validate(node, value, path, out, old)
    if len(out.errors) > start and old.is_same(value):
        del out.errors[start:]
    return matched


def validate_embedded(node: Node, value: Any, path: str, found: list[FieldError]) -> None:
    """Append the errors of embedded objects at any depth, except for their types. These are never ratcheted."""
    if type(value) is list and node.items is not None:
        for index, item in enumerate(value):
            validate_embedded(node.items, item, f"{path}[{index}]", found)
    if type(value) is not dict:
        return
    checkpoint()
    if node.embedded:
        found.extend(embedded_errors(value, path))
    for key, item in value.items():
        child = node.child(key)
        if child is not None:
            below = f".{key}" if key in node.properties else f"[{key}]"
            validate_embedded(child, item, (path + below).removeprefix("."), found)


def _validate(node: Node, value: Any, path: str, out: ErrorCollector, old: OldValue) -> int:
    if value is None:
        return _null(node, path, out)
    matched = 1
    if node.types or node.format_name:
        matched += 1 + _type(node, value, path, out)
    matched += 1 + _junctors(node, value, path, out)
    kind = type(value)
    if kind is str:
        _string(node, value, path, out)
        matched += 1 if node.format_check is None else 2
    elif kind is int or kind is float:
        _number(node, value, path, out)
        matched += 2
    elif kind is list:
        matched += 2 + _array(node, value, path, out, old)
    if node.enum is not None and not fast_validation.in_enum(node.enum, value):
        out.add(errors.not_supported(out.field(path), value, node.enum))
    matched += 1
    if kind is dict:
        matched += 1 + _object(node, value, path, out, old)
    return matched


def _null(node: Node, path: str, out: ErrorCollector) -> int:
    fits = node.nullable or not node.types
    if not fits:
        out.add(_type_error(path, node.type_name, "null", out))
    if node.enum is not None and None not in node.enum:
        out.add(errors.not_supported(out.field(path), None, node.enum))
    return 1 if fits else 0


def _type_error(path: str, wanted: str, found: str, out: ErrorCollector) -> FieldError:
    text = f"{path} in body must be of type {wanted}: {errors.quote(found)}"
    return errors.type_invalid(out.field(path), found, text)


def _type(node: Node, value: Any, path: str, out: ErrorCollector) -> int:
    if fast_validation.type_fits(node, value):
        return 1
    kind = type(value)
    if node.format_name and kind is not str and kind is not list:
        # Go names the format of the node, and the natural format of the value.
        out.add(_type_error(path, node.format_name, _NATURAL_FORMATS.get(kind, ""), out))
    else:
        out.add(_type_error(path, node.type_name, fast_validation.TYPE_NAMES[kind], out))
    return 0


def _string(node: Node, value: str, path: str, out: ErrorCollector) -> None:
    if node.max_length is not None and len(value) > node.max_length:
        out.add(errors.too_long(out.field(path), node.max_length))
    elif node.min_length is not None and len(value) < node.min_length:
        text = f"{path} in body should be at least {node.min_length} chars long"
        out.add(errors.invalid(out.field(path), value, text))
    elif node.pattern_matches is not None and not node.pattern_matches(value):
        out.add(errors.invalid(out.field(path), value, f"{path} in body should match '{node.pattern}'"))
    if node.format_check is not None and not node.format_check(value):
        text = f"{path} in body must be of type {node.format_name}: {errors.quote(value)}"
        out.add(errors.type_invalid(out.field(path), value, text))


def _number(node: Node, value: float, path: str, out: ErrorCollector) -> None:
    def check_range(number: float, what: str) -> bool:
        if fast_validation.in_range(node, number):
            return True
        suffix = f"with format {node.format}" if node.format else "(default format)"
        out.add_without_field(f"{what} value must be of type {node.type_name} {suffix} in {path}")
        return False

    def add(text: str, actual: float) -> None:
        out.add(errors.invalid(out.field(path), actual, f"{path} in body should be {text}"))

    check_range(value, "Checked")
    if node.multiple_of is not None and not fast_validation.is_multiple(value, node.multiple_of):
        add(f"a multiple of {errors.format_number(float(node.multiple_of))}", value)
    if node.minimum is not None:
        fits = check_range(node.minimum, "Minimum boundary")
        if value < node.minimum or (node.exclusive_min and value == node.minimum):
            bound, actual = _as_native(node.minimum, value, fits)
            add(f"greater than {'' if node.exclusive_min else 'or equal to '}{bound}", actual)
    if node.maximum is not None:
        fits = check_range(node.maximum, "Maximum boundary")
        if value > node.maximum or (node.exclusive_max and value == node.maximum):
            bound, actual = _as_native(node.maximum, value, fits)
            add(f"less than {'' if node.exclusive_max else 'or equal to '}{bound}", actual)


def _as_native(bound: float, value: float, fits: bool) -> tuple[str, float]:
    """Return bound and value as in Go's message: integers if both are, else floats."""
    if fits and isinstance(value, int):
        return str(int(bound)), value
    return errors.format_number(float(bound)), float(value)


def _array(node: Node, value: list[Any], path: str, out: ErrorCollector, old: OldValue) -> int:
    matched = 0
    if node.items is not None:
        for index, item in enumerate(value):
            matched += validate(node.items, item, f"{path}[{index}]", out, old.index(node, item))
    size = len(value)
    if node.min_items is not None and size < node.min_items:
        text = f"{path} in body should have at least {node.min_items} items"
        out.add(errors.invalid(out.field(path), size, text))
    if node.max_items is not None and size > node.max_items:
        out.add(errors.too_many(out.field(path), size, node.max_items))
    return matched


def _object(node: Node, value: dict[str, Any], path: str, out: ErrorCollector, old: OldValue) -> int:
    size, matched = len(value), 0
    if node.min_properties is not None and size < node.min_properties:
        text = f"{path} in body should have at least {node.min_properties} properties"
        out.add(errors.invalid(out.field(path), size, text))
    if node.max_properties is not None and size > node.max_properties:
        out.add(errors.too_many(out.field(path), size, node.max_properties))
    for key, item in value.items():
        child = node.child(key)
        if node.closed and key not in node.properties:
            out.add(errors.invalid(out.field(path), key, f"{path}.{key} in body is a forbidden property"))
        elif child is not None:
            below = f"{path}.{key}" if path or key not in node.properties else key
            matched += validate(child, item, below, out, old.key(node, key))
    if node.meta is not None and value.get("metadata") is not None:
        validate(node.meta, value["metadata"], f"{path}.metadata" if path else "metadata", out)
    for key in node.required:
        if key not in value:
            out.add(errors.required(out.field(f"{path}.{key}")))
    return matched


def _junctors(node: Node, value: Any, path: str, out: ErrorCollector) -> int:
    matched = 1
    if node.any_of:
        matched += _any_of(node, value, path, out)
    if node.one_of:
        matched += _one_of(node, value, path, out)
    if node.all_of:
        matched += _all_of(node, value, path, out)
    if node.not_ is not None and not _try(node.not_, value, path, out).errors:
        out.add_without_field(f"{errors.quote(path)} must not validate the schema (not)")
    return matched


class _Trial(NamedTuple):
    """The result of one alternative: the number of checks that matched, and its errors."""

    matched: int
    errors: list[FieldError]


def _try(node: Node, value: Any, path: str, out: ErrorCollector) -> _Trial:
    """Validate against an alternative, apart from the other errors. Below a changed value nothing is ratcheted."""
    trial = ErrorCollector(out.base)
    return _Trial(_validate(node, value, path, trial, NO_OLD_VALUE), trial.errors)


def _any_of(node: Node, value: Any, path: str, out: ErrorCollector) -> int:
    best: _Trial | None = None
    for each in node.any_of:
        result = _try(each, value, path, out)
        if not result.errors:
            return result.matched
        if best is None or result.matched > best.matched:
            best = result
    out.add_without_field(f"{errors.quote(path)} must validate at least one schema (anyOf)")
    return _adopt(best, out)


def _one_of(node: Node, value: Any, path: str, out: ErrorCollector) -> int:
    best: _Trial | None = None
    first, valid = 0, 0
    for each in node.one_of:
        result = _try(each, value, path, out)
        if not result.errors:
            first = first if valid else result.matched
            valid, best = valid + 1, None
        elif not valid and (best is None or result.matched > best.matched):
            best = result
    if valid == 1:
        return first
    found = f"Found {valid} valid alternatives" if valid else "Found none valid"
    out.add_without_field(f"{errors.quote(path)} must validate one and only one schema (oneOf). {found}")
    return _adopt(best, out)


def _all_of(node: Node, value: Any, path: str, out: ErrorCollector) -> int:
    matched = valid = 0
    for each in node.all_of:
        result = _try(each, value, path, out)
        valid += not result.errors
        matched += _adopt(result, out)
    if valid != len(node.all_of):
        tail = "" if valid else ". None validated"
        out.add_without_field(f"{errors.quote(path)} must validate all the schemas (allOf){tail}")
    return matched


def _adopt(result: _Trial | None, out: ErrorCollector) -> int:
    if result is None:
        return 0
    out.add(*result.errors)
    return result.matched
