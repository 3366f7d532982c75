"""A reader of protobuf's text format: enough for test data, without descriptors.

A message is a dict of lists by field name, as any field may come again; scalars are str (names, numbers) or bytes
(strings). Messages inside of Any keep their type's name under "@type".
"""

from __future__ import annotations

import re
from typing import Any

Message = dict[str, list[Any]]

_TOKEN = re.compile(
    r"""(?P<skip>\s+|\#[^\n]*)|(?P<text>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')"""
    r"""|(?P<word>[-+]?[A-Za-z0-9_.]+(?:[-+][0-9]+)?)|(?P<mark>[{}<>:\[\],;/])""",
    re.DOTALL,
)
_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{1,3}|.)", re.DOTALL)
_SIMPLE = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}


def parse(text: str) -> Message:
    """The message of a file."""
    reader = _Reader(_tokens(text))
    return reader.message("")


def _tokens(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        assert match is not None, text[at : at + 40]
        if match.lastgroup != "skip":
            found.append((match.lastgroup or "", match.group()))
        at = match.end()
    return found


class _Reader:
    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self.tokens = tokens
        self.at = 0

    def message(self, close: str) -> Message:
        """Fields up to the closing mark (or the end of the file)."""
        found: Message = {}
        while self.at < len(self.tokens):
            if self._take(close):
                return found
            name = self._name()
            self._take(":")
            values = self._values()
            if name.startswith("[") and "/" in name:
                values[0]["@type"] = [name[1:-1].rpartition("/")[2]]
                return self._rest(values[0], close)
            found.setdefault(name, []).extend(values)
            if not self._take(","):
                self._take(";")
        return found

    def _rest(self, inner: Message, close: str) -> Message:
        assert self._take(close)
        return inner

    def _take(self, mark: str) -> bool:
        here = self.at < len(self.tokens) and bool(mark) and self.tokens[self.at] == ("mark", mark)
        self.at += here
        return here

    def _name(self) -> str:
        if not self._take("["):
            self.at += 1
            return self.tokens[self.at - 1][1]
        parts = []
        while not self._take("]"):
            parts.append(self.tokens[self.at][1])
            self.at += 1
        return f"[{''.join(parts)}]"

    def _values(self) -> list[Any]:
        if not self._take("["):
            return [self._value()]
        values = []
        while not self._take("]"):
            values.append(self._value())
            self._take(",")
        return values

    def _value(self) -> Any:
        for opened, closed in (("{", "}"), ("<", ">")):
            if self._take(opened):
                return self.message(closed)
        kind, token = self.tokens[self.at]
        self.at += 1
        if kind != "text":
            return token
        data = _unescaped(token)
        while self.at < len(self.tokens) and self.tokens[self.at][0] == "text":
            data += _unescaped(self.tokens[self.at][1])
            self.at += 1
        return data


def _unescaped(token: str) -> bytes:
    return _ESCAPE.sub(_escape, token[1:-1].encode())


def _escape(match: re.Match[bytes]) -> bytes:
    code = match[1]
    if code[:1] in b"x" and len(code) > 1:
        return bytes([int(code[1:], 16)])
    if code[:1] in (b"u", b"U") and len(code) > 1:
        return chr(int(code[1:], 16)).encode()
    if code[:1].isdigit():
        return bytes([int(code, 8)])
    return _SIMPLE.get(code, code)
