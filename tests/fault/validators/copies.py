"""Promises about copies: what an edge cluster had in turn is what its workspace had in turn, some of it left out.

Both logs are recorded by the stores themselves. A tag is written once, so each state of a copy is one of the source's.
"""

from __future__ import annotations

from collections.abc import Iterable

from fault.model.log import Entry
from fault.validators.violation import Phantom, Stalled, Unordered, WrittenAgain

#: What an object that is not there is in a sequence of tags.
ABSENT = ""
#: A copy is written with its content and once more with what the syncer notes at it.
WRITES = 2


def states(entries: Iterable[Entry]) -> list[str]:
    """The tags that an object had in turn, ABSENT first and where it was deleted. Writes of one tag count once."""
    found = [ABSENT]
    for entry in entries:
        tag = ABSENT if entry.operation == "DELETED" else entry.image.tag
        if tag != found[-1]:
            found.append(tag)
    return found


def copy_follows(source: list[Entry], copy: list[Entry]) -> None:
    """Each state of a copy is one that the source had later than the state before it; the last one is the source's.

    So nothing is taken away that was wanted all the time, nothing that was deleted comes back, and no value goes back.
    """
    had, at = states(source), 0
    for tag in states(copy)[1:]:
        if tag not in had:
            raise Phantom(f"nobody wrote {tag!r}: {had}")
        if tag not in had[at + 1 :]:
            raise Unordered(f"{tag!r} after {had[at]!r} of {had}: {states(copy)}")
        at = had.index(tag, at + 1)
    if states(copy)[-1] != had[-1]:
        raise Stalled(f"{states(copy)[-1]!r} where the workspace has {had[-1]!r}")


def writes_are_few(copy: list[Entry]) -> None:
    """No content is written more often than WRITES says."""
    counts: dict[str, int] = {}
    for entry in copy:
        if entry.operation != "DELETED":
            counts[entry.image.tag] = counts.get(entry.image.tag, 0) + 1
    often = {tag: count for tag, count in counts.items() if count > WRITES}
    if often:
        raise WrittenAgain(f"written more often than {WRITES} times: {often}")
