"""The reference of validators: a shard's log, its replay, and the table that must equal it.

`read` takes both from the LMDB file through the store's own read side, while the shard is stopped or beside it. The
rest is pure, so that validators can be tested on logs made by hand.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from pathlib import Path

import msgspec
from google_crc32c import value as crc32c

from atoll.machinery.meta.cached_property import cached_property
from atoll.machinery.meta.objects import HOLE_SIZE
from atoll.machinery.storage.contract import LogEntry, Operation
from atoll.machinery.storage.environment.databases import Environment
from atoll.machinery.storage.environment.opening import open_for_reading
from atoll.machinery.storage.maintenance.fsck import fsck
from atoll.machinery.storage.options import StoreOptions
from atoll.machinery.storage.published_log import PublishedLog
from atoll.machinery.storage.reader import StoreReader
from fault.recorder.history import Key, Scope

RESOURCE = "configmaps"
_MARK = b'"resourceVersion":"%016d"'
_PAGE = 2000


class Image(msgspec.Struct, frozen=True):
    """The fields of an object that the model needs."""

    uid: str
    tag: str
    data: dict[str, str]
    labels: dict[str, str]


class Entry(msgspec.Struct, frozen=True):
    """One entry of the log: `value` as a watch sends it, its image, the revisions that it states as predecessors."""

    revision: int
    operation: str
    key: Key
    value: bytes
    image: Image
    previous: int
    previous_of_type: int = 0

    @property
    def checksum(self) -> int:
        return int(crc32c(self.value))


class Expected(msgspec.Struct, frozen=True):
    """One event that a watch must show."""

    type: str
    revision: int
    key: Key
    checksum: int


class Log:
    """The entries of the traffic's resource, in order, with the queries of validators."""

    def __init__(self, entries: list[Entry], everything: list[int] | None = None) -> None:
        self.entries = entries
        #: Revisions of all entries, other resources included.
        self.revisions = everything if everything is not None else [entry.revision for entry in entries]

    @cached_property
    def by_revision(self) -> dict[int, Entry]:
        return {entry.revision: entry for entry in self.entries}

    @cached_property
    def by_tag(self) -> dict[str, list[Entry]]:
        found: dict[str, list[Entry]] = defaultdict(list)
        for entry in self.entries:
            if entry.operation != "DELETED":
                found[entry.image.tag].append(entry)
        return found

    @cached_property
    def by_key(self) -> dict[Key, list[Entry]]:
        found: dict[Key, list[Entry]] = defaultdict(list)
        for entry in self.entries:
            found[entry.key].append(entry)
        return found

    @cached_property
    def _sequences(self) -> frozenset[int]:
        return frozenset(self.revisions)

    def holds(self, revision: int) -> bool:
        """Whether an entry has this revision, of any resource."""
        return revision in self._sequences

    def splits_a_commit(self, revision: int) -> bool:
        """Whether a revision is inside one transaction: the revisions of one are consecutive numbers."""
        return revision in self._sequences and revision + 1 in self._sequences

    def at(self, key: Key, revision: int) -> Entry | None:
        """The object of a key at a revision; None if there was none."""
        entries = self.by_key.get(key, [])
        index = bisect_right(entries, revision, key=lambda entry: entry.revision)
        found = entries[index - 1] if index else None
        return None if found is None or found.operation == "DELETED" else found

    def state(self, scope: Scope, revision: int) -> list[Expected]:
        """The objects of a scope at a revision, as ADDED events, in no particular order."""
        found = []
        for key in self.by_key:
            entry = self.at(key, revision) if covers(scope, key) else None
            if entry is not None and selects(scope, entry.image):
                found.append(Expected("ADDED", entry.revision, key, entry.checksum))
        return found

    def events(self, scope: Scope, above: int, upto: int) -> list[Expected]:
        """The events that a watch of a scope sends between two revisions (the upper one included), in order."""
        first = bisect_right(self.entries, above, key=lambda entry: entry.revision)
        last = bisect_right(self.entries, upto, key=lambda entry: entry.revision)
        found = (self._event(scope, entry) for entry in self.entries[first:last] if covers(scope, entry.key))
        return [event for event in found if event is not None]

    def _event(self, scope: Scope, entry: Entry) -> Expected | None:
        before = self.by_revision.get(entry.previous)
        was = before is not None and selects(scope, before.image)
        stands = entry.operation != "DELETED" and selects(scope, entry.image)
        if not was and not stands:
            return None
        if not stands and before is not None and entry.operation != "DELETED":
            # It left the selector: the last selected state is sent, with the revision of the change.
            left = respliced(before.value, before.revision, entry.revision)
            return Expected("DELETED", entry.revision, entry.key, crc32c(left))
        type = ("MODIFIED" if was else "ADDED") if stands else "DELETED"
        return Expected(type, entry.revision, entry.key, entry.checksum)


