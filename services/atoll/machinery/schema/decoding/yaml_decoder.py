"""Strict YAML decoding, as Kubernetes reads manifests (YAML 1.1 with Go's few differences).

Verb handlers call `decode_yaml` for YAML bodies. libyaml's events are composed here without recursion: its own composer
recurses in C, and its loader turns dates and 12:30:45 into values that JSON does not have. Invariant: aliases are
copied, and the size that they add is bounded, so a small body cannot expand into a large one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from atoll.machinery.schema.decoding.document import MAX_DEPTH, DecodeError, Document
from atoll.machinery.schema.decoding.yaml_scalars import MERGE, key_text, resolve

#: Maximum that aliases may add to a document, in nodes and characters together.
MAX_EXPANSION = 3 * 1024 * 1024

_COLLECTION_TAGS = {yaml.MappingStartEvent: "tag:yaml.org,2002:map", yaml.SequenceStartEvent: "tag:yaml.org,2002:seq"}


class _Collection:
    """An open mapping or sequence."""

    __slots__ = ("anchor", "awaits_value", "key", "line", "merges", "value", "weight")

    def __init__(self, value: dict[str, Any] | list[Any], anchor: str | None) -> None:
        self.value = value
        self.anchor = anchor
        self.awaits_value = False
        self.key: str | None = None
        self.line = 0
        self.merges: list[Any] = []
        self.weight = 1


class _Composer:
    """Composes events into one value and collects duplicate keys."""

    def __init__(self, max_depth: int) -> None:
        self.max_depth = max_depth
        self.duplicate_keys: list[str] = []
        self.root: Any = None
        self._stack: list[_Collection] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._expanded = 0

    def feed(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.ScalarEvent):
            self._scalar(event)
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            self._open(event)
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            self._close()
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event)

    def _open(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent) -> None:
        if event.tag not in (None, "!", _COLLECTION_TAGS[type(event)]):
            raise DecodeError(f"invalid YAML: line {_line(event)}: tag {event.tag} is not supported")
        if len(self._stack) >= self.max_depth:
            raise DecodeError(f"invalid YAML: nested deeper than {self.max_depth} levels")
        top = self._stack[-1] if self._stack else None
        if top is not None and isinstance(top.value, dict) and not top.awaits_value:
            raise DecodeError(f"invalid YAML: line {_line(event)}: a key must be a scalar")
        value: dict[str, Any] | list[Any] = {} if isinstance(event, yaml.MappingStartEvent) else []
        self._stack.append(_Collection(value, event.anchor))

    def _close(self) -> None:
        done = self._stack.pop()
        if isinstance(done.value, dict):
            for merged in done.merges:
                for key, item in merged.items():
                    done.value.setdefault(key, item)
        self._place(done.value, done.weight, done.anchor)

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        top = self._stack[-1] if self._stack else None
        value = resolve(event.value, event.tag, plain=event.implicit[0], line=_line(event))
        if top is not None and isinstance(top.value, dict) and not top.awaits_value:
            self._key(top, value, _line(event))
            if event.anchor:
                self._anchors[event.anchor] = (value, 1)
            return
        text = "<<" if value is MERGE else value
        self._place(text, 1 + (len(text) if isinstance(text, str) else 0), event.anchor)

    def _key(self, top: _Collection, value: Any, line: int) -> None:
        top.awaits_value, top.line = True, line
        if value is MERGE:
            top.key = None
            return
        top.key = key_text(value, line)
        if top.key in top.value:
            self.duplicate_keys.append(f'line {line}: key "{top.key}" already set in map')

    def _alias(self, event: yaml.AliasEvent) -> None:
        anchored = self._anchors.get(event.anchor or "")
        if anchored is None:
            raise DecodeError(f"invalid YAML: line {_line(event)}: unknown anchor '{event.anchor}' referenced")
        value, weight = anchored
        self._expanded += weight
        if self._expanded > MAX_EXPANSION:
            raise DecodeError("invalid YAML: document contains excessive aliasing")
        top = self._stack[-1] if self._stack else None
        if top is not None and isinstance(top.value, dict) and not top.awaits_value:
            self._key(top, value, _line(event))
            return
        self._place(_copy(value, self.max_depth - len(self._stack)), weight, None)

    def _place(self, value: Any, weight: int, anchor: str | None) -> None:
        if anchor:
            self._anchors[anchor] = (value, weight)
        if not self._stack:
            self.root = value
            return
        top = self._stack[-1]
        top.weight += weight
        if isinstance(top.value, list):
            top.value.append(value)
        elif top.key is None:
            top.merges.extend(_merged_mappings(value, top.line))
            top.awaits_value = False
        else:
            top.value[top.key] = value
            top.awaits_value = False


def _merged_mappings(value: Any, line: int) -> list[Any]:
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(item, dict) for item in values):
        raise DecodeError(f"invalid YAML: line {line}: map merge requires map or sequence of maps as the value")
    return values


def _copy(value: Any, depth: int) -> Any:
    """Return a copy of an anchored value with at most `depth` levels. Raises DecodeError for a deeper one."""
    if not isinstance(value, (dict, list)):
        return value
    if depth <= 0:
        raise DecodeError("invalid YAML: nested too deep")
    if isinstance(value, list):
        return [_copy(item, depth - 1) for item in value]
    return {key: _copy(item, depth - 1) for key, item in value.items()}


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark is not None else 0


def _events(data: bytes) -> Iterator[yaml.Event]:
    documents = 0
    for event in yaml.parse(data, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise DecodeError(f"invalid YAML: line {_line(event)}: more than one document")
        yield event


def decode_yaml(data: bytes, *, max_depth: int = MAX_DEPTH) -> Document:
    """Decode one YAML (or JSON) document; the value of an empty one is None.

    Raises DecodeError for malformed YAML, several documents, tags beyond the core ones, numbers beyond JSON or 64 bits,
    nesting deeper than `max_depth`, and aliases that expand the document too far. The last of duplicate keys wins; they
    are listed as `line N: key "x" already set in map`.
    """
    composer = _Composer(max_depth)
    try:
        for event in _events(data):
            composer.feed(event)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"invalid YAML: {_error_text(error)}") from None
    return Document(composer.root, composer.duplicate_keys)


def _error_text(error: Exception) -> str:
    """Format a parser error on one line."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {error.problem or 'malformed'}"
    return " ".join(str(error).split())
