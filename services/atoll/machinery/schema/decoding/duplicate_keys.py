"""Duplicate keys of a JSON document, with their paths, in document order.

`decode` asks only when the request wants to know, and only when a count of quotes says that a key was lost: the
scan is slower than decoding. It runs on bytes that were decoded before, so it need not check the grammar; it uses
no recursion and memory in proportion to the nesting.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

#: One token that matters: a string, a bracket, a colon or a comma. Numbers and words fall between.
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]')


class _Container:
    """One open object or list: its path, and the keys seen or the index reached."""

    __slots__ = ("index", "is_list", "key", "path", "seen")

    def __init__(self, path: str, is_list: bool) -> None:
        self.path = path
        self.is_list = is_list
        self.index = 0
        self.key = ""
        self.seen: set[str] = set()

    def below(self) -> str:
        """Path of the value that stands here now."""
        if self.is_list:
            return f"{self.path}[{self.index}]"
        return f"{self.path}.{self.key}" if self.path else self.key


def find_duplicates(data: bytes) -> list[str]:
    """Paths of keys that were there before in their object, once for each repetition, in document order.

    `data` must be a valid JSON document.
    """
    return list(_duplicates(data))


def _duplicates(data: bytes) -> Iterator[str]:
    levels: list[_Container] = []
    expects_key = False
    for match in _TOKEN.finditer(data):
        token = match.group()
        first = token[0]
        if first == 0x22:
            if expects_key:
                level = levels[-1]
                level.key = msgspec.json.decode(token) if b"\\" in token else token[1:-1].decode()
                if level.key in level.seen:
                    yield level.below()
                level.seen.add(level.key)
                expects_key = False
        elif first in b"{[":
            path = levels[-1].below() if levels else ""
            levels.append(_Container(path, first == 0x5B))
            expects_key = first == 0x7B
        elif first in b"}]":
            levels.pop()
            expects_key = False
        elif first == 0x2C:
            levels[-1].index += 1
            expects_key = not levels[-1].is_list
