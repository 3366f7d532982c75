"""Field errors in Kubernetes' words: the one place where this package writes `Invalid value: ...`.

Validation and the checks of definitions make their FieldErrors here. Values are format_value as Go shows them (clients
compare texts), and cut, so that an error never carries a body back.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from atoll.machinery.meta.objects import encode_json
from atoll.machinery.meta.status import FieldError

#: Longer values are cut in messages.
MAX_VALUE_SIZE = 1024

#: Field of an error that belongs to no field: Kubernetes prints its empty path so.
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
    """Text in double quotes as Go's %q writes it."""
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
    """A number as Go's %v writes it: integers in full, floats with an exponent from 1e+06 upwards."""
    if isinstance(value, int) or not math.isfinite(value):
        return str(value)
    exact = Decimal(repr(value)).normalize()
    power = exact.adjusted()
    if value == 0 or -4 <= power < 6:
        return format(exact, "f")
    mantissa = format(exact.scaleb(-power), "f")
    return f"{mantissa}e{'-' if power < 0 else '+'}{abs(power):02d}"


def format_value(value: Any) -> str:
    """Any JSON value as field errors show it, cut at MAX_VALUE_SIZE."""
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
    """A value must not be there."""
    return FieldError("FieldValueForbidden", field, f"Forbidden: {detail}")


def duplicate(field: str, value: Any) -> FieldError:
    """A value was there before in its list."""
    return FieldError("FieldValueDuplicate", field, f"Duplicate value: {format_value(value)}")


def not_supported(field: str, value: Any, supported: Iterable[Any]) -> FieldError:
    """A value is none of those listed, which are format_value in the order given."""
    names = (value if isinstance(value, str) else encode_json(value).decode() for value in supported)
    known = ", ".join(map(quote, names))
    return FieldError(
        "FieldValueNotSupported", field, f"Unsupported value: {format_value(value)}: supported values: {known}"
    )


def too_long(field: str, limit: int) -> FieldError:
    """A string is longer than allowed. The text says bytes although characters are counted, as Kubernetes' does."""
    return FieldError("FieldValueTooLong", field, f"Too long: may not be more than {limit} bytes")


def too_many(field: str, count: int, limit: int) -> FieldError:
    """A list or map holds more than allowed."""
    noun = "item" if limit == 1 else "items"
    return FieldError("FieldValueTooMany", field, f"Too many: {count}: must have at most {limit} {noun}")
