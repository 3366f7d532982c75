"""Promises about order: revisions are a total order that agrees with time, conditions and reads.

Every write has the revision that the server gave it, so linearizability needs no search, only a sort.
"""

from __future__ import annotations

from fault.model.log import Log
from fault.recorder.history import History, Key, Outcome, Write
from fault.validators.violation import BrokenPrecondition, LostUpdate, OutOfOrder, StaleRead


def _acked(history: History, log: Log) -> list[tuple[Write, int]]:
    deletes = {entry.image.uid: entry.revision for entry in log.entries if entry.operation == "DELETED"}
    acked = [write for write in history.writes if write.outcome is Outcome.ACKED]
    return [(write, write.revision or deletes.get(write.uid, 0)) for write in acked]


def order_agrees_with_time(history: History, log: Log) -> None:
    """If one write was answered before another was called, its revision is the lower one."""
    acked = [(write, revision) for write, revision in _acked(history, log) if revision]
    by_return = sorted(acked, key=lambda pair: pair[0].returned)
    highest, ended = 0, 0
    for write, revision in sorted(acked, key=lambda pair: pair[0].called):
        while ended < len(by_return) and by_return[ended][0].returned < write.called:
            highest = max(highest, by_return[ended][1])
            ended += 1
        if revision <= highest:
            raise OutOfOrder(f"{write.verb} of {write.key} got {revision} after {highest} had been acknowledged")


def preconditions_held(history: History, log: Log) -> None:
    """An acknowledged conditional write follows exactly the revision that it named."""
    for write, revision in _acked(history, log):
        entry = log.by_revision.get(revision)
        if write.expected < 0 or entry is None:
            continue
        before = log.at(write.key, revision - 1)
        actual = before.revision if before is not None else 0
        if actual != write.expected or entry.previous != write.expected:
            what = f"{write.verb} of {write.key} at {revision}"
            raise BrokenPrecondition(f"{what} expected {write.expected}, was {actual}")


def changes_build_on_what_stood(history: History, log: Log) -> None:
    """A patch or an apply gives a tag and perhaps labels: everything else is as the entry before left it."""
    for write, revision in _acked(history, log):
        entry = log.by_revision.get(revision)
        before = log.at(write.key, revision - 1)
        if entry is None or before is None or write.verb not in {"patch", "apply"}:
            continue
        data, labels = {**before.image.data, "tag": write.tag}, {**before.image.labels, **write.labels}
        if entry.image.data != data or entry.image.labels != labels:
            raise LostUpdate(f"{write.verb} of {write.key} at {revision} was not made from {before.revision}")


def reads_are_fresh(history: History, log: Log) -> None:
    """A read shows the last write acknowledged before it began, or a later one, and bytes that stood."""
    done: dict[Key, list[tuple[int, int]]] = {}
    for write, revision in _acked(history, log):
        done.setdefault(write.key, []).append((write.returned, revision))
    for read in history.reads:
        floor = max((rev for returned, rev in done.get(read.key, []) if returned < read.called), default=0)
        if read.revision:
            entry = log.by_revision.get(read.revision)
            if entry is None or entry.key != read.key or entry.checksum != read.checksum:
                raise StaleRead(f"{read.key} was read at {read.revision}, which never stood so")
            if read.revision < floor:
                raise StaleRead(f"{read.key} was read at {read.revision} after {floor} had been acknowledged")
        elif not _was_absent(log, read.key, floor, read.returned):
            raise StaleRead(f"{read.key} was not there, but it stood from {floor} on")


def _was_absent(log: Log, key: Key, floor: int, until: int) -> bool:
    """Whether the key stood for nothing at some moment from a revision on until (about) another."""
    if log.at(key, floor) is None:
        return True
    entries = log.by_key.get(key, [])
    return any(entry.operation == "DELETED" and floor < entry.revision <= until + 1_000_000 for entry in entries)
