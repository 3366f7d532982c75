"""JSON patch (RFC 6902) with the limits of Kubernetes.

The PATCH handler calls it with the object in the request's version; the result goes on to pruning, defaulting and
validation. Invariant: document and operations are not modified. Containers are copied on first write and then edited
in place, so 10,000 operations cost 10,000 steps, not 10,000 copies.
"""

from __future__ import annotations

from typing import Any

from atoll.machinery.meta.equality import same
from atoll.machinery.meta.objects import Object, decode, encode_json
from atoll.machinery.patch.errors import (
    FailedTest,
    PatchDoesNotApply,
    TooManyMoves,
    TooManyOperations,
    UndecodablePatch,
)
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
    path, copies beyond the limit, a result that is not an object) or its FailedTest. As in Kubernetes, a field that an
    existing object lacks counts as null to `test` and `copy`, and `replace` adds it.
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


def _text(operation: Object, member: str) -> str:
    found: str | None = operation.get(member)
    if found is None:
        name = operation.get("op")
        said = f"operation{', ' if member == 'from' else ' '}missing {member} field: missing value"
        raise PatchDoesNotApply(f"{name} operation failed to decode {member}: {said}")
    return found


def _value(operation: Object) -> Any:
    value = operation.get("value", _ABSENT)
    if value is _ABSENT:
        raise PatchDoesNotApply("operation, missing value field: missing value")
    return value


class _Unusable(Exception):
    """A token that denotes no place in its container; `str()` is Kubernetes' reason."""


def _index(token: str, bound: int) -> int:
    """Return the list index of a token, at most `bound`. The RFC allows neither leading zeros nor signs.

    Raises _Unusable.
    """
    if not (token.isascii() and token.isdigit()) or (token[0] == "0" and len(token) > 1) or len(token) > 9:
        raise _Unusable(f'strconv.Atoi: parsing "{token}": invalid syntax')
    index = int(token)
    if index > bound:
        raise _Unusable(f"Unable to access invalid index: {index}: invalid index referenced")
    return index


def _member(container: Any, token: str) -> Any:
    """Return the value under a token; _ABSENT for a field that an object lacks. Raises _Unusable."""
    if isinstance(container, list):
        return container[_index(token, len(container) - 1)]
    return container.get(token, _ABSENT)


