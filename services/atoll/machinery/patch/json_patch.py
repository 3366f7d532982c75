"""JSON patch (RFC 6902) with the limits of Kubernetes.

The PATCH handler calls it with the object in the request's version; the result goes on to pruning,
defaulting and validation. Invariant: neither document nor operations are modified. Containers are copied
when first written to and then edited in place, so 10,000 operations cost 10,000 steps, not 10,000 copies.
"""

from __future__ import annotations

from typing import Any

import msgspec

from atoll.machinery.meta.objects import Object, decode, encode_json
from atoll.machinery.patch.equality import same
from atoll.machinery.patch.errors import PatchDoesNotApply, TooManyOperations, UndecodablePatch

MAX_OPERATIONS = 10_000
#: What all `copy` operations of one patch may add together (CVE-2019-1002100).
MAX_COPIED_BYTES = 3 * 1024 * 1024

_FIELDS = ("op", "path", "from", "value")
_ABSENT = object()


def decode_json_patch(body: bytes) -> list[Object]:
    """The operations of a request body, checked for shape. Raises UndecodablePatch, TooManyOperations."""
    try:
        return _checked(msgspec.json.decode(body))
    except (msgspec.DecodeError, RecursionError) as error:
        raise UndecodablePatch(f"error decoding patch: {error}") from error


def apply_json_patch(document: Object, operations: object) -> Object:
    """Apply the decoded operations in order, all or nothing.

    Raises UndecodablePatch (no list of operations), TooManyOperations, or PatchDoesNotApply (a path that is
    missing, a failed `test`, copies beyond the limit, a result that is no object). As in Kubernetes, `test`
    for null holds where nothing is.
    """
    run = _PatchedDocument(document)
    try:
        for operation in _checked(operations):
            run.step(operation)
    except RecursionError:
        raise UndecodablePatch("error decoding patch: exceeded max depth") from None
    if not isinstance(run.root, dict):
        raise PatchDoesNotApply("the patched document is not an object")
    return run.root


def unknown_operation_fields(operations: object) -> list[str]:
    """`[0].foo` for each member of an operation that RFC 6902 does not know, in document order."""
    if not isinstance(operations, list):
        return []
    return [
        f"[{index}].{name}"
        for index, operation in enumerate(operations)
        if isinstance(operation, dict)
        for name in operation
        if name not in _FIELDS
    ]


def _checked(operations: object) -> list[Object]:
    if not isinstance(operations, list):
        raise UndecodablePatch("error decoding patch: a list of operations is required")
    if len(operations) > MAX_OPERATIONS:
        raise TooManyOperations(MAX_OPERATIONS, len(operations))
    for index, operation in enumerate(operations):
        if not isinstance(operation, dict):
            raise UndecodablePatch(f"error decoding patch: operation {index} is not an object")
        for name in ("op", "path", "from"):
            if not isinstance(operation.get(name, ""), str):
                raise UndecodablePatch(f"error decoding patch: {name} of operation {index} is not a string")
    return operations


def _tokens(operation: Object, member: str) -> list[str]:
    pointer: str | None = operation.get(member)
    if pointer is None:
        raise PatchDoesNotApply(f"operation misses {member}")
    if pointer == "":
        return []
    if pointer[0] != "/":
        raise PatchDoesNotApply(f"{member} {pointer!r} does not start with /")
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer[1:].split("/")]


def _value(operation: Object) -> Any:
    value = operation.get("value", _ABSENT)
    if value is _ABSENT:
        raise PatchDoesNotApply("operation misses value")
    return value


def _index(token: str, bound: int) -> int:
    """The list index a token names, at most `bound`; leading zeroes and signs are not of the RFC."""
    if not (token.isascii() and token.isdigit()) or (token[0] == "0" and len(token) > 1) or len(token) > 9:
        raise PatchDoesNotApply(f"{token!r} is not a list index")
    index = int(token)
    if index > bound:
        raise PatchDoesNotApply(f"index {index} is out of range")
    return index


