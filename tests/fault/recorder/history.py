"""The history of clients as values: writes, reads, watches. Traffic records it, validators check it, files replay it.

Moments are microseconds of the wall clock, because revisions are too; both are taken on one machine. A write without a
response is UNKNOWN and kept: the shard's log has its outcome.
"""

from __future__ import annotations

import enum
import time
from pathlib import Path

import msgspec


class Key(msgspec.Struct, frozen=True, order=True):
    """One object of the resource that the traffic writes."""

    cluster: str
    namespace: str
    name: str


class Outcome(enum.StrEnum):
    """The response that the client got."""

    ACKED = "acked"
    REFUSED = "refused"
    UNKNOWN = "unknown"


class Write(msgspec.Struct):
    """One write. `tag` is in the object that it wrote; a delete has the `uid` of the response, if there was one.

    `expected` is the precondition: a revision, 0 for "must not exist", -1 for none. `returned` is 0 until an answer
    came, `revision` the one in the answer (0 where it holds none). `content` is the object's data if the write gives
    all of it; else it gives the tag alone, and `labels` where it gives those.
    """

    verb: str
    key: Key
    tag: str
    called: int
    expected: int = -1
    content: dict[str, str] | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    outcome: Outcome = Outcome.UNKNOWN
    returned: int = 0
    revision: int = 0
    uid: str = ""
    code: int = 0


class Read(msgspec.Struct, frozen=True):
    """One GET that was answered. `revision` 0: there was no such object."""

    key: Key
    called: int
    returned: int
    revision: int
    checksum: int = 0


class Event(msgspec.Struct, frozen=True):
    """One line of a watch. A bookmark has no name; `checksum` is that of the object's bytes as they came."""

    type: str
    revision: int
    key: Key
    checksum: int = 0


class Scope(msgspec.Struct, frozen=True):
    """The scope of a watch; `*` is every cluster, empty selectors select everything."""

    cluster: str
    namespace: str = ""
    label: tuple[str, str] | None = None
    name: str = ""


class Session(msgspec.Struct):
    """One connection of a watcher.

    `start` is the revision it resumed from. With `initial`, it began with the state instead: `state` is that, and
    `start` the revision the state was said to be of (0 if the connection broke before that was said).
    """

    start: int
    initial: bool = False
    state: list[Event] = msgspec.field(default_factory=list)
    events: list[Event] = msgspec.field(default_factory=list)


class Watch(msgspec.Struct):
    """All sessions of one watcher, in order; each resumed where the one before ended unless it is `initial`."""

    name: str
    scope: Scope
    sessions: list[Session] = msgspec.field(default_factory=list)
    #: The number of 410 responses to the revision to resume from.
    refused: int = 0


class History(msgspec.Struct):
    """Everything of one run."""

    seed: int
    writes: list[Write] = msgspec.field(default_factory=list)
    reads: list[Read] = msgspec.field(default_factory=list)
    watches: list[Watch] = msgspec.field(default_factory=list)

    @property
    def acked(self) -> int:
        return sum(write.outcome is Outcome.ACKED for write in self.writes)

    def save(self, path: Path) -> None:
        """Keep it for a replay of the validators."""
        path.write_bytes(msgspec.json.encode(self))


def load(path: Path) -> History:
    """A history that `save` wrote."""
    return msgspec.json.decode(path.read_bytes(), type=History)


def now_us() -> int:
    return time.time_ns() // 1000
