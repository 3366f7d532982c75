"""Byte patterns of stored JSON, which show that an object may have a member or a string before anything is decoded.

Controllers, look-ups and replication search values with them: `pattern in value`. The one encoder of stored bytes
(`objects.encode`) writes no white space, sorts keys and spells a string in one way. Invariant: an object that has what
a pattern stands for always matches (no false negative). A match may be another member of the name, at any depth or
with a quote in its key (an annotation `phase`, a label): decode before a match excludes an object from work. The value
of a sealed log entry matches nothing.
"""

from __future__ import annotations

from atoll.machinery.meta.objects import Object, encode_json


def member(name: str, start: str = "") -> bytes:
    """Return the pattern of a member with this name; `start`: how the JSON of its value starts."""
    return encode_json(name) + b":" + start.encode()


def member_ending(name: str, start: str = "") -> bytes:
    """Return the pattern of a member whose name ends with `name`."""
    return member(name, start)[1:]


def members(values: Object) -> bytes:
    """Return the pattern of these members. Several must be adjacent in key order in the objects that have them."""
    return encode_json(values)[1:-1]


def string(value: str) -> bytes:
    """Return the pattern of this string as a value or a key."""
    return encode_json(value)


def text(part: str) -> bytes:
    """Return the pattern of strings and keys that contain this text."""
    return encode_json(part)[1:-1]


#: An object whose deletion has begun.
DELETION = member("deletionTimestamp")
