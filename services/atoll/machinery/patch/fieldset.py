"""Field sets in the wire form of managedFields (FieldsV1), and their algebra.

`structuredmerge` makes them, `managedfields` combines and stores them. A set *is* its wire form: a trie of
dictionaries keyed by path elements, where a node is a member when it is empty or holds `.`. Reading and writing
therefore cost nothing. Invariants: sets are never modified; every function returns a new set and shares subtrees with
its arguments; every node is a member or has one beneath it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NoReturn, TypeAlias

from atoll.machinery.meta.objects import Object
from atoll.machinery.patch.path_elements import canonical, sort_key
from atoll.machinery.process.time_slicing import checkpoint

FieldSet: TypeAlias = "dict[str, FieldSet]"

SELF = "."


class _EmptyNode(dict[str, "FieldSet"]):
    """The empty node that all sets of the process share. Writing to it raises TypeError."""

    def _read_only(self, *args: object, **kwargs: object) -> NoReturn:
        raise TypeError("field sets are never modified")

    __setitem__ = update = setdefault = __ior__ = _read_only


EMPTY: FieldSet = _EmptyNode()
#: A member without descendants. The same object as the empty set: the position decides the meaning.
LEAF: FieldSet = EMPTY


class InvalidFieldSet(ValueError):
    """JSON that is not FieldsV1."""


def parse(fields: object) -> FieldSet:
    """Return a client's FieldsV1 in canonical form. Raises InvalidFieldSet or InvalidPathElement."""
    if not isinstance(fields, dict):
        raise InvalidFieldSet("FieldsV1 must be an object")
    try:
        node = _parse(fields)
    except RecursionError:
        raise InvalidFieldSet("FieldsV1 is nested too deeply") from None
    return without_self(node)


def _parse(fields: Object) -> FieldSet:
    checkpoint()
    out: FieldSet = {}
    for element, node in fields.items():
        if not isinstance(node, dict):
            raise InvalidFieldSet(f"{element!r} does not hold an object")
        if element == SELF:
            out[SELF] = LEAF
            continue
        child = _parse(node)
        key = canonical(element)
        out[key] = join(is_member(child) or _is_present(out, key), union(child, out.get(key, EMPTY)))
    return LEAF if len(out) == 1 and SELF in out else out


def _is_present(fields: FieldSet, key: str) -> bool:
    return key in fields and is_member(fields[key])


def is_member(node: FieldSet) -> bool:
    """Whether the node itself, not only its descendants, belongs to the set."""
    return not node or SELF in node


def join(member: bool, children: FieldSet) -> FieldSet:
    """Return the node with this membership and these children. Callers drop it when it has neither."""
    if not member or not children:
        return without_self(children)
    return children if SELF in children else {SELF: LEAF, **children}


def without_self(node: FieldSet) -> FieldSet:
    """Return the children of a node as a set."""
    if SELF not in node:
        return node
    return {element: child for element, child in node.items() if element != SELF}


def from_paths(paths: Iterable[Sequence[str]]) -> FieldSet:
    """Return the set of these paths, each a sequence of path elements."""
    out: FieldSet = EMPTY
    for path in paths:
        node: FieldSet = LEAF
        for element in reversed(path):
            node = {element: node}
        out = union(out, node)
    return out


def union(a: FieldSet, b: FieldSet) -> FieldSet:
    """Return the members of either set."""
    if not a or a is b:
        return b
    if not b:
        return a
    checkpoint()
    out = dict(a)
    for element, node in b.items():
        other = a.get(element)
        if other is None or element == SELF:
            out[element] = node
        elif node != other:
            out[element] = _union_nodes(other, node)
    return out


def covers(a: FieldSet, b: FieldSet) -> bool:
    """Whether all members of b are members of a."""
    checkpoint()
    for element, node in b.items():
        other = a.get(element)
        if other is None:
            return False
        if node is not other and node != other:
            if (not node or SELF in node) and other and SELF not in other:
                return False
            if node and not covers(other, node):
                return False
    return True


def _union_nodes(a: FieldSet, b: FieldSet) -> FieldSet:
    if not a or not b:
        whole = a or b
        return whole if SELF in whole else {SELF: LEAF, **whole}
    return join(is_member(a) or is_member(b), union(without_self(a), without_self(b)))


def intersection(a: FieldSet, b: FieldSet) -> FieldSet:
    """Return the members of both sets."""
    checkpoint()
    out: FieldSet = {}
    small, large = (a, b) if len(a) <= len(b) else (b, a)
    for element, node in small.items():
        other = large.get(element)
        if other is None or element == SELF:
            continue
        member = is_member(node) and is_member(other)
        _put(out, element, member, intersection(node, other))
    return out


def difference(a: FieldSet, b: FieldSet) -> FieldSet:
    """Return the members of a that are not members of b; descendants of a member of b stay."""
    if not a or not b:
        return a
    checkpoint()
    out: FieldSet = {}
    for element, node in a.items():
        if element == SELF:
            continue
        other = b.get(element)
        if other is None:
            out[element] = node
        elif node != other:
            # Most nodes are equal, and comparing them is much faster than walking them.
            _put(out, element, is_member(node) and not is_member(other), difference(node, other))
    return out


def recursive_difference(a: FieldSet, b: FieldSet) -> FieldSet:
    """Return the members of a that are neither members of b nor beneath one."""
    if not b:
        return a
    checkpoint()
    out: FieldSet = {}
    for element, node in a.items():
        if element == SELF:
            continue
        other = b.get(element)
        if other is None:
            out[element] = node
        elif not is_member(other):
            _put(out, element, is_member(node), recursive_difference(node, other))
    return out


def _put(out: FieldSet, element: str, member: bool, children: FieldSet) -> None:
    if member or children:
        out[element] = join(member, children)


def contains(fields: FieldSet, path: Sequence[str]) -> bool:
    """Whether the path is a member."""
    node = fields
    for element in path:
        child = node.get(element)
        if child is None:
            return False
        node = child
    return bool(path) and is_member(node)


def leaves(fields: FieldSet) -> Iterator[tuple[str, ...]]:
    """Yield the paths of members without descendants, in the order conflicts are reported."""
    return _leaves(fields, ())


def _leaves(fields: FieldSet, prefix: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    elements = sorted((element for element in fields if element != SELF), key=sort_key)
    for element in elements:
        if not fields[element]:
            yield (*prefix, element)
    for element in elements:
        if fields[element]:
            yield from _leaves(fields[element], (*prefix, element))


def paths(fields: FieldSet) -> Iterator[tuple[str, ...]]:
    """Yield the path of every member."""
    for element, node in fields.items():
        if element != SELF:
            if is_member(node):
                yield (element,)
            yield from ((element, *rest) for rest in paths(node))