def respliced(value: bytes, old: int, new: int) -> bytes:
    """A record with another revision in it."""
    at = value.index(_MARK % old) + len(_MARK % 0) - HOLE_SIZE - 1
    return value[:at] + b"%016d" % new + value[at + HOLE_SIZE :]


def covers(scope: Scope, key: Key) -> bool:
    """Whether a key is in a scope's clusters, namespaces and names."""
    if scope.cluster not in {"*", key.cluster} or scope.namespace not in {"", key.namespace}:
        return False
    return scope.name in {"", key.name}


def selects(scope: Scope, image: Image) -> bool:
    """Whether a scope's label selector takes an object."""
    return scope.label is None or image.labels.get(scope.label[0]) == scope.label[1]


# --- reading it from a store ------------------------------------------------------------------------------


class Stored(msgspec.Struct):
    """The content of a store's file: `table` and `replayed` map raw keys to (revision, checksum)."""

    log: Log
    entries: list[tuple[int, int]]
    table: dict[str, tuple[int, int]]
    replayed: dict[str, tuple[int, int]]
    problems: list[str]
    logged: list[LogEntry] = []


class _Meta(msgspec.Struct):
    uid: str = ""
    labels: dict[str, str] = {}


class _Object(msgspec.Struct):
    metadata: _Meta
    data: dict[str, str] = {}


_decode = msgspec.json.Decoder(_Object).decode


def read(options: StoreOptions) -> Stored:
    """Read a whole store: fsck, the log, its replay, and the table of objects."""
    problems = [f"{problem.where} {problem.key}: {problem.what}" for problem in fsck(options)]
    environment = open_for_reading(options)
    try:
        side = StoreReader(options, environment, lambda *_event, **_facts: None, lambda: 0)
        logged = _tail(side)
        return Stored(
            log=Log([_entry(entry) for entry in logged if _counts(entry)], [entry.revision for entry in logged]),
            entries=[(entry.revision, crc32c(entry.value)) for entry in logged],
            table=_table(environment, side),
            replayed=replay(logged),
            problems=problems,
            logged=logged,
        )
    finally:
        environment.close()


def _tail(side: StoreReader) -> list[LogEntry]:
    found: list[LogEntry] = []
    while page := side.tail(found[-1].revision if found else 0, _PAGE):
        found.extend(page)
    return found


def replay(entries: list[LogEntry]) -> dict[str, tuple[int, int]]:
    """The table that results from the entries."""
    table: dict[str, tuple[int, int]] = {}
    for entry in entries:
        where = str(entry.key)
        if entry.operation is Operation.DELETED:
            table.pop(where)
        else:
            table[where] = (entry.revision, crc32c(entry.value))
    return table


def _table(environment: Environment, side: StoreReader) -> dict[str, tuple[int, int]]:
    log = PublishedLog(side)  # type: ignore[arg-type]  # its reading half is all that is used
    found: dict[str, tuple[int, int]] = {}
    for type in log.types():
        for entry in log.standing(type, None, 1 << 30):
            found[str(entry.key)] = (entry.revision, crc32c(entry.value))
    return found


def _counts(entry: LogEntry) -> bool:
    return entry.key.type.resource == RESOURCE and not entry.sealed


def _entry(entry: LogEntry) -> Entry:
    value = entry.value
    if entry.operation is Operation.DELETED:
        # A watch shows the last state with the revision of the deletion in it.
        value = respliced(value, entry.previous, entry.revision)
    obj = _decode(value)
    image = Image(obj.metadata.uid, obj.data.get("tag", ""), obj.data, obj.metadata.labels)
    key = Key(entry.key.cluster, entry.key.namespace, entry.key.name)
    operation = entry.operation.name
    return Entry(entry.revision, operation, key, value, image, entry.previous, entry.previous_of_type)


def shard_store(root: Path) -> StoreOptions:
    """Options of the store below a shard's root directory."""
    from atoll.shard.config import ShardConfig
    from atoll.standalone.runner import store_options

    return store_options(ShardConfig(root_directory=str(root), allow_any_filesystem=True))
