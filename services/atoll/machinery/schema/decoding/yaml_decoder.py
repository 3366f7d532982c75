"""Strict YAML decoding, as Kubernetes reads manifests (YAML 1.1 with Go's few differences).

Verb handlers call `decode_yaml` for YAML bodies. libyaml's events are composed here without recursion: its own composer
recurses in C, and its loader turns dates and 12:30:45 into values that JSON does not have. Invariants: aliases are
copied, and what they add is bounded as in Go, so a small body cannot expand into a large one; a long body is decoded
with a `checkpoint` every few events.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import yaml

from atoll.machinery.meta.objects import without_collection
from atoll.machinery.process.time_slicing import checkpoint
from atoll.machinery.schema.decoding.document import MAX_DEPTH, DecodeError, Document
from atoll.machinery.schema.decoding.yaml_scalars import MERGE, key_text, resolve

#: Maximum that aliases may add to a document, in nodes and characters together.
MAX_EXPANSION = 3 * 1024 * 1024
#: The share of aliases among a document's nodes, as in Go: 0.99 up to 400,000 nodes, 0.1 from 4,000,000. Few are free.
_FEW_NODES, _MANY_NODES = 400_000, 4_000_000
_MAX_SHARE, _MIN_SHARE = 0.99, 0.10
_FREE_NODES, _FREE_ALIASES = 1000, 100
#: Events between two checkpoints, about 0.2 ms.
_EVENTS = 128
#: Longer plain scalars hardly repeat.
_REPEATED = 16

_COLLECTION_TAGS = {yaml.MappingStartEvent: "tag:yaml.org,2002:map", yaml.SequenceStartEvent: "tag:yaml.org,2002:seq"}


class _Anchored(NamedTuple):
    """A value that aliases repeat: its nodes, its nodes and characters, and its levels."""

    value: Any
    nodes: int
    weight: int
    depth: int


class _Collection:
    """An open mapping or sequence."""

    __slots__ = ("anchor", "awaits_value", "depth", "key", "line", "merges", "nodes", "value", "weight")

    def __init__(self, value: dict[str, Any] | list[Any], anchor: str | None) -> None:
        self.value = value
        self.anchor = anchor
        self.awaits_value = False
        self.key: str | None = None
        self.line = 0
        self.merges: list[Any] = []
        self.nodes = self.weight = self.depth = 1

    def put(self, value: Any) -> None:
        """Add an item, or the value of the key. Raises DecodeError for a merge of anything but mappings."""
        if isinstance(self.value, list):
            self.value.append(value)
            return
        self.awaits_value = False
        if self.key is None:
            self.merges.extend(_merged_mappings(value, self.line))
        else:
            self.value[self.key] = value


class _Composer:
    """Composes events into one value and collects duplicate keys."""

    def __init__(self, max_depth: int) -> None:
        self.max_depth = max_depth
        self.duplicate_keys: list[str] = []
        self.root: Any = None
        self._stack: list[_Collection] = []
        self._anchors: dict[str, _Anchored] = {}
        self._plain: dict[str, Any] = {}
        self._nodes = self._aliased = self._expanded = 0

    def feed(self, event: Any) -> None:
        kind = type(event)
        if kind is yaml.ScalarEvent:
            self._scalar(event)
        elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
            self._open(event)
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            self._close()
        elif kind is yaml.AliasEvent:
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
        self._nodes += 1
        self._place(_Anchored(done.value, done.nodes, done.weight, done.depth), done.anchor)

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        self._nodes += 1
        top = self._stack[-1] if self._stack else None
        value = self._value(event)
        if top is not None and isinstance(top.value, dict) and not top.awaits_value:
            self._key(top, value, _line(event))
            if event.anchor:
                self._anchors[event.anchor] = _Anchored(value, 1, 1, 0)
            return
        if value is MERGE:
            value = "<<"
        weight = 1 + len(value) if type(value) is str else 1
        if top is None or event.anchor:
            self._place(_Anchored(value, 1, weight, 0), event.anchor)
        else:
            top.nodes += 1
            top.weight += weight
            top.put(value)

    def _value(self, event: yaml.ScalarEvent) -> Any:
        text, plain = event.value, event.implicit[0] and event.tag is None
        if plain and text in self._plain:
            return self._plain[text]
        value = resolve(text, event.tag, plain=event.implicit[0], line=_line(event))
        if plain and len(text) <= _REPEATED:
            self._plain[text] = value
        return value

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
        self._expand(anchored)
        value = anchored.value
        top = self._stack[-1] if self._stack else None
        if top is not None and isinstance(top.value, dict) and not top.awaits_value:
            self._key(top, value, _line(event))
            return
        if isinstance(value, (dict, list)):
            if len(self._stack) + anchored.depth > self.max_depth:
                raise DecodeError("invalid YAML: nested too deep")
            checkpoint()
            anchored = anchored._replace(value=without_collection(msgspec.to_builtins, value))
        self._place(anchored, None)

    def _expand(self, anchored: _Anchored) -> None:
        """Count an alias. Raises DecodeError where aliases make up too much of the document."""
        self._nodes += 1 + anchored.nodes
        self._aliased += anchored.nodes
        self._expanded += anchored.weight
        over = min(max(self._nodes - _FEW_NODES, 0) / (_MANY_NODES - _FEW_NODES), 1)
        allowed = (_MAX_SHARE - (_MAX_SHARE - _MIN_SHARE) * over) * self._nodes
        excessive = self._aliased > max(allowed, _FREE_ALIASES) and self._nodes > _FREE_NODES
        if excessive or self._expanded > MAX_EXPANSION:
            raise DecodeError("invalid YAML: document contains excessive aliasing")

    def _place(self, placed: _Anchored, anchor: str | None) -> None:
        value = placed.value
        if anchor:
            self._anchors[anchor] = placed
        if not self._stack:
            self.root = value
            return
        top = self._stack[-1]
        top.nodes += placed.nodes
        top.weight += placed.weight
        top.depth = max(top.depth, placed.depth + 1)
        top.put(value)


def _merged_mappings(value: Any, line: int) -> list[Any]:
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(item, dict) for item in values):
        raise DecodeError(f"invalid YAML: line {line}: map merge requires map or sequence of maps as the value")
    return values


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark is not None else 0


def _events(data: bytes) -> Iterator[yaml.Event]:
    documents = 0
    for event in yaml.parse(data, Loader=yaml.CSafeLoader):
        if type(event) is yaml.DocumentStartEvent:
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
        for count, event in enumerate(_events(data)):
            if not count % _EVENTS:
                checkpoint()
            composer.feed(event)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"invalid YAML: {_error_text(error)}") from None
    return Document(composer.root, composer.duplicate_keys)


def _error_text(error: Exception) -> str:
    """Format a parser error on one line."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {error.problem or 'malformed'}"
    return " ".join(str(error).split())
