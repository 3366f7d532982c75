"""JSON merge patch (RFC 7386).

The PATCH handler calls it with the object in the request's version; the result goes on to pruning, defaulting and
validation. Invariant: inputs are not modified; untouched parts are shared with the result.
"""

from __future__ import annotations

from atoll.machinery.meta.objects import Object
from atoll.machinery.patch.errors import UndecodablePatch


def merge_patch(document: Object, patch: object) -> Object:
    """Merge the patch into the document: null deletes, maps merge, any other value replaces.

    Raises UndecodablePatch when the patch is not a JSON object: an object cannot become a list or a scalar.
    """
    if not isinstance(patch, dict):
        raise UndecodablePatch("error decoding patch: a merge patch must be a JSON object")
    try:
        return _merge(document, patch)
    except RecursionError:
        raise UndecodablePatch("error decoding patch: exceeded max depth") from None


def _merge(target: Object, patch: Object) -> Object:
    out = dict(target)
    for name, value in patch.items():
        if value is None:
            out.pop(name, None)
        elif isinstance(value, dict):
            old = out.get(name)
            # Merging into an empty map drops the nulls of a new subtree.
            out[name] = _merge(old if isinstance(old, dict) else {}, value)
        else:
            out[name] = value
    return out
