"""One event as a third party receives it, and the position to resume from.

`reader` makes both. Invariant: a position covers its own event and every earlier one of the subscription.
"""

from __future__ import annotations

import msgspec

from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import Object

RESYNC = "RESYNC"


class Event(msgspec.Struct, frozen=True):
    """One change of one object, or a RESYNC.

    `operation` is ADDED, MODIFIED, DELETED, MOVED or RESYNC. `revision` is the object's resourceVersion after the
    change; of a deletion, that of the deletion. `payload` is the object's JSON (of a deletion, its last state), or
    ciphertext if `sealed`. `position` is opaque text.

    RESYNC: changes are missing, for the `reason` given. It has no `key`. List the objects, drop those that the list
    lacks, and go on: all changes after its `revision` follow.

    Of a subscription: `payload` is empty unless it is full; `before` is the object before the change, where asked for
    and known. A RESYNC has the `keys` of all objects that are there (None: they could not be listed), and what changed
    of them follows; drop all others.
    """

    operation: str
    revision: int
    position: str
    key: ObjectKey | None = None
    payload: bytes = b""
    sealed: bool = False
    previous: int = 0
    reason: str = ""
    before: bytes = b""
    keys: frozenset[ObjectKey] | None = None

    @property
    def object_before(self) -> Object | None:
        """The decoded object before the change; None where it is not known."""
        return _decoded(self.before)

    @property
    def object(self) -> Object | None:
        """The decoded object; None for a RESYNC and for a sealed object."""
        return None if self.sealed else _decoded(self.payload)

    def __str__(self) -> str:
        if self.key is None:
            return f"{self.operation} {self.revision} ({self.reason})"
        name = "/".join(part for part in (self.key.cluster, self.key.namespace, self.key.name) if part)
        return f"{self.operation} {self.key.type.group_resource} {name} {self.revision}"


def _decoded(data: bytes) -> Object | None:
    if not data:
        return None
    decoded: Object = msgspec.json.decode(data)
    return decoded


class Position(msgspec.Struct, frozen=True):
    """How far a consumer is in one stream, created at `created`.

    Every change of the subscription up to `revision` was delivered; 0 if the revision is unknown. The message at
    `sequence` carries revision `written`; 0 if that is unknown.
    """

    created: str
    lineage: str
    sequence: int
    revision: int
    written: int

    def encode(self) -> str:
        """The position as text."""
        return msgspec.json.encode(self).decode()


def decode_position(text: str) -> Position:
    """Parse the text of a position. Raises ValueError if it is not one."""
    try:
        return msgspec.json.decode(text, type=Position)
    except msgspec.DecodeError as error:
        raise ValueError(f"not a position of an event: {text!r}") from error