class _Path:
    """A JSON pointer: its text, the tokens of the container and the last token; `is_root` without any."""

    __slots__ = ("is_root", "last", "parents", "text")

    def __init__(self, text: str) -> None:
        tokens = [token.replace("~1", "/").replace("~0", "~") for token in text.split("/")]
        self.text, self.is_root = text, text == ""
        self.parents, self.last = tokens[1:-1], tokens[-1]

    @property
    def is_pointer(self) -> bool:
        """Whether it leads to a place below the document."""
        return self.text.startswith("/")


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
        if name not in ("add", "remove", "replace", "move", "copy", "test"):
            raise PatchDoesNotApply(f"Unexpected kind: {name or 'unknown'}")
        path = _Path(_text(operation, "path"))
        if name == "add":
            self._add(path, _value(operation))
        elif name == "remove":
            self._remove(path)
        elif name == "replace":
            self._replace(path, _value(operation))
        elif name == "move":
            self._move(_Path(_text(operation, "from")), path)
        elif name == "copy":
            self._copy(_Path(_text(operation, "from")), path)
        else:
            self._test(path, operation.get("value"))

    def _writable(self, container: Any) -> Any:
        """Return the container itself if it is a copy already, else a shallow copy."""
        if id(container) in self._copies:
            return container
        copy: Any = dict(container) if isinstance(container, dict) else list(container)
        self._copies[id(copy)] = copy
        return copy

    def _container(self, path: _Path, missing: str) -> Any:
        """Return the container that a path leads to. Raises PatchDoesNotApply with the text for a missing one."""
        container = self.root if path.is_pointer else None
        for token in path.parents:
            try:
                container = _member(container, token) if isinstance(container, dict | list) else _ABSENT
            except _Unusable:
                container = _ABSENT
        if not isinstance(container, dict | list):
            raise PatchDoesNotApply(f"{missing}: missing value")
        return container

    def _parent(self, path: _Path, missing: str) -> Any:
        """Return `_container`, writable as all its ancestors are."""
        self._container(path, missing)
        container = self.root = self._writable(self.root)
        for token in path.parents:
            key: Any = int(token) if isinstance(container, list) else token
            child = container[key] = self._writable(container[key])
            container = child
        return container

    def _add(self, path: _Path, value: Any) -> None:
        if path.is_root:
            self.root = value
            return
        missing = f'add operation does not apply: doc is missing path: "{path.text}"'
        self._insert(self._parent(path, missing), path.last, value, f"error in add for path: '{path.text}'")

    def _insert(self, parent: Any, last: str, value: Any, failed: str) -> None:
        if isinstance(parent, dict):
            parent[last] = value
            return
        if last == "-":
            parent.append(value)
            return
        try:
            index = _index(last, len(parent))
        except _Unusable as error:
            said = f"value was not a proper array index: '{last}': " if "Atoi" in str(error) else ""
            raise PatchDoesNotApply(f"{failed}: {said}{error}") from None
        self._charge(len(parent) - index)
        parent.insert(index, value)

    def _remove(self, path: _Path) -> None:
        missing = f'remove operation does not apply: doc is missing path: "{path.text}"'
        self._take(path, missing, f"error in remove for path: '{path.text}'")

    def _take(self, path: _Path, missing: str, failed: str) -> Any:
        """Remove the value at a path and return it."""
        parent, last = self._parent(path, missing), path.last
        if isinstance(parent, dict):
            if last not in parent:
                raise PatchDoesNotApply(f"{failed}: Unable to remove nonexistent key: {last}: missing value")
            return parent.pop(last)
        try:
            index = _index(last, len(parent) - 1)
        except _Unusable as error:
            raise PatchDoesNotApply(f"{failed}: {error}") from None
        self._charge(len(parent) - index)
        return parent.pop(index)

    def _charge(self, items: int) -> None:
        """Count items of a list that an insertion or a removal moves. Raises TooManyMoves."""
        self._moved_items += items
        if self._moved_items > MAX_MOVED_ITEMS:
            raise TooManyMoves(MAX_MOVED_ITEMS)

    def _replace(self, path: _Path, value: Any) -> None:
        """Replace a value; a field that its object lacks is added, as in Kubernetes."""
        if path.is_root:
            self.root = value
            return
        parent = self._parent(path, f"replace operation does not apply: doc is missing path: {path.text}")
        key: Any = path.last
        if isinstance(parent, list):
            try:
                key = _index(key, len(parent) - 1)
            except _Unusable:
                text = f"replace operation does not apply: doc is missing key: {path.text}: missing value"
                raise PatchDoesNotApply(text) from None
        parent[key] = value

    def _move(self, source: _Path, path: _Path) -> None:
        if not source.is_root and path.text.startswith(f"{source.text}/"):
            text = f"move operation does not apply: doc is missing destination path: {path.text}: missing value"
            raise PatchDoesNotApply(text)
        missing = f"move operation does not apply: doc is missing from path: {source.text}"
        if source.text == path.text and not source.is_root:
            parent = self._container(source, missing)
            if self._found(parent, source, f"error in move for path: '{source.last}'") is _ABSENT:
                unknown = f"Unable to remove nonexistent key: {source.last}: missing value"
                raise PatchDoesNotApply(f"error in move for path: '{source.last}': {unknown}")
            return
        value = self._take(source, missing, f"error in move for path: '{source.last}'")
        self._place(path, value, "move", f"error in move for path: '{path.text}'")

    def _place(self, path: _Path, value: Any, name: str, failed: str) -> None:
        """Add a value that was moved or copied."""
        if path.is_root:
            self.root = value
            return
        missing = f"{name} operation does not apply: doc is missing destination path: {path.text}"
        self._insert(self._parent(path, missing), path.last, value, failed)

    def _found(self, parent: Any, path: _Path, failed: str) -> Any:
        """Return the value at a path, _ABSENT for a field that its object lacks."""
        try:
            return _member(parent, path.last)
        except _Unusable as error:
            raise PatchDoesNotApply(f"{failed}: {error}") from None

    def _copy(self, source: _Path, path: _Path) -> None:
        """Add a deep copy, so that later writes to one never show in the other; null of a field that is missing."""
        value = self.root
        if not source.is_root:
            parent = self._container(source, f"copy operation does not apply: doc is missing from path: {source.text}")
            value = self._found(parent, source, f"error in copy for from: '{source.text}'")
        data = b"null" if value is _ABSENT else encode_json(value)
        self._copied_bytes += 0 if value is _ABSENT else len(data)
        if self._copied_bytes > MAX_COPIED_BYTES:
            raise PatchDoesNotApply(
                f"Unable to complete the copy, the accumulated size increase of copy is {self._copied_bytes}, "
                f"exceeding the limit {MAX_COPIED_BYTES}"
            )
        self._place(path, decode(data) if data != b"null" else None, "copy", "error while adding value during copy")

    def _test(self, path: _Path, expected: Any) -> None:
        """Compare a value with the expected one; null equals a field that is missing, as in Kubernetes."""
        value = self.root
        if not path.is_root:
            parent = self._container(path, f"test operation does not apply: is missing path: {path.text}")
            value = self._found(parent, path, f"error in test for path: '{path.text}'")
        if not same(None if value is _ABSENT else value, expected):
            raise FailedTest(f"testing value {path.text} failed: test failed")
