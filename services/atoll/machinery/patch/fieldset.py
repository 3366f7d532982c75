"""Sets of fields, as managedFields carries them (FieldsV1), and their algebra.

typed and compare make them, update and apply combine them, managers writes them. A set *is* its wire form: a
trie of dictionaries keyed by path elements, where a node belongs to the set when it is empty or holds `.`.
So reading and writing cost nothing, at one price, the invariant of this module: sets are never modified once
made, every function returns a new one and shares what it can; no node is there without a member beneath it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NoReturn, TypeAlias

from atoll.machinery.meta.objects import Object
from atoll.machinery.patch.path_elements import canonical, order

FieldSet: TypeAlias = "dict[str, FieldSet]"

SELF = "."


class _Nothing(dict[str, "FieldSet"]):
    """The one empty node, in every set of the process: writing to it must fail, not change all of them."""

    def _refuse(self, *args: object, **kwargs: object) -> NoReturn:
        raise TypeError("field sets are never modified")

    __setitem__ = update = setdefault = __ior__ = _refuse


EMPTY: FieldSet = _Nothing()
#: A node that is a member and has nothing beneath. The same object as an empty set, told apart by its place.
LEAF: FieldSet = EMPTY


class InvalidFieldSet(ValueError):
    """JSON that is no FieldsV1."""


def parse(fields: object) -> FieldSet:
    """A set from FieldsV1 of a client, brought to canonical form. Raises InvalidFieldSet or InvalidPathElement."""
    if not isinstance(fields, dict):
        raise InvalidFieldSet("FieldsV1 must be an object")
    try:
        node = _parse(fields)
    except RecursionError:
        raise InvalidFieldSet("FieldsV1 is nested too deeply") from None
    return without_self(node)


def _parse(fields: Object) -> FieldSet:
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
    """Whether a node itself (not only what is beneath it) belongs to the set."""
    return not node or SELF in node


def join(member: bool, children: FieldSet) -> FieldSet:
    """A node from its own membership and its children; empty when it is neither, which callers must drop."""
    if not member or not children:
        return without_self(children)
    return children if SELF in children else {SELF: LEAF, **children}


def without_self(node: FieldSet) -> FieldSet:
    """The children of a node, as a set."""
    if SELF not in node:
        return node
    return {element: child for element, child in node.items() if element != SELF}


def from_paths(paths: Iterable[Sequence[str]]) -> FieldSet:
    """The set of these paths, each a sequence of path elements."""
    out: FieldSet = EMPTY
    for path in paths:
        node: FieldSet = LEAF
        for element in reversed(path):
            node = {element: node}
        out = union(out, node)
    return out


def union(a: FieldSet, b: FieldSet) -> FieldSet:
    """Members of either."""
    if not a or a is b:
        return b
    if not b:
        return a
    out = dict(a)
    for element, node in b.items():
        mine = a.get(element)
        if mine is None or element == SELF:
            out[element] = node
        else:
            out[element] = _union_nodes(mine, node)
    return out


def _union_nodes(a: FieldSet, b: FieldSet) -> FieldSet:
    return join(is_member(a) or is_member(b), union(without_self(a), without_self(b)))


def intersection(a: FieldSet, b: FieldSet) -> FieldSet:
    """Members of both."""
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
    """Members of a that are not members of b; what lies beneath a member of b stays."""
    if not b:
        return a
    out: FieldSet = {}
    for element, node in a.items():
        if element == SELF:
            continue
        other = b.get(element)
        if other is None:
            out[element] = node
        elif node != other:
            # Equal nodes, the most frequent ones, are compared much faster than walked.
            _put(out, element, is_member(node) and not is_member(other), difference(node, other))
    return out


def recursive_difference(a: FieldSet, b: FieldSet) -> FieldSet:
    """Members of a that are neither members of b nor beneath one."""
    if not b:
        return a
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
        found = node.get(element)
        if found is None:
            return False
        node = found
    return bool(path) and is_member(node)


def leaves(fields: FieldSet) -> Iterator[tuple[str, ...]]:
    """Paths of members with no member beneath them, in the order conflicts are told."""
    return _leaves(fields, ())


def _leaves(fields: FieldSet, prefix: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    elements = sorted((element for element in fields if element != SELF), key=order)
    for element in elements:
        if not fields[element]:
            yield (*prefix, element)
    for element in elements:
        if fields[element]:
            yield from _leaves(fields[element], (*prefix, element))


def paths(fields: FieldSet) -> Iterator[tuple[str, ...]]:
    """Every member's path; for tests and diagnosis."""
    for element, node in fields.items():
        if element != SELF:
            if is_member(node):
                yield (element,)
            yield from ((element, *rest) for rest in paths(node))
