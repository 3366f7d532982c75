"""Field errors in Kubernetes' words: the one place where this package writes `Invalid value: ...`.

Validation and the checks of definitions make their FieldErrors here. Values are shown as Go shows them (clients
compare texts), and cut, so that an error never carries a body back.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from atoll.machinery.meta.objects import encode_json
from atoll.machinery.meta.status import FieldError

#: Longer values are cut in messages.
SHOWN_SIZE = 1024

#: Field of an error that belongs to no field: Kubernetes prints its empty path so.
NO_FIELD = "<nil>"

_ESCAPES = {
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\", '"': '\\"',
}  # fmt: skip


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


def number(value: float) -> str:
    """A number as Go's %v writes it: integers plain, floats with an exponent from 1e+06 upwards."""
    if isinstance(value, int):
        return str(value)
    if not math.isfinite(value):
        return str(value)
    mantissa, _, exponent = f"{value!r}".partition("e")
    digits = mantissa.replace("-", "").replace(".", "").strip("0") or "0"
    power = math.floor(math.log10(abs(value))) if value else 0
    # log10 is off by one just below a power of ten; the shortest form in scientific notation is not.
    power = int(f"{value:.17e}".rpartition("e")[2]) if abs(power) > 3 else power
    if -4 <= power < 21 and not (power >= len(digits) and power >= 6) and not power >= 21:
        if power < max(len(digits), 6) and power < 21 and not _needs_exponent(power, len(digits)):
            return repr(int(value)) if value.is_integer() else _plain(value, exponent)
    return _scientific(value, digits, power)
