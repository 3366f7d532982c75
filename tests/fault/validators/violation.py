"""Named errors: a validator raises exactly one, so that a planted fault can be said to be found for what it is."""

from __future__ import annotations


class Violation(AssertionError):
    """A promise that was not kept."""


# --- durability


class StoreDamaged(Violation):
    """The store does not agree with itself."""


class ReplayDiffers(Violation):
    """Replaying the log does not give the objects."""


class HistoryRewritten(Violation):
    """An entry that was in the log is another one now, or gone."""


class RevisionReused(Violation):
    """Two writes have one revision, or revisions do not rise."""


class LostWrite(Violation):
    """An acknowledged write is not in the log as it was sent."""


class HalfApplied(Violation):
    """A write of unknown outcome is in the log in part, or more than once."""


class Phantom(Violation):
    """The log holds what nobody wrote, or what was refused."""


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
    """A revision to go on from lies inside a transaction."""


class Missed(Violation):
    """An event between two that came did not come."""


class NotResumed(Violation):
    """A resumed watch did not begin right behind the revision it was given."""


class EarlyBookmark(Violation):
    """A bookmark says that nothing up to it is missing, and something is."""


class Stalled(Violation):
    """Nothing is written any more, and a watch or a subscriber does not come to the end."""


class Unfiltered(Violation):
    """An event lies outside of what was asked for."""


class Unfaithful(Violation):
    """An event or a state is not what the log holds."""


# --- others


class NotFenced(Violation):
    """Two processes write one store."""


class WrongAnswer(Violation):
    """Damaged bytes were served as if they were sound."""


class StreamDiffers(Violation):
    """What a subscriber holds is neither the log nor reread after a RESYNC."""


class VoidRun(Violation):
    """Too little traffic for the run to say anything."""
