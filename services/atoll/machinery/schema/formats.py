"""String formats that Kubernetes validates, by name; other formats only cause a warning.

`structural.compiler` looks a format up once for each node. Each check takes a string and returns whether it has the
format, by the rules of go-openapi with their tolerance (leading zeros in IPv4 addresses).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from datetime import date
from email.utils import parseaddr
from functools import cache
from urllib.parse import urlsplit

import re2

from atoll.machinery.meta.durations import parse_duration_format

_re2_options = re2.Options()
_re2_options.log_errors = False


def _regex(pattern: str) -> Callable[[str], bool]:
    """Return a test of whole strings against a pattern, which is compiled on first use.

    Compiling all patterns takes longer than all other imports of the package, and most are never used.
    """

    @cache
    def fullmatch() -> Callable[[str], re.Match[str] | None]:
        return re.compile(pattern).fullmatch

    return lambda text: fullmatch()(text) is not None


def _uuid(version: str, variant: str = "[0-9a-f]") -> Callable[[str], bool]:
    return _regex(f"(?i:[0-9a-f]{{8}}-?[0-9a-f]{{4}}-?{version}[0-9a-f]{{3}}-?{variant}[0-9a-f]{{3}}-?[0-9a-f]{{12}})")


def _is_date(text: str) -> bool:
    if not re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        return False
    try:
        # Go has a year 0, which is a leap year as year 4 is.
        date(int(text[:4]) or 4, int(text[5:7]), int(text[8:]))
    except ValueError:
        return False
    return True


_TIME = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|[+-][0-9]{2}:[0-9]{2})")


#: The form in which servers write a date-time, which needs no calendar.
USUAL_DATE_TIME = (
    "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]+)?Z"
)
usual_date_time = re.compile(USUAL_DATE_TIME).fullmatch


def _is_date_time(text: str) -> bool:
    if usual_date_time(text):
        return True
    day, separator, rest = text.lower().partition("t")
    if not separator or not _is_date(day):
        return False
    match = _TIME.fullmatch(rest.partition("t")[0])
    return match is not None and match[1] <= "23" and match[2] <= "59" and match[3] <= "59"


def _plain_v4(text: str) -> str:
    """Remove the leading zeros of an IPv4 address, which Go's tolerant parser accepts."""
    return ".".join(part.lstrip("0") or "0" if part.isascii() and part.isdigit() else "x" for part in text.split("."))


def _is_ipv4(text: str) -> bool:
    # An IPv6 address that ends in dotted digits is valid too, as in Go: it parses and has a dot.
    if ":" in text:
        return "." in text and _is_ipv6(text)
    try:
        ipaddress.IPv4Address(_plain_v4(text))
    except ValueError:
        return False
    return True


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return "%" not in text and ":" in text


def _is_cidr(text: str) -> bool:
    address, separator, bits = text.partition("/")
    if not separator or not bits.isascii() or not bits.isdigit() or len(bits) > 3:
        return False
    if ":" in address:
        return _is_ipv6(address) and int(bits) <= 128
    return _is_ipv4(address) and int(bits) <= 32


_MAC = _regex(
    "([0-9a-fA-F]{2}([:-])(?:[0-9a-fA-F]{2}\\2){4}[0-9a-fA-F]{2})"
    "|([0-9a-fA-F]{2}([:-])(?:[0-9a-fA-F]{2}\\4){6}[0-9a-fA-F]{2})"
    "|([0-9a-fA-F]{2}([:-])(?:[0-9a-fA-F]{2}\\6){18}[0-9a-fA-F]{2})"
    "|([0-9a-fA-F]{4}\\.){2}[0-9a-fA-F]{4}|([0-9a-fA-F]{4}\\.){3}[0-9a-fA-F]{4}|([0-9a-fA-F]{4}\\.){9}[0-9a-fA-F]{4}"
)


def _is_uri(text: str) -> bool:
    """Whether a text is a request URI: absolute, or a path from the root."""
    if not text or any(ord(char) <= 0x20 or ord(char) == 0x7F for char in text):
        return False
    if re.search("%(?![0-9a-fA-F]{2})", text):
        return False
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return False
    return bool(parts.scheme) or text.startswith("/")


