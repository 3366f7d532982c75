"""Field names in CEL: Kubernetes' escaping of names that are not CEL identifiers.

Called by `decl_types`. Invariant: two names of one schema never escape to the same identifier.
"""

from __future__ import annotations

import re
from string import ascii_letters, digits

_RESERVED = frozenset(
    {
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    }
)
_PLAIN = frozenset(ascii_letters + digits + "_./-")
_SPECIAL = re.compile(r"__|[-./]")
_ESCAPES = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}


def is_reserved(name: str) -> bool:
    """Report whether a name is a reserved word of CEL."""
    return name in _RESERVED


def escape(name: str) -> str | None:
    """Return the identifier of a field in rules, or None if the field is not accessible."""
    if not name or name[0] in digits or not _PLAIN.issuperset(name):
        return None
    if name in _RESERVED:
        return f"__{name}__"
    return _SPECIAL.sub(lambda match: _ESCAPES[match[0]], name)
