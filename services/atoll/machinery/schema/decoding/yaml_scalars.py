"""Values of YAML scalars as Kubernetes resolves them: by Go's rules, not PyYAML's.

`yaml_decoder` calls `resolve` for every scalar. yes, on and y are booleans; dates and sexagesimal numbers are strings;
0777 is octal; values that JSON cannot represent (.nan, .inf, integers beyond 64 bits) are errors.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

from atoll.machinery.schema.decoding.document import INT_MAX, INT_MIN, DecodeError
from atoll.machinery.schema.fielderrors import format_number

#: The value of a plain `<<`.
MERGE: Final = object()

_TAG = "tag:yaml.org,2002:"
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
    "<<": MERGE,
}
_INT = re.compile(r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_BASES = (16, 2, 8, 10)
#: Maximum length of a 64 bit integer in any base; longer texts are not parsed.
_INT_SIZE = 70
#: Decimal digits that always fit into 64 bits.
_SHORT_INT = 18


def resolve(text: str, tag: str | None, *, plain: bool, line: int) -> Any:
    """Return the value of a scalar. `plain`: it has neither quotes nor a tag.

    Raises DecodeError for tags other than str, int, float, bool and null, for values that do not fit their tag, and for
    numbers that JSON cannot represent.
    """
    if tag is None:
        return _checked(_plain(text, line), line) if plain else text
    if tag in ("!", _TAG + "str"):
        return text
    value = _plain(text, line)
    wanted = {"int": (int,), "float": (float, int), "bool": (bool,), "null": (type(None),)}.get(tag.removeprefix(_TAG))
    if wanted is None:
        raise DecodeError(f"invalid YAML: line {line}: tag {tag} is not supported")
    if type(value) not in wanted:
        raise DecodeError(f"invalid YAML: line {line}: cannot decode a scalar as a {tag.replace(_TAG, '!!')}")
    return _checked(float(value) if wanted[0] is float else value, line)


def _plain(text: str, line: int) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if not text[:1].isdigit() and text[:1] not in ("+", "-", "."):
        return text
    if text.isascii() and text.isdigit() and text[0] != "0" and len(text) <= _SHORT_INT:
        return int(text)
    digits = text.replace("_", "")
    if match := _INT.match(digits):
        return _integer(match, line)
    return float(digits) if _FLOAT.match(digits) else text


def _integer(match: re.Match[str], line: int) -> int:
    sign, *forms = match.groups()
    for digits, base in zip(forms, _BASES, strict=True):
        if digits is not None:
            value = int(digits, base) if len(digits) <= _INT_SIZE else INT_MAX + 1
            value = -value if sign == "-" else value
            if INT_MIN <= value <= INT_MAX:
                return value
    raise DecodeError(f"invalid YAML: line {line}: number does not fit into 64 bits")


def _checked(value: Any, line: int) -> Any:
    if type(value) is not float:
        return value
    if not math.isfinite(value):
        raise DecodeError(f"invalid YAML: line {line}: JSON has no number for it")
    # Kubernetes turns YAML into JSON first, and Go writes 1e3 there as 1000.
    return int(value) if value.is_integer() and INT_MIN <= value < INT_MAX else value


def key_text(value: Any, line: int) -> str:
    """Return a mapping key as the string of its JSON form. Raises DecodeError for null and collections."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return format_number(value)
    raise DecodeError(f"invalid YAML: line {line}: a key must be a string, a number or a boolean")
