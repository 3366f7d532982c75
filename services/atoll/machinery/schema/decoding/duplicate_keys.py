"""Duplicate keys of a JSON document, with their paths, in document order.

`json_decoder` calls it only on request, and only when a count of quotes shows that a key was lost: the scan is slower
than decoding. The bytes were decoded before, so the grammar is not checked again. It does not recurse; its memory is
proportional to the nesting.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from atoll.machinery.process.time_slicing import checkpoint

#: A string, a bracket, a colon or a comma. Numbers and words are skipped. Nothing is tried again within a string, which
#: is four times as fast for one of many escapes.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\],:]')
#: Tokens between two checkpoints, about 0.1 ms.
_TOKENS = 256


class _Container:
    """An open object or list: its path, and its keys so far or its current index."""

    __slots__ = ("index", "is_list", "key", "path", "seen")

    def __init__(self, path: str, is_list: bool) -> None:
        self.path = path
        self.is_list = is_list
        self.index = 0
        self.key = ""
        self.seen: set[str] = set()

    def value_path(self) -> str:
        """Return the path of the current value."""
        if self.is_list:
            return f"{self.path}[{self.index}]"
        return f"{self.path}.{self.key}" if self.path else self.key


def find_duplicates(data: bytes) -> list[str]:
    """List the paths of keys that occurred before in their object, once for each repetition, in document order.

    `data` must be a valid JSON document.
    """
    return list(_duplicates(data))


def _duplicates(data: bytes) -> Iterator[str]:
    open_containers: list[_Container] = []
    expects_key = False
    for count, match in enumerate(_TOKEN.finditer(data)):
        if not count % _TOKENS:
            checkpoint()
        token = match.group()
        first = token[0]
        if first == 0x22:
            if expects_key:
                container = open_containers[-1]
                container.key = msgspec.json.decode(token) if b"\\" in token else token[1:-1].decode()
                if container.key in container.seen:
                    yield container.value_path()
                container.seen.add(container.key)
                expects_key = False
        elif first in b"{[":
            path = open_containers[-1].value_path() if open_containers else ""
            open_containers.append(_Container(path, first == 0x5B))
            expects_key = first == 0x7B
        elif first in b"}]":
            open_containers.pop()
            expects_key = False
        elif first == 0x2C:
            open_containers[-1].index += 1
            expects_key = not open_containers[-1].is_list
