"""Field paths of rules (`fieldPath` of x-kubernetes-validations): `.spec.replicas`, `['a.b'].c`.

`keywords` rejects paths without a target; `kinds.rules` appends them to the field of a failed rule. Paths name fields
and keys of maps only, not items of lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from atoll.machinery.meta.objects import Object

# A quoted text with its quotes, a delimiter, or the text between delimiters.
_TOKEN = re.compile(r"'(?:[^'\\]|\\.|\\)*?(?<!\\)'|[.\[\]]|'.*|[^.\[\]]+", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "'": "'", "\\": "\\"}


def resolve_field_path(path: str, schema: Object) -> str | None:
    """Return the field of a path as errors write it (`spec.replicas`, `labels[a]`), or None if there is none."""
    tokens, written = iter(_TOKEN.findall(path)), ""
    at: Any = schema
    for token in tokens:
        name = next(tokens, None) if token == "." else _bracketed(tokens) if token == "[" else None
        if name is None or not isinstance(at, dict):
            return None
        properties, additional = at.get("properties"), at.get("additionalProperties")
        if properties:
            if name not in properties:
                return None
            written, at = f"{written}.{name}" if written else name, properties[name]
        elif additional is not None:
            written, at = f"{written}[{name}]", additional
        else:
            return None
    return written or None


def _bracketed(tokens: Iterator[str]) -> str | None:
    """Return the name in `['name']`, after the opening bracket."""
    token = next(tokens, "")
    if len(token) < 2 or token[0] != "'" or token[-1] != "'" or next(tokens, "") != "]":
        return None
    inner = token[1:-1]
    if any(letter not in _ESCAPES for letter in _ESCAPE.findall(inner)):
        return None
    return _ESCAPE.sub(lambda match: _ESCAPES[match[1]], inner)
