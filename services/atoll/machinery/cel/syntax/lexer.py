"""Source text to tokens, and the values of string literals.

Called by the parser only. Invariant: text that starts no token becomes an issue in the words of cel-go's lexer, and
lexing continues after it.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

#: A kind is the symbol itself or one of these names, which messages print.
IDENTIFIER, ESC_IDENTIFIER, INT, UINT, FLOAT, STRING, BYTES, EOF = (
    "IDENTIFIER",
    "ESC_IDENTIFIER",
    "NUM_INT",
    "NUM_UINT",
    "NUM_FLOAT",
    "STRING",
    "BYTES",
    "<EOF>",
)

_ESCAPE = r"""\\(?:[abfnrtv"'\\?`]|[0-3][0-7][0-7]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"""
_QUOTED = (
    rf'"""(?:{_ESCAPE}|[^\\])*?"""',
    rf"'''(?:{_ESCAPE}|[^\\])*?'''",
    rf'"(?:{_ESCAPE}|[^\\"\n\r])*"',
    rf"'(?:{_ESCAPE}|[^\\'\n\r])*'",
    r'[rR]"""(?:.|\n)*?"""',
    r"[rR]'''(?:.|\n)*?'''",
    r'[rR]"[^"\n\r]*"',
    r"[rR]'[^'\n\r]*'",
)
_STRING = "|".join(_QUOTED)
_TOKEN: Final = re.compile(
    rf"""(?P<SPACE>[\t \r\n\f]+|//[^\n]*)
    |(?P<BYTES>[bB](?:{_STRING}))
    |(?P<STRING>{_STRING})
    |(?P<NUM_FLOAT>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
    |(?P<NUM_UINT>0x[0-9a-fA-F]+[uU]|[0-9]+[uU])
    |(?P<NUM_INT>0x[0-9a-fA-F]+|[0-9]+)
    |(?P<IDENTIFIER>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<ESC_IDENTIFIER>`[A-Za-z0-9_./\- ]+`)
    |(?P<SYMBOL>==|!=|<=|>=|&&|\|\||[<>\[\]{{}}().,\-!?:+*/%])
    """.replace("\n    ", "")
)
_UNFINISHED: Final = re.compile(rf"""(?:"(?:{_ESCAPE}|[^\\"\n\r])*|'(?:{_ESCAPE}|[^\\'\n\r])*)""")
_KEYWORDS: Final = frozenset({"in", "true", "false", "null"})
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


class Token(NamedTuple):
    """`kind` is a symbol, a keyword or one of the names above."""

    kind: str
    text: str
    offset: int


def tokens(text: str) -> tuple[list[Token], list[tuple[int, str]]]:
    """Return all tokens up to and including EOF, and the unreadable parts as (offset, message)."""
    found: list[Token] = []
    bad: list[tuple[int, str]] = []
    at, end = 0, len(text)
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            at = _skip_unreadable(text, at, bad)
            continue
        kind = match.lastgroup or ""
        if kind != "SPACE":
            word = match.group()
            symbol = kind == "SYMBOL" or (kind == IDENTIFIER and word in _KEYWORDS)
            found.append(Token(word if symbol else kind, word, at))
        at = match.end()
    found.append(Token(EOF, EOF, end))
    return found, bad


def _skip_unreadable(text: str, at: int, bad: list[tuple[int, str]]) -> int:
    """Return the end of an unreadable part: the longest prefix of a token and the next character."""
    if text[at] in "\"'":
        prefix = _UNFINISHED.match(text, at)
        stop = (prefix.end() if prefix else at) + 1
        if text[stop - 1 : stop] == "\\":
            stop += 1
    else:
        stop = at + (2 if text[at] in "=&|`" else 1)
    shown = text[at:stop].replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
    bad.append((at, f"token recognition error at: '{shown}'"))
    return stop


def string_value(literal: str) -> str:
    """Return the value of a STRING token. Raises ValueError for an invalid escape."""
    body, raw = _body(literal)
    return body if raw else _unescape(body)


def bytes_value(literal: str) -> bytes:
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
