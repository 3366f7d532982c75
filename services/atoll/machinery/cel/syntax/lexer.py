"""Source text to tokens.

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