def _is_email(text: str) -> bool:
    _, address = parseaddr(text)
    local, _, domain = address.rpartition("@")
    return bool(local) and bool(domain) and not re.search(r"[\s,;<>]", address) and ".." not in address


@cache
def _hostname() -> re2._Regexp:
    """Compile Go's pattern on first use: with its character classes that takes a tenth of a second."""
    return re2.compile(
        r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)"
        r"|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$",
        options=_re2_options,
    )


def _is_hostname(text: str) -> bool:
    if _hostname().search(text) is None or len(text.encode()) > 255:
        return False
    return all(len(part.encode()) <= 63 for part in text.split("."))


def _isbn_digits(text: str) -> str:
    return re.sub(r"[\s-]+", "", text)


def _is_isbn10(text: str) -> bool:
    digits = _isbn_digits(text)
    if not re.fullmatch("[0-9]{9}[0-9X]", digits):
        return False
    return sum((index + 1) * (10 if char == "X" else int(char)) for index, char in enumerate(digits)) % 11 == 0


def _is_isbn13(text: str) -> bool:
    digits = _isbn_digits(text)
    if not re.fullmatch("[0-9]{13}", digits):
        return False
    return sum(int(char) * (3 if index % 2 else 1) for index, char in enumerate(digits)) % 10 == 0


_CARD = _regex(
    "4[0-9]{12}([0-9]{3})?|5[1-5][0-9]{14}|6(011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(0[0-5]|[68][0-9])[0-9]{11}"
    "|(2131|1800|35[0-9]{3})[0-9]{11}"
)


def _is_credit_card(text: str) -> bool:
    digits = re.sub("[^0-9]+", "", text)
    if not _CARD(digits):
        return False
    doubled = [int(char) * (2 if index % 2 else 1) for index, char in enumerate(reversed(digits))]
    return sum(value - 9 if value > 9 else value for value in doubled) % 10 == 0


_SHORT_NAME = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_shape_of_short_name = _regex(_SHORT_NAME)
_shape_of_long_name = _regex(rf"{_SHORT_NAME}(\.{_SHORT_NAME})*")
_COLOR_PART = r"\s*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])\s*"

CHECKS: dict[str, Callable[[str], bool]] = {
    "bsonobjectid": _regex("[0-9a-fA-F]{24}"),
    "uri": _is_uri,
    "email": _is_email,
    "hostname": _is_hostname,
    "ipv4": _is_ipv4,
    "ipv6": _is_ipv6,
    "cidr": _is_cidr,
    "mac": _MAC,
    "uuid": _uuid("[0-9a-f]"),
    "uuid3": _uuid("3"),
    "uuid4": _uuid("4", "[89ab]"),
    "uuid5": _uuid("5", "[89ab]"),
    "isbn": lambda text: _is_isbn10(text) or _is_isbn13(text),
    "isbn10": _is_isbn10,
    "isbn13": _is_isbn13,
    "creditcard": _is_credit_card,
    "ssn": _regex(r"[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}"),
    "hexcolor": _regex("#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "rgbcolor": _regex(rf"rgb\({_COLOR_PART},{_COLOR_PART},{_COLOR_PART}\)"),
    "byte": _regex("([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"),
    "password": lambda text: True,
    "date": _is_date,
    "duration": lambda text: parse_duration_format(text) is not None,
    "datetime": _is_date_time,
    "k8sshortname": lambda text: len(text) <= 63 and _shape_of_short_name(text),
    "k8slongname": lambda text: len(text) <= 253 and _shape_of_long_name(text),
}

_NUMERIC = {"integer": ("int32", "int64"), "number": ("float", "double")}


def is_recognized(schema_type: str, name: str) -> bool:
    """Whether a format is defined for a type; hyphens in names of string formats do not count."""
    if schema_type in ("", "string"):
        return name.replace("-", "") in CHECKS
    return name in _NUMERIC.get(schema_type, ())


def check_of(schema_type: str, name: str) -> Callable[[str], bool] | None:
    """Return the check of a string format, or None without one."""
    return CHECKS.get(name.replace("-", "")) if schema_type in ("", "string") else None
