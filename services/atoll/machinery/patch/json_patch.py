"""JSON patch (RFC 6902) with the limits of Kubernetes.

The PATCH handler calls it with the object in the request's version; the result goes on to pruning, defaulting and
validation. Invariant: document and operations are not modified. Containers are copied on first write and then edited
in place, so 10,000 operations cost 10,000 steps, not 10,000 copies.
"""

from __future__ import annotations

from typing import Any

from atoll.machinery.meta.equality import same
from atoll.machinery.meta.objects import Object, decode, encode_json
from atoll.machinery.patch.errors import PatchDoesNotApply, TooManyMoves, TooManyOperations, UndecodablePatch
from atoll.machinery.process.time_slicing import checkpoint

MAX_OPERATIONS = 10_000
#: Bytes that all `copy` operations of one patch may add in total (CVE-2019-1002100).
MAX_COPIED_BYTES = 3 * 1024 * 1024
#: List items that all insertions and removals of one patch may move in total, at up to 1 ns each. MAX_OPERATIONS
#: insertions at the start of a list of 1,400 items are within it.
MAX_MOVED_ITEMS = 64_000_000

_FIELDS = ("op", "path", "from", "value")
_ABSENT = object()


def apply_json_patch(document: Object, operations: object) -> Object:
    """Apply the decoded operations in order, all or nothing.

    Raises UndecodablePatch (not a list of operations), TooManyOperations, TooManyMoves, or PatchDoesNotApply (a missing
    path, a failed `test`, copies beyond the limit, a result that is not an object). As in Kubernetes, `test` for null
    passes for a missing path.
    """
    patched = _PatchedDocument(document)
    try:
        for operation in check_operations(operations):
            checkpoint()
            patched.apply(operation)
    except RecursionError:
        raise UndecodablePatch("error decoding patch: exceeded max depth") from None
    if not isinstance(patched.root, dict):
        raise PatchDoesNotApply("the patched document is not an object")
    return patched.root


def unknown_operation_fields(operations: object) -> list[str]:
    """List members of operations that RFC 6902 does not define, as `[0].foo`, in document order."""
    if not isinstance(operations, list):
        return []
    return [
        f"[{index}].{name}"
        for index, operation in enumerate(operations)
        if isinstance(operation, dict)
        for name in operation
        if name not in _FIELDS
    ]


def check_operations(operations: object) -> list[Object]:
    """Check number and types of decoded operations; return them. Raises UndecodablePatch, TooManyOperations."""
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
    """Return the list index of a token, at most `bound`. The RFC allows neither leading zeros nor signs."""
    if not (token.isascii() and token.isdigit()) or (token[0] == "0" and len(token) > 1) or len(token) > 9:
        raise PatchDoesNotApply(f"{token!r} is not a list index")
    index = int(token)
    if index > bound:
        raise PatchDoesNotApply(f"index {index} is out of range")
    return index


class _PatchedDocument:
    """A document while a patch is applied. Containers of the original are copied on first write."""

    def __init__(self, document: Object) -> None:
        self.root: Any = document
        # Copies by id. The value keeps the container alive, since ids are reused.
        self._copies: dict[int, object] = {}
        self._copied_bytes = 0
        self._moved_items = 0

    def apply(self, operation: Object) -> None:
        """Apply one operation. Raises PatchDoesNotApply, TooManyMoves."""
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
        """Return the container itself if it is a copy already, else a shallow copy."""
        if id(container) in self._copies:
            return container
        if isinstance(container, dict):
            copy: Any = dict(container)
        elif isinstance(container, list):
            copy = list(container)
        else:
            raise PatchDoesNotApply("a path leads into a value that is neither object nor list")
        self._copies[id(copy)] = copy
        return copy

    def _parent(self, path: list[str]) -> Any:
        """Return the container of the last token of a path. It and all its ancestors are writable."""
        container = self.root = self._writable(self.root)
        for token in path[:-1]:
            key: Any = token
            if isinstance(container, list):
                key = _index(token, len(container) - 1)
            elif token not in container:
                raise PatchDoesNotApply(f"{token!r} does not exist")
            child = self._writable(container[key])
            container[key] = child
            container = child
        return container

    def _get(self, path: list[str]) -> Any:
        value = self.root
        for token in path:
            if isinstance(value, list):
                value = value[_index(token, len(value) - 1)]
            elif isinstance(value, dict) and token in value:
                value = value[token]
            else:
                raise PatchDoesNotApply(f"{token!r} does not exist")
        return value

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
            index = _index(last, len(parent))
            self._charge(len(parent) - index)
            parent.insert(index, value)

    def _remove(self, path: list[str]) -> Any:
        if not path:
            raise PatchDoesNotApply("the whole document cannot be removed")
        parent, last = self._parent(path), path[-1]
        if isinstance(parent, list):
            index = _index(last, len(parent) - 1)
            self._charge(len(parent) - index)
            return parent.pop(index)
        if last not in parent:
            raise PatchDoesNotApply(f"{last!r} does not exist")
        return parent.pop(last)

    def _charge(self, items: int) -> None:
        """Count items of a list that an insertion or a removal moves. Raises TooManyMoves."""
        self._moved_items += items
        if self._moved_items > MAX_MOVED_ITEMS:
            raise TooManyMoves(MAX_MOVED_ITEMS)

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
        """Return a deep copy, so that later writes to one never show in the other."""
        data = encode_json(self._get(source))
        self._copied_bytes += len(data)
        if self._copied_bytes > MAX_COPIED_BYTES:
            raise PatchDoesNotApply(f"copies amount to more than {MAX_COPIED_BYTES} bytes")
        return decode(data)

    def _test(self, path: list[str], expected: Any) -> None:
        try:
            actual = self._get(path)
        except PatchDoesNotApply:
            if expected is None:
                return
            raise
        if not same(actual, expected):
            raise PatchDoesNotApply("test failed")
