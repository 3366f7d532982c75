"""Named errors: a validator raises exactly one, so that tests can name the violation of a planted fault."""

from __future__ import annotations


class Violation(AssertionError):
    """A broken promise."""


# --- durability


class StoreDamaged(Violation):
    """The store is inconsistent."""


class ReplayDiffers(Violation):
    """Replaying the log does not give the objects."""


class HistoryRewritten(Violation):
    """An entry of the log was changed or removed."""


class RevisionReused(Violation):
    """Two writes have one revision, or revisions do not rise."""


class LostWrite(Violation):
    """An acknowledged write is not in the log as it was sent."""


class HalfApplied(Violation):
    """A write of unknown outcome is in the log in part, or more than once."""


class Phantom(Violation):
    """The log has a change that no client wrote, or that was rejected."""


class TornSubmit(Violation):
    """Some writes of one submit are in the log, others are not."""


# --- order


class OutOfOrder(Violation):
    """A write that ended before another began has the higher revision."""


class BrokenPrecondition(Violation):
    """A conditional write was acknowledged although its condition did not hold."""


class LostUpdate(Violation):
    """A patch was applied to something else than what stood before it."""


class StaleRead(Violation):
    """A read does not show a write that had been acknowledged before it began, or shows what never stood."""


# --- watch


class Unordered(Violation):
    """A revision came after a higher one."""


class Duplicate(Violation):
    """An event came twice."""


class Torn(Violation):
    """A revision to resume from is inside a transaction."""


class Missed(Violation):
    """An event between two received ones is missing."""


class NotResumed(Violation):
    """A resumed watch did not begin right after the given revision."""


class EarlyBookmark(Violation):
    """A bookmark states a revision before whose events are complete."""


class Stalled(Violation):
    """Writes have ended, and a watch or a subscriber does not reach the end."""


class Unfiltered(Violation):
    """An event is outside the requested scope."""


class Unfaithful(Violation):
    """An event or a state differs from the log."""


# --- copies


class WrittenAgain(Violation):
    """A copy was written anew although it was as it should be."""


# --- others


class NotFenced(Violation):
    """Two processes write one store."""


class WrongAnswer(Violation):
    """Damaged bytes were served as if they were sound."""


class StreamDiffers(Violation):
    """A subscriber's state is neither the log nor a reread after a RESYNC."""


class VoidRun(Violation):
    """Too little traffic for a result."""
