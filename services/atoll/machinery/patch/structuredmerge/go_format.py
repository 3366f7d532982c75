"""JSON values as Go prints them in the error messages of Kubernetes.

`validation` uses it. Kubernetes prints its wrapper around the value: `%#v` where a string is expected and `%v`
elsewhere. Long texts are truncated.
"""

from __future__ import annotations

from typing import Any

from atoll.machinery.meta.objects import encode_json

_LONGEST = 200


def detailed(value: Any) -> str:
    """Format as `%#v` prints a wrapped value: `&value.valueUnstructured{Value:5}`."""
    return _cut("&value.valueUnstructured{Value:", _syntax(value), "}")


def plain(value: Any) -> str:
    """Format as `%v` prints a wrapped value: `&{5}`, `&{map[a:1]}`."""
    return _cut("&{", _words(value), "}")


def _cut(head: str, text: str, tail: str) -> str:
    return head + (text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "...") + tail


def _syntax(value: Any) -> str:
    if isinstance(value, dict):
        inner = ", ".join(f"{_syntax(name)}:{_syntax(value[name])}" for name in sorted(value))
        return f"map[string]interface {{}}{{{inner}}}"
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(map(_syntax, value))}}}"
    return "interface {}(nil)" if value is None else encode_json(value).decode()


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return "map[" + " ".join(f"{name}:{_words(value[name])}" for name in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(map(_words, value)) + "]"
    if isinstance(value, str):
        return value
    return "<nil>" if value is None else encode_json(value).decode()
