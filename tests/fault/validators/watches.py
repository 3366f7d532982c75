"""The promises of a watch, one function and one named error each: etcd's, read for Kubernetes.

Each takes one watcher's sessions and the log. `all_promises` is the list; a scenario runs them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fault.model.log import Expected, Log, covers, selects
from fault.recorder.history import Event, Session, Watch
from fault.validators.violation import (
    Duplicate,
    EarlyBookmark,
    Missed,
    NotResumed,
    Stalled,
    Torn,
    Unfaithful,
    Unfiltered,
    Unordered,
)


def _marks(session: Session) -> list[int]:
    """The revisions without an event of their own from which a client may go on."""
    marks = [event.revision for event in session.events if event.type == "BOOKMARK"]
    return [*marks, session.start] if session.initial and session.start else marks


def _changes(session: Session) -> Iterator[Event]:
    return (event for event in session.events if event.type != "BOOKMARK")


def _expected(event: Event) -> Expected:
    return Expected(event.type, event.revision, event.key, event.checksum)


def ordered(watch: Watch, log: Log) -> None:
    """Within a session revisions never fall, bookmarks included."""
    del log
    for session in watch.sessions:
        last = 0
        for event in session.events:
            if event.revision < last:
                raise Unordered(f"{watch.name}: {event} after {last}")
            last = event.revision


def unique(watch: Watch, log: Log) -> None:
    """A change comes once, also across sessions that resumed from one another."""
    del log
    seen: set[int] = set()
    for session in watch.sessions:
        if session.initial:
            seen.clear()
        for event in _changes(session):
            if event.revision in seen:
                raise Duplicate(f"{watch.name}: {event}")
            seen.add(event.revision)


def atomic(watch: Watch, log: Log) -> None:
    """No revision that a client may go on from lies inside a transaction: of a commit one sees all or nothing."""
    for session in watch.sessions:
        for revision in _marks(session):
            if log.splits_a_commit(revision):
                raise Torn(f"{watch.name}: {revision} stands inside a transaction")


def reliable(watch: Watch, log: Log) -> None:
    """Between the start of a session and the last it showed nothing is left out."""
    for session in watch.sessions:
        if not session.events:
            continue
        came = {event.revision for event in _changes(session)}
        for expected in log.events(watch.scope, session.start, session.events[-1].revision):
            if expected.revision not in came:
                raise Missed(f"{watch.name}: {expected} in a session from {session.start}")


def resumable(watch: Watch, log: Log) -> None:
    """A session goes on right behind the revision it was given: nothing at or below it, and the very next."""
    if watch.refused:
        raise NotResumed(f"{watch.name}: {watch.refused} times the log was said not to go back to what it holds")
    for session in watch.sessions:
        first = next(_changes(session), None)
        if first is None:
            continue
        if first.revision <= session.start:
            raise NotResumed(f"{watch.name}: {first} in a session from {session.start}")
        expected = next(iter(log.events(watch.scope, session.start, first.revision)), None)
        if expected is not None and expected.revision < first.revision:
            raise NotResumed(f"{watch.name}: began with {first}, from {session.start} on {expected} was next")


def caught_up(watch: Watch, log: Log) -> None:
    """With nothing written any more, the last that was shown, or marked, is the end of the scope."""
    if not log.revisions:
        return
    end = max((event.revision for event in log.events(watch.scope, 0, log.revisions[-1])), default=0)
    last = watch.sessions[-1] if watch.sessions else Session(0)
    reached = last.events[-1].revision if last.events else last.start
    if reached < end:
        raise Stalled(f"{watch.name}: came to {reached}, its scope ends at {end}")


def marked(watch: Watch, log: Log) -> None:
    """A bookmark names a revision that is in the log."""
    for session in watch.sessions:
        for revision in _marks(session):
            if revision != (0 if session.initial else session.start) and not log.holds(revision):
                raise EarlyBookmark(f"{watch.name}: nothing was committed at {revision}")


def bookmarkable(watch: Watch, log: Log) -> None:
    """At a bookmark everything up to it was shown before it, and nothing up to it comes after it."""
    for session in watch.sessions:
        mark = session.start if session.initial else 0
        came: set[int] = set()
        since = session.start
        for event in session.events:
            if event.type == "BOOKMARK":
                for expected in log.events(watch.scope, since, event.revision):
                    if expected.revision not in came:
                        raise EarlyBookmark(f"{watch.name}: bookmark {event.revision} before {expected}")
                mark = since = event.revision
            elif event.revision <= mark:
                raise EarlyBookmark(f"{watch.name}: {event} after a bookmark of {mark}")
            came.add(event.revision)


def filtered(watch: Watch, log: Log) -> None:
    """Everything shown lies in what was asked for, or did until just now."""
    for session in watch.sessions:
        for event in (*session.state, *_changes(session)):
            if not covers(watch.scope, event.key):
                raise Unfiltered(f"{watch.name}: {event} outside of {watch.scope}")
            entry = log.by_revision.get(event.revision)
            before = log.by_revision.get(entry.previous) if entry is not None else None
            images = [found.image for found in (entry, before) if found is not None]
            if images and not any(selects(watch.scope, image) for image in images):
                raise Unfiltered(f"{watch.name}: {event} is not selected by {watch.scope}")


def faithful(watch: Watch, log: Log) -> None:
    """What is shown is what the log holds: bytes, kind of change, and the state that a session began with."""
    for session in watch.sessions:
        if session.initial and session.start:
            shown = sorted(map(_sortable, map(_expected, session.state)))
            if shown != sorted(map(_sortable, log.state(watch.scope, session.start))):
                raise Unfaithful(f"{watch.name}: the state at {session.start} is another one")
        for event in _changes(session):
            expected = log.events(watch.scope, event.revision - 1, event.revision)
            if [_expected(event)] != expected:
                raise Unfaithful(f"{watch.name}: {event}, the log says {expected}")


def _sortable(event: Expected) -> tuple[int, str]:
    return event.revision, repr(event)


Promise = Callable[[Watch, Log], None]
ALL_PROMISES: tuple[Promise, ...] = (
    ordered,
    unique,
    atomic,
    resumable,
    marked,
    bookmarkable,
    reliable,
    filtered,
    faithful,
)


def all_promises(watches: list[Watch], log: Log) -> None:
    """Judge every watcher by every promise. Raises the first violation."""
    for watch in watches:
        for promise in ALL_PROMISES:
            promise(watch, log)
