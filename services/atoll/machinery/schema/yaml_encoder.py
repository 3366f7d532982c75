"""YAML encoding: block style, as Kubernetes writes it, which `decoding.yaml_decoder` reads back as the same value.

Replies to `Accept: application/yaml` are encoded here. Keys are sorted and lists are not indented, as in
sigs.k8s.io/yaml. Invariants: a string is plain only where `resolve` returns the same string; time and size are
proportional to the value; nothing recurses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from atoll.machinery.meta.objects import encode_json
from atoll.machinery.process.time_slicing import checkpoint
from atoll.machinery.schema.decoding.document import DecodeError
from atoll.machinery.schema.decoding.yaml_scalars import resolve

#: Maximum characters of indentation in a document; what would exceed it is written on one line, as JSON.
MAX_INDENTATION = 8 * 1024 * 1024
#: Longer keys are marked by `?`: readers look for the colon of an unmarked key in 1,024 characters only.
_SIMPLE_KEY = 128
#: Scalars between two checkpoints, about 0.1 ms.
_ITEMS = 128
#: Lines that are joined at once.
_LINES = 4096
#: Longer strings hardly repeat.
_REPEATED = 64
#: Characters to escape beside those of JSON: control characters, line breaks of Unicode, byte order marks.
_UNPRINTABLE = "\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff"
_TO_ESCAPE = re.compile(f"[{_UNPRINTABLE}]")
_NOT_PLAIN = re.compile(f"[\x00-\x1f{_UNPRINTABLE}]")
_NOT_LITERAL = re.compile(f"[\x00-\x08\x0b-\x1f{_UNPRINTABLE}]")
_WORD = re.compile(r"[A-Za-z_/][A-Za-z0-9_/.-]*\Z")
_INDICATORS = frozenset("[]{},#&*!|>'\"%@` =")
#: Indicators only before a blank.
_WEAK_INDICATORS = frozenset("-?:")
#: A date or a number of base 60 in YAML 1.1.
_DATE = re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?\Z|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}")
_LINE = re.compile(r"\n(?=[^\n])")
_LONG_JSON_KEY = re.compile(rf'("(?:[^"\\]|\\.){{{_SIMPLE_KEY},}}"):')


def encode_yaml(value: Any) -> bytes:
    """Encode a JSON value as a YAML document. Calls `checkpoint` for every container and every few scalars."""
    return _Encoder().encoded(value, "")


def encode_yaml_item(value: Any) -> bytes:
    """Encode a JSON value as an item of a list at the start of a line."""
    return _Encoder().encoded(value, "- ")


class _Block:
    """An open list or mapping: its remaining items and the indentation of its lines."""

    __slots__ = ("indent", "is_mapping", "items")

    def __init__(self, value: dict[str, Any] | list[Any], indent: str) -> None:
        self.is_mapping = type(value) is dict
        self.items: Iterator[Any] = iter(sorted(value.items()) if isinstance(value, dict) else value)
        self.indent = indent


class _Encoder:
    """Writes the lines of one document."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        #: The lines before those.
        self._joined: list[bytes] = []
        self._open: list[_Block] = []
        self._texts: dict[str, str] = {}
        self._indentation = 0
        #: The start of the next line where it is not the indentation: the dashes of the lists around.
        self._dashes = ""

    def encoded(self, value: Any, lead: str) -> bytes:
        """Return the lines of a value; the first one starts with `lead`."""
        indent = " " * len(lead)
        if value and isinstance(value, (dict, list)):
            self._open.append(_Block(value, indent))
            self._dashes = lead
        else:
            self._lines.append(f"{lead}{self._scalar(value, indent)}\n")
        while self._open:
            self._continue(self._open[-1])
        self._join()
        return b"".join(self._joined)

    def _join(self) -> None:
        self._joined.append("".join(self._lines).encode())
        self._lines.clear()

    def _continue(self, block: _Block) -> None:
        """Write the items of the innermost block up to the next list or mapping in it."""
        write, indent, is_mapping = self._lines.append, block.indent, block.is_mapping
        for count, item in enumerate(block.items):
            if not count % _ITEMS:
                checkpoint()
                if len(self._lines) > _LINES:
                    self._join()
            lead, self._dashes = self._dashes or indent, ""
            if is_mapping:
                name, value = item
                lead += self._key(name, indent)
            else:
                value = item
                lead += "-"
            if value and isinstance(value, (dict, list)):
                if self._opens(block, value, lead):
                    return
            else:
                write(f"{lead} {self._scalar(value, indent)}\n")
        self._open.pop()

    def _opens(self, block: _Block, value: dict[str, Any] | list[Any], lead: str) -> bool:
        """Open a list or mapping as the value after `lead`, or write it as JSON and return False."""
        is_plain_list = block.is_mapping and isinstance(value, list)
        indent = block.indent if is_plain_list else block.indent + "  "
        self._indentation += len(indent) * len(value)
        if self._indentation > MAX_INDENTATION:
            self._lines.append(f"{lead} {_flow(value)}\n")
            return False
        if block.is_mapping:
            self._lines.append(lead + "\n")
        else:
            self._dashes = lead + " "
        self._open.append(_Block(value, indent))
        return True

    def _key(self, name: str, indent: str) -> str:
        text = self._texts.get(name) or self._text(name)
        return f"{text}:" if len(text) <= _SIMPLE_KEY else f"? {text}\n{indent}:"

    def _scalar(self, value: Any, indent: str) -> str:
        if type(value) is str:
            text = self._texts.get(value)
            if text is not None:
                return text
            return self._literal(value, indent + "  ") if "\n" in value else self._text(value)
        if type(value) is int:
            return str(value)
        return encode_json(value).decode()

    def _text(self, value: str) -> str:
        """Return a string on one line: plain where that reads as the same string, else in double quotes."""
        text = value if _is_plain(value) else _quoted(value)
        if len(value) <= _REPEATED:
            self._texts[value] = text
        return text

    def _literal(self, value: str, indent: str) -> str:
        """Return a string of several lines as a literal block, where that keeps every character."""
        self._indentation += len(indent) * value.count("\n")
        if self._indentation > MAX_INDENTATION or not _is_literal(value):
            return _quoted(value)
        ends = "-" if value[-1] != "\n" else "+" if value[-2] == "\n" else ""
        lines = _LINE.sub("\n" + indent, value)
        return f"|{ends}\n{indent}{lines.removesuffix(chr(10))}"


