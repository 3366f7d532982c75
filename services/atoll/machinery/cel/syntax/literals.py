"""The values of literal tokens: numbers, strings and bytes.

Called by the parser. Invariant: a literal out of range or with an invalid escape raises ValueError in cel-go's words.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from atoll.machinery.cel.syntax import lexer
from atoll.machinery.cel.values import INT_MAX, INT_MIN, UINT_MAX, UInt

_SIMPLE: Final = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "`": "`",
    "?": "?",
}


def _int(text: str) -> int:
    digits = text.lstrip("-")
    value = int(digits, 16) if digits.startswith("0x") else int(digits)
    value = -value if text.startswith("-") else value
    if not INT_MIN <= value <= INT_MAX:
        raise ValueError("invalid int literal")
    return value


def _uint(text: str) -> UInt:
    digits = text[:-1]
    value = int(digits, 16) if digits.startswith("0x") else int(digits)
    if value > UINT_MAX:
        raise ValueError("invalid uint literal")
    return UInt(value)


def _double(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError("invalid double literal")
    return value


def _string_value(literal: str) -> str:
    body, raw = _body(literal)
    return body if raw else _unescape(body)


def _bytes_value(literal: str) -> bytes:
    """Return the value of a BYTES token (with its `b`): escapes are bytes, other characters UTF-8."""
    body, raw = _body(literal[1:])
    if raw or "\\" not in body:
        return body.encode()
    parts: list[bytes] = []
    at = 0
    while at < len(body):
        slash = body.find("\\", at)
        if slash < 0:
            parts.append(body[at:].encode())
            break
        parts.append(body[at:slash].encode())
        code, at = _escape(body, slash + 1, True)
        parts.append(bytes([code]))
    return b"".join(parts)


def _body(literal: str) -> tuple[str, bool]:
    raw = literal[0] in "rR"
    if raw:
        literal = literal[1:]
    if literal[:3] in ('"""', "'''") and len(literal) >= 6:
        return literal[3:-3].replace("\r\n", "\n").replace("\r", "\n"), raw
    return literal[1:-1], raw


def _unescape(body: str) -> str:
    if "\\" not in body:
        return body
    parts: list[str] = []
    at = 0
    while at < len(body):
        slash = body.find("\\", at)
        if slash < 0:
            parts.append(body[at:])
            break
        parts.append(body[at:slash])
        code, at = _escape(body, slash + 1, False)
        parts.append(chr(code))
    return "".join(parts)


def _escape(body: str, at: int, is_bytes: bool) -> tuple[int, int]:
    """Return the code point after a backslash and the offset after it."""
    letter = body[at]
    if letter in _SIMPLE:
        return ord(_SIMPLE[letter]), at + 1
    if letter in "xX":
        return int(body[at + 1 : at + 3], 16), at + 3
    if letter in "uU":
        width = 4 if letter == "u" else 8
        code = int(body[at + 1 : at + 1 + width], 16)
        if is_bytes:
            raise ValueError("unable to unescape string")
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            raise ValueError("invalid unicode code point")
        return code, at + 1 + width
    return int(body[at : at + 3], 8), at + 3


#: Readers of literal tokens by kind; they raise ValueError with cel-go's message.
READERS: Final[dict[str, Callable[[str], Any]]] = {
    lexer.INT: _int,
    lexer.UINT: _uint,
    lexer.FLOAT: _double,
    lexer.STRING: _string_value,
    lexer.BYTES: _bytes_value,
    "true": lambda _: True,
    "false": lambda _: False,
    "null": lambda _: None,
}
