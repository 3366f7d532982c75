"""Checks of single fields that the checks of every kind here are made of.

Each yields the errors of the fields of one object, whose own path is `at`. Fields that are absent pass: texts and
numbers that Kubernetes requires are there, if empty (see `zero_values`); lists and maps have to be `needed`. So do
values of another type, which the schema reports. Invariant: time is linear in the object.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from decimal import Decimal
from typing import Any

from atoll.machinery.kinds.checks import invalid_values, items, mapping
from atoll.machinery.meta import quantity
from atoll.machinery.meta.labels import dns_label_errors, dns_subdomain_errors, label_key_errors, label_value_errors
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import duplicate, invalid, not_supported, required, too_long

Errors = Iterator[FieldError]
Problems = Callable[[str], list[str]]

NEGATIVE = "must be greater than or equal to 0"
IMMUTABLE = "field is immutable"
MAX_INT32 = 2**31 - 1
#: How Kubernetes prints the path of no field.
NO_PATH = "[]"

_PORT_NAME = re.compile(r"[-a-z0-9]+\Z")
_PERCENT = re.compile(r"[0-9]+%\Z", re.ASCII)
_HEADER_NAME = re.compile(r"[-A-Za-z0-9]+\Z")
_PORT_NAME_SIZE = 15
#: Maps of amounts, which are the same in any text.
_AMOUNTS = frozenset({"requests", "limits", "overhead", "capacity", "sizeLimit", "divisor"})
_PERCENT_TEXT = (
    "a valid percent string must be a numeric string followed by an ending '%' "
    "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
)


def not_empty(obj: Object, at: str, *names: str) -> Errors:
    """Check texts and lists that have to have content where they are present."""
    for name in names:
        if obj.get(name) in ("", []):
            yield required(f"{at}.{name}")


def needed(obj: Object, at: str, *names: str) -> Errors:
    """Check fields that have to be present and to have content."""
    for name in names:
        if not obj.get(name):
            yield required(f"{at}.{name}")


def one_of(obj: Object, at: str, name: str, supported: Sequence[str]) -> Errors:
    """Check a field with a fixed set of texts; the empty one is as any other."""
    value = obj.get(name)
    if isinstance(value, str) and value not in supported:
        yield not_supported(f"{at}.{name}", value, supported)


def one_of_required(obj: Object, at: str, name: str, supported: Sequence[str], detail: str = "") -> Errors:
    """Check a field with a fixed set of texts, whose empty text means that it is missing."""
    if obj.get(name) == "":
        yield required(f"{at}.{name}", detail)
    else:
        yield from one_of(obj, at, name, supported)


def one_of_defaulted(obj: Object, at: str, name: str, supported: Sequence[str]) -> Errors:
    """Check a field with a fixed set of texts and a default, which Kubernetes sets for the empty text too."""
    if obj.get(name) != "":
        yield from one_of(obj, at, name, supported)


def integer(value: object) -> int | None:
    """Return an integer; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def not_negative(obj: Object, at: str, *names: str) -> Errors:
    """Check that numbers are not below zero."""
    for name in names:
        value = integer(obj.get(name))
        if value is not None and value < 0:
            yield invalid(f"{at}.{name}", value, NEGATIVE)


def positive(obj: Object, at: str, *names: str) -> Errors:
    """Check that numbers are above zero."""
    for name in names:
        value = integer(obj.get(name))
        if value is not None and value <= 0:
            yield invalid(f"{at}.{name}", value, "must be greater than zero")


def range_text(low: int, high: int) -> str:
    """Say which numbers a field takes."""
    return f"must be between {low} and {high}, inclusive"


def within(obj: Object, at: str, name: str, low: int, high: int) -> Errors:
    """Check that a number is in a range, which includes both ends."""
    value = integer(obj.get(name))
    if value is not None and not low <= value <= high:
        yield invalid(f"{at}.{name}", value, range_text(low, high))


def identifiers(obj: Object, at: str, *names: str) -> Errors:
    """Check ids of users and groups."""
    for name in names:
        yield from within(obj, at, name, 0, MAX_INT32)


def matches(obj: Object, at: str, name: str, problems: Problems) -> Errors:
    """Check the syntax of a text; an empty one passes."""
    value = obj.get(name)
    if value and isinstance(value, str):
        yield from invalid_values(f"{at}.{name}", value, problems(value))


def matches_always(obj: Object, at: str, name: str, problems: Problems) -> Errors:
    """Check the syntax of a text, the empty one too."""
    value = obj.get(name)
    if isinstance(value, str):
        yield from invalid_values(f"{at}.{name}", value, problems(value))


def subdomain(obj: Object, at: str, *names: str) -> Errors:
    """Check names of objects; empty ones pass."""
    for name in names:
        yield from matches(obj, at, name, dns_subdomain_errors)


def label(obj: Object, at: str, *names: str) -> Errors:
    """Check labels of the DNS; empty ones pass."""
    for name in names:
        yield from matches(obj, at, name, dns_label_errors)


def required_subdomain(obj: Object, at: str, *names: str) -> Errors:
    """Check names of objects that may not be empty."""
    for name in names:
        yield from not_empty(obj, at, name)
        yield from subdomain(obj, at, name)


