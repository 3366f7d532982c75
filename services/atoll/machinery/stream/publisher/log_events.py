"""The events of a shard's log: its entries, its tombstones, and its control events.

The stream writers make their events here and nowhere else. Invariant: a payload is the stored record with only the
digits of its revision replaced, and the checksum is the one that the store's writer computed.
"""

from __future__ import annotations

from google_crc32c import value as crc32c

from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import HOLE_SIZE, splice
from atoll.machinery.stream import subjects
from atoll.machinery.stream.events import NO_HOLE, Event, Operation, Phase, checksummed
from atoll.machinery.stream.publisher.log_source import LogIdentity, SourceEntry

_MARK = b'"resourceVersion":"%016d"'
_LEAD_SIZE = len(b'"resourceVersion":"')
_OPERATIONS = {operation.value: operation for operation in Operation}


def find_hole(value: bytes, crc: int, *revisions: int) -> int:
    """Return where a stored value holds its revision, proven by the checksum; NO_HOLE for a damaged value."""
    for revision in revisions:
        mark = _MARK % revision
        at = value.find(mark)
        while at >= 0:
            if crc32c(checksummed(value, at + _LEAD_SIZE)) == crc:
                return at + _LEAD_SIZE
            at = value.find(mark, at + 1)
    return NO_HOLE


def from_entry(kind: str, source: LogIdentity, entry: SourceEntry) -> Event:
    """The event of a log entry. A record that fails its checksum keeps its bytes and its checksum: the event
    is then not `intact`, which its publisher reports and its consumers repair."""
    hole, payload = NO_HOLE, entry.value
    if not entry.sealed:
        hole = find_hole(payload, entry.crc, entry.revision, entry.previous, 0)
        if hole != NO_HOLE and payload[hole : hole + HOLE_SIZE] != b"%016d" % entry.revision:
            payload = splice(payload, hole, entry.revision)
    return Event(
        kind=kind,
        operation=_OPERATIONS[entry.operation],
        shard=source.shard,
        shard_uid=source.shard_uid,
        lineage=source.lineage,
        epoch=source.epoch,
        revision=entry.revision,
        previous=entry.previous_of_type if kind == subjects.CHANGES else 0,
        key=entry.key,
        payload=payload,
        sealed=entry.sealed,
        hole=hole,
        crc=entry.crc,
    )


def tombstone(source: LogIdentity, key: ObjectKey, revision: int) -> Event:
    """The state stream's word that an object is no longer replicated. It has no body: its last state is
    gone."""
    return _bare(subjects.STATE, Operation.DELETED, source, revision, key=key)


def control(kind: str, operation: Operation, source: LogIdentity, revision: int, phase: Phase = Phase.NONE) -> Event:
    """A RESYNC or a FENCE."""
    return _bare(kind, operation, source, revision, phase=phase)


def _bare(
    kind: str,
    operation: Operation,
    source: LogIdentity,
    revision: int,
    *,
    key: ObjectKey | None = None,
    phase: Phase = Phase.NONE,
) -> Event:
    return Event(
        kind, operation, source.shard, source.shard_uid, source.lineage, source.epoch, revision, key=key, phase=phase
    )
