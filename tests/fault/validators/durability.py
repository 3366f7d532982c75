"""Promises about writes: acknowledged ones are in the log, unknown ones whole or absent, rejected ones absent."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from fault.model.log import Entry, Log, Stored
from fault.recorder.history import History, Key, Outcome, Write
from fault.validators.violation import (
    HalfApplied,
    HistoryRewritten,
    LostWrite,
    Phantom,
    ReplayDiffers,
    RevisionReused,
    StoreDamaged,
    TornSubmit,
)

#: Objects that the traffic does not write lie beside its own in a workspace.
OWN_PREFIXES = ("hot-", "cold-")


def store_is_sound(stored: Stored) -> None:
    """fsck found nothing."""
    if stored.problems:
        raise StoreDamaged("; ".join(stored.problems[:5]))


def replay_is_the_table(stored: Stored) -> None:
    """The log, replayed from nothing, is the table of objects."""
    if stored.replayed == stored.table:
        return
    keys = stored.replayed.keys() | stored.table.keys()
    wrong = sorted(key for key in keys if stored.replayed.get(key) != stored.table.get(key))
    raise ReplayDiffers(f"{len(wrong)} objects, first {wrong[0]}")


def log_only_grows(before: Stored, after: Stored) -> None:
    """Check that the log at the process's death is a part of the present log."""
    kept = after.entries[: len(before.entries)]
    for old, new in zip(before.entries, kept, strict=False):
        if old != new:
            raise HistoryRewritten(f"entry {old} is {new}")
    if len(kept) < len(before.entries):
        raise HistoryRewritten(f"{len(before.entries) - len(kept)} entries are gone, from {before.entries[len(kept)]}")


def revisions_rise(history: History, stored_revisions: list[int]) -> None:
    """Revisions of the log rise, and no two acknowledged writes got the same."""
    for first, second in pairwise(stored_revisions):
        if second <= first:
            raise RevisionReused(f"{second} follows {first} in the log")
    acked = Counter(write.revision for write in history.writes if write.outcome is Outcome.ACKED and write.revision)
    for revision, count in acked.items():
        if count > 1:
            raise RevisionReused(f"{count} writes were acknowledged with {revision}")


def acknowledged_writes_are_logged(history: History, log: Log) -> None:
    """Each acknowledged write has its entry: of its key, at its revision, with what was sent."""
    deletes = {entry.image.uid: entry for entry in log.entries if entry.operation == "DELETED"}
    for write in history.writes:
        if write.outcome is not Outcome.ACKED:
            continue
        found = deletes.get(write.uid) if write.verb == "delete" else log.by_revision.get(write.revision)
        if found is None:
            raise LostWrite(f"{write.verb} of {write.key} ({write.tag or write.uid}) at {write.revision}")
        if problem := _difference(write, found):
            raise LostWrite(f"{write.verb} of {write.key} ({write.tag}) at {write.revision}: {problem}")


def _difference(write: Write, entry: Entry) -> str:
    if entry.key != write.key:
        return f"the entry is of {entry.key}"
    if write.verb == "delete":
        return ""
    if entry.image.tag != write.tag:
        return f"the entry was written by {entry.image.tag!r}"
    if write.content is not None and entry.image.data != write.content:
        return "the entry holds something else"
    if write.verb == "create" and entry.operation != "ADDED":
        return "it created nothing"
    return "" if b'"resourceVersion":"%016d"' % entry.revision in entry.value else "the object has another revision"


def unknown_writes_are_whole_or_absent(history: History, log: Log) -> None:
    """A write without a response is in the log once, as it was sent, or not at all."""
    for write in history.writes:
        if write.outcome is not Outcome.UNKNOWN or write.verb == "delete":
            continue
        found = log.by_tag.get(write.tag, [])
        if len(found) > 1:
            raise HalfApplied(f"{write.tag} was applied {len(found)} times")
        if found and (problem := _difference(write, found[0])):
            raise HalfApplied(f"{write.verb} of {write.key} ({write.tag}): {problem}")


def nothing_else_is_logged(history: History, log: Log) -> None:
    """Each entry is of a write that was not refused; each delete of one that may have been done."""
    writers = {write.tag: write for write in history.writes if write.verb != "delete"}
    for tag, entries in log.by_tag.items():
        if not entries[0].key.name.startswith(OWN_PREFIXES):
            continue
        write = writers.get(tag)
        if write is None:
            raise Phantom(f"{entries[0].key} at {entries[0].revision} was written by nobody ({tag!r})")
        if write.outcome is Outcome.REFUSED:
            raise Phantom(f"{tag} was refused with {write.code} and is in the log at {entries[0].revision}")
        if len(entries) > 1:
            raise Phantom(f"{tag} is in the log {len(entries)} times")
    _deletes_are_accounted_for(history, log)


def _deletes_are_accounted_for(history: History, log: Log) -> None:
    """Deletes that were heard of name the uid; each other one needs a delete of that key of unknown outcome."""
    heard = {write.uid for write in history.writes if write.verb == "delete" and write.outcome is Outcome.ACKED}
    open_ended: Counter[Key] = Counter(
        write.key for write in history.writes if write.verb == "delete" and write.outcome is Outcome.UNKNOWN
    )
    for entry in log.entries:
        ours = entry.operation == "DELETED" and entry.key.name.startswith(OWN_PREFIXES)
        if not ours or entry.image.uid in heard:
            continue
        open_ended[entry.key] -= 1
        if open_ended[entry.key] < 0:
            raise Phantom(f"{entry.key} was deleted at {entry.revision} by nobody")


def submits_are_whole(groups: list[list[str]], tags: set[str]) -> None:
    """Of each submit (its tags) all writes are there or none. `tags` is what the store holds or held."""
    for group in groups:
        there = [tag for tag in group if tag in tags]
        if there and len(there) < len(group):
            raise TornSubmit(f"of {group} only {there} were written")