def required_label(obj: Object, at: str, *names: str) -> Errors:
    """Check labels of the DNS that may not be empty."""
    for name in names:
        yield from not_empty(obj, at, name)
        yield from label(obj, at, name)


def shorter(obj: Object, at: str, name: str, limit: int) -> Errors:
    """Check the size of a text."""
    value = obj.get(name)
    if isinstance(value, str) and len(value.encode()) > limit:
        yield too_long(f"{at}.{name}", limit)


def label_key(field: str, value: object) -> Errors:
    """Check a label key, or another qualified name."""
    if isinstance(value, str):
        yield from invalid_values(field, value, label_key_errors(value))


def label_map(values: Object, field: str) -> Errors:
    """Check a map of labels."""
    for key, value in values.items():
        yield from invalid_values(field, key, label_key_errors(key))
        if isinstance(value, str):
            yield from invalid_values(field, value, label_value_errors(value))


def port_number(value: object, field: str) -> Errors:
    """Check the number of a port."""
    number = integer(value)
    if number is not None and not 1 <= number <= 65535:
        yield invalid(field, number, range_text(1, 65535))


def port_name_errors(name: str) -> list[str]:
    """Return what keeps a text from being the name of a port of a container."""
    errors = ["must be no more than 15 characters"] if len(name) > _PORT_NAME_SIZE else []
    if not _PORT_NAME.match(name):
        errors.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not any("a" <= character <= "z" for character in name):
        errors.append("must contain at least one letter (a-z)")
    if "--" in name:
        errors.append("must not contain consecutive hyphens")
    if name.startswith("-") or name.endswith("-"):
        errors.append("must not begin or end with a hyphen")
    return errors


def port(value: object, field: str) -> Errors:
    """Check a port by number or name."""
    if isinstance(value, str):
        yield from invalid_values(field, value, port_name_errors(value))
    else:
        yield from port_number(value, field)


def header_name_errors(name: str) -> list[str]:
    """Return what keeps a text from being the name of an HTTP header."""
    if _HEADER_NAME.match(name):
        return []
    return [
        "a valid HTTP header must consist of alphanumeric characters or '-' "
        "(e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')"
    ]


def percent(value: object) -> int | None:
    """Return the number of a text such as 25%; None for anything else."""
    return int(value[:-1]) if isinstance(value, str) and len(value) < 20 and _PERCENT.match(value) else None


def amount(value: object) -> int:
    """Return the number of a number or percentage; 0 for anything else."""
    return percent(value) or integer(value) or 0


def number_or_percent(value: object, field: str) -> Errors:
    """Check a number of objects or a percentage of them."""
    if isinstance(value, str) and not _PERCENT.match(value):
        yield invalid(field, value, _PERCENT_TEXT)
    if (integer(value) or 0) < 0:
        yield invalid(field, value, NEGATIVE)


def at_most_all(value: object, field: str) -> Errors:
    """Check that a percentage is not above 100."""
    if (percent(value) or 0) > 100:
        yield invalid(field, value, "must not be greater than 100%")


def amount_of(value: object) -> Decimal | None:
    """Return the exact value of a quantity; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        return quantity.parse(value)
    except ValueError:
        return None


def quantity_text(value: object) -> str:
    """Return the canonical text of a quantity."""
    try:
        return quantity.canonical(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return str(value)


def unchanged(obj: Object, old: Object, at: str, *names: str) -> Errors:
    """Check that fields are as they were."""
    for name in names:
        if not same(obj.get(name), old.get(name)):
            yield invalid(f"{at}.{name}" if at else name, obj.get(name), IMMUTABLE)


def same(value: Any, other: Any, *, are_amounts: bool = False) -> bool:
    """Report whether values are the same to Kubernetes: empty lists and maps are absent, amounts are numbers."""
    if value == other:
        return True
    if isinstance(value, dict) and isinstance(other, dict):
        return all(
            same(value.get(key), other.get(key), are_amounts=are_amounts or key in _AMOUNTS)
            for key in value.keys() | other.keys()
        )
    if isinstance(value, list) and isinstance(other, list):
        pairs = zip(value, other, strict=False)
        return len(value) == len(other) and all(same(*pair, are_amounts=are_amounts) for pair in pairs)
    if value in (None, [], {}):
        return other in (None, [], {})
    return are_amounts and amount_of(value) is not None and amount_of(value) == amount_of(other)


def unique(values: Sequence[Any], field: str) -> Errors:
    """Check that texts are different."""
    seen = set[str]()
    for index, value in enumerate(values):
        if isinstance(value, str):
            if value in seen:
                yield duplicate(f"{field}[{index}]", value)
            seen.add(value)


def annotations_of(obj: Object) -> Object:
    """Return the annotations of an object or template."""
    return mapping(obj, "metadata", "annotations")


def names_of(obj: Object, *path: str) -> set[str]:
    """Return the names of the objects in a list."""
    found = (each.get("name") for each in items(obj, *path) if isinstance(each, dict))
    return {name for name in found if isinstance(name, str)}


def present(obj: Object, names: Collection[str]) -> list[str]:
    """Return which of several fields an object has, in the order of the names."""
    return [name for name in names if obj.get(name) is not None]