def _is_plain(value: str) -> bool:
    if not value:
        return False
    first = value[0]
    if not _WORD.match(value):
        if first in _INDICATORS or (first in _WEAK_INDICATORS and (len(value) == 1 or value[1] == " ")):
            return False
        if value[-1] in ": " or ": " in value or " #" in value or value.startswith(("---", "...")):
            return False
        if _NOT_PLAIN.search(value) or _DATE.match(value):
            return False
    try:
        return resolve(value, None, plain=True, line=0) is value
    except DecodeError:
        return False


def _is_literal(value: str) -> bool:
    """Whether a literal block keeps the string: no blanks around its lines, and nothing to escape."""
    if value[0] in " \t\n" or value[-1] in " \t" or " \n" in value or "\t\n" in value:
        return False
    return not _NOT_LITERAL.search(value)


def _quoted(value: str) -> str:
    return _escaped(encode_json(value).decode())


def _escaped(json: str) -> str:
    return _TO_ESCAPE.sub(lambda match: f"\\u{ord(match.group()):04x}", json)


def _flow(value: dict[str, Any] | list[Any]) -> str:
    """Return a list or mapping as JSON, which is YAML if long keys are marked."""
    return _LONG_JSON_KEY.sub(r"? \1 :", _escaped(encode_json(value).decode()))
