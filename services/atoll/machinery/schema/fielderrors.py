"""Field errors with the texts of Kubernetes (`field.ErrorList` in Go).

All validation makes its FieldErrors here. Values are formatted as Go formats them, since clients compare texts, and
truncated, so that an error never returns a whole body.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from atoll.machinery.meta.objects import encode_json
from atoll.machinery.meta.status import FieldError

#: Characters of a value in a message; longer values are truncated.
MAX_VALUE_SIZE = 1024

#: The field of an error without a field, as Kubernetes prints the empty path.
NO_FIELD = "<nil>"

_ESCAPES = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}


def quote(text: str) -> str:
    """Quote a text as Go's %q does."""
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(char: str) -> str:
    if known := _ESCAPES.get(char):
        return known
    if char.isprintable():
        return char
    code = ord(char)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def format_number(value: float) -> str:
    """Format a number as Go's %v does: integers in full, floats with an exponent from 1e+06 upwards."""
    if isinstance(value, int) or not math.isfinite(value):
        return str(value)
    exact = Decimal(repr(value)).normalize()
    power = exact.adjusted()
    if value == 0 or -4 <= power < 6:
        return format(exact, "f")
    mantissa = format(exact.scaleb(-power), "f")
    return f"{mantissa}e{'-' if power < 0 else '+'}{abs(power):02d}"


def format_value(value: Any) -> str:
    """Format any JSON value for a message, truncated at MAX_VALUE_SIZE."""
    kind = type(value)
    if kind is str:
        text = quote(value)
    elif kind is bool:
        text = "true" if value else "false"
    elif kind is int or kind is float:
        text = format_number(value)
    else:
        text = encode_json(value).decode()
    return text if len(text) <= MAX_VALUE_SIZE else text[:MAX_VALUE_SIZE] + "..."


def _tail(detail: str) -> str:
    return f": {detail}" if detail else ""


def required(field: str, detail: str = "") -> FieldError:
    """A value is missing."""
    return FieldError("FieldValueRequired", field, f"Required value{_tail(detail)}")


def invalid(field: str, value: Any, detail: str) -> FieldError:
    """A value breaks a rule."""
    return FieldError("FieldValueInvalid", field, f"Invalid value: {format_value(value)}{_tail(detail)}")


def type_invalid(field: str, value: Any, detail: str) -> FieldError:
    """A value has a type, or the form of a string, that the schema does not allow."""
    return FieldError("FieldValueTypeInvalid", field, f"Invalid value: {format_value(value)}{_tail(detail)}")


def forbidden(field: str, detail: str) -> FieldError:
    """A value is not allowed here."""
    return FieldError("FieldValueForbidden", field, f"Forbidden: {detail}")


def duplicate(field: str, value: Any) -> FieldError:
    """A value repeats an earlier one of its list."""
    return FieldError("FieldValueDuplicate", field, f"Duplicate value: {format_value(value)}")


def not_found(field: str, value: Any, detail: str = "") -> FieldError:
    """A value refers to nothing."""
    return FieldError("FieldValueNotFound", field, f"Not found: {format_value(value)}{_tail(detail)}")


def not_supported(field: str, value: Any, supported: Iterable[Any]) -> FieldError:
    """A value is not one of those listed, which the message names in this order."""
    names = (value if isinstance(value, str) else encode_json(value).decode() for value in supported)
    text = f"{format_value(value)}: supported values: {', '.join(map(quote, names))}"
    return FieldError("FieldValueNotSupported", field, f"Unsupported value: {text}")


def too_long(field: str, limit: int) -> FieldError:
    """A string is too long. The text says bytes although characters are counted, as in Kubernetes."""
    return FieldError("FieldValueTooLong", field, f"Too long: may not be more than {limit} bytes")


def too_many(field: str, count: int, limit: int) -> FieldError:
    """A list or map has too many items."""
    noun = "item" if limit == 1 else "items"
    return FieldError("FieldValueTooMany", field, f"Too many: {count}: must have at most {limit} {noun}")
