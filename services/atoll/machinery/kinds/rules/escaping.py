"""Field names in CEL: Kubernetes' escaping of names that are not CEL identifiers.

Called by `decl_types`. Invariant: two names of one schema never escape to the same identifier.
"""

from __future__ import annotations

import re
from string import ascii_letters, digits

from atoll.machinery.cel.syntax.parser import RESERVED

_PLAIN = frozenset(ascii_letters + digits + "_./-")
_SPECIAL = re.compile(r"__|[-./]")
_ESCAPES = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}


def escape(name: str) -> str | None:
    """Return the identifier of a field in rules, or None if the field is not accessible."""
    if not name or name[0] in digits or not _PLAIN.issuperset(name):
        return None
    if name in RESERVED:
        return f"__{name}__"
    return _SPECIAL.sub(lambda match: _ESCAPES[match[0]], name)