class _PatchedDocument:
    """One patch being applied: the root so far, and which containers are already copies of ours."""

    def __init__(self, document: Object) -> None:
        self.root: Any = document
        # By id, holding the container itself: an id stays unique only while its object lives.
        self._copied: dict[int, object] = {}
        self._copied_bytes = 0

    def step(self, operation: Object) -> None:
        name = operation.get("op")
        path = _tokens(operation, "path")
        if name == "add":
            self._add(path, _value(operation))
        elif name == "remove":
            self._remove(path)
        elif name == "replace":
            self._replace(path, _value(operation))
        elif name == "move":
            self._move(_tokens(operation, "from"), path)
        elif name == "copy":
            self._add(path, self._copy(_tokens(operation, "from")))
        elif name == "test":
            self._test(path, operation.get("value"))
        else:
            raise PatchDoesNotApply(f"unknown operation {name!r}")

    def _writable(self, container: Any) -> Any:
        """The container itself if it is our copy, else a copy of it, one level deep."""
        if id(container) in self._copied:
            return container
        if isinstance(container, dict):
            copy: Any = dict(container)
        elif isinstance(container, list):
            copy = list(container)
        else:
            raise PatchDoesNotApply("a path leads into a value that is neither object nor list")
        self._copied[id(copy)] = copy
        return copy

    def _parent(self, path: list[str]) -> Any:
        """The container that holds the last token of a path, ours to write, and all above it too."""
        here = self.root = self._writable(self.root)
        for token in path[:-1]:
            key: Any = token
            if isinstance(here, list):
                key = _index(token, len(here) - 1)
            elif token not in here:
                raise PatchDoesNotApply(f"{token!r} does not exist")
            child = self._writable(here[key])
            here[key] = child
            here = child
        return here

    def _get(self, path: list[str]) -> Any:
        here = self.root
        for token in path:
            if isinstance(here, list):
                here = here[_index(token, len(here) - 1)]
            elif isinstance(here, dict) and token in here:
                here = here[token]
            else:
                raise PatchDoesNotApply(f"{token!r} does not exist")
        return here

    def _add(self, path: list[str], value: Any) -> None:
        if not path:
            self.root = value
            return
        parent, last = self._parent(path), path[-1]
        if isinstance(parent, dict):
            parent[last] = value
        elif last == "-":
            parent.append(value)
        else:
            parent.insert(_index(last, len(parent)), value)

    def _remove(self, path: list[str]) -> Any:
        if not path:
            raise PatchDoesNotApply("the whole document cannot be removed")
        parent, last = self._parent(path), path[-1]
        if isinstance(parent, list):
            return parent.pop(_index(last, len(parent) - 1))
        if last not in parent:
            raise PatchDoesNotApply(f"{last!r} does not exist")
        return parent.pop(last)

    def _replace(self, path: list[str], value: Any) -> None:
        if not path:
            self.root = value
            return
        parent, last = self._parent(path), path[-1]
        if isinstance(parent, list):
            parent[_index(last, len(parent) - 1)] = value
        elif last in parent:
            parent[last] = value
        else:
            raise PatchDoesNotApply(f"{last!r} does not exist")

    def _move(self, source: list[str], path: list[str]) -> None:
        if source == path:
            self._get(source)
        elif path[: len(source)] == source:
            raise PatchDoesNotApply("a value cannot move into itself")
        else:
            self._add(path, self._remove(source))

    def _copy(self, source: list[str]) -> Any:
        """A deep copy, so that later writes to one of the two never show in the other."""
        data = encode_json(self._get(source))
        self._copied_bytes += len(data)
        if self._copied_bytes > MAX_COPIED_BYTES:
            raise PatchDoesNotApply(f"copies amount to more than {MAX_COPIED_BYTES} bytes")
        return decode(data)

    def _test(self, path: list[str], expected: Any) -> None:
        try:
            found = self._get(path)
        except PatchDoesNotApply:
            if expected is None:
                return
            raise
        if not same(found, expected):
            raise PatchDoesNotApply("test failed")
