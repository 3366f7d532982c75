"""One YAML document to a JSON value, read as Kubernetes reads manifests (YAML 1.1 with Go's few differences).

`decode.decode_yaml` is this. libyaml's events are assembled here with an own stack: its composer recurses in C,
and its loader turns dates and 12:30:45 into values that JSON does not have. Aliases are copied, and what they add
is bounded, so that a small body cannot become a large one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from atoll.machinery.schema.decoding.document import MAX_DEPTH, DecodeError, Document
from atoll.machinery.schema.decoding.yaml_scalars import MERGE, key_text, resolve

#: What aliases may add to a document, in nodes and characters together.
MAX_EXPANSION = 3 * 1024 * 1024

_COLLECTION_TAGS = {yaml.MappingStartEvent: "tag:yaml.org,2002:map", yaml.SequenceStartEvent: "tag:yaml.org,2002:seq"}


class _Collection:
    """A mapping or a sequence that is not closed yet."""

    __slots__ = ("anchor", "awaits_value", "key", "line", "merges", "value", "weight")

    def __init__(self, value: dict[str, Any] | list[Any], anchor: str | None) -> None:
        self.value = value
        self.anchor = anchor
        self.awaits_value = False
        self.key: str | None = None
        self.line = 0
        self.merges: list[Any] = []
        self.weight = 1


class _Builder:
    """Assembles events into one value; `duplicate_keys` grows as keys repeat."""

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
        known = self._anchors.get(event.anchor or "")
        if known is None:
            raise DecodeError(f"invalid YAML: line {_line(event)}: unknown anchor '{event.anchor}' referenced")
        value, weight = known
        self._expanded += weight
        if self._expanded > MAX_EXPANSION:
            raise DecodeError("invalid YAML: document contains excessive aliasing")
        top = self._stack[-1] if self._stack else None
        if top is not None and isinstance(top.value, dict) and not top.awaits_value:
            self._key(top, value, _line(event))
            return
        self._place(_copied(value, self.max_depth - len(self._stack)), weight, None)

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


def _copied(value: Any, depth: int) -> Any:
    """A copy of an anchored value, which may stand `depth` levels high."""
    if not isinstance(value, (dict, list)):
        return value
    if depth <= 0:
        raise DecodeError("invalid YAML: nested too deep")
    if isinstance(value, list):
        return [_copied(item, depth - 1) for item in value]
    return {key: _copied(item, depth - 1) for key, item in value.items()}


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
    """Decode one YAML (or JSON) document; an empty one gives None.

    Raises DecodeError for malformed YAML, several documents, tags beyond the core ones, numbers that JSON or
    64 bits do not hold, nesting deeper than `max_depth`, and aliases that blow the document up. The last of
    duplicate keys wins; they are listed as `line N: key "x" already set in map`.
    """
    builder = _Builder(max_depth)
    try:
        for event in _events(data):
            builder.feed(event)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"invalid YAML: {_flat(error)}") from None
    return Document(builder.root, builder.duplicate_keys)


def _flat(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {error.problem or 'malformed'}"
    return " ".join(str(error).split())
