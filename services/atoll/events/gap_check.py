"""The checks of a consumer of changes, event by event, without I/O.

`reader` passes it each event in stream order. Invariant: an event is applied only if everything before it on its
subject was applied, or lies at or below the revision at which the consumer began.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Sequence

from atoll.machinery.stream.consumer.gaps import Gap
from atoll.machinery.stream.events import Event, Operation

_MAX_SUBJECTS = 200_000


class EventAction(enum.Enum):
    """What to do with an event."""

    APPLY = 1
    DROP = 2


class GapCheck:
    """The last revision of each subject, above a floor at or below which every change was applied.

    A `floor` of None is unknown: the first event of a subject then passes unchecked. The subjects seen least recently
    are forgotten, and the floor rises to cover them.
    """

    def __init__(self, floor: int | None, lineage: str = "") -> None:
        self._floor = floor
        self.lineage = lineage
        self._seen: OrderedDict[str, int] = OrderedDict()

    def check(self, subject: str, event: Event) -> EventAction | Gap:
        """Return whether to apply the event or to drop it as a duplicate, or the gap it reveals."""
        if self.lineage and event.lineage != self.lineage:
            return Gap.LINEAGE
        self.lineage = event.lineage
        if event.operation is Operation.RESYNC:
            return Gap.RESYNC
        if event.operation is Operation.FENCE:
            return EventAction.DROP
        return self._check_change(subject, event)

    def _check_change(self, subject: str, event: Event) -> EventAction | Gap:
        last = self._seen.get(subject, self._floor)
        if last is not None and event.revision <= last:
            return EventAction.DROP
        if last is not None and event.previous > last:
            return Gap.MISSING
        if not self._is_intact(event):
            return Gap.DAMAGED
        self._remember(subject, event.revision)
        return EventAction.APPLY

    def _is_intact(self, event: Event) -> bool:
        return event.intact

    def _remember(self, subject: str, revision: int) -> None:
        self._seen[subject] = revision
        self._seen.move_to_end(subject)
        if len(self._seen) > _MAX_SUBJECTS:
            _, forgotten = self._seen.popitem(last=False)
            self._floor = max(self._floor or 0, forgotten)


class HintCheck(GapCheck):
    """The checks of events without payloads, whose checksum and signature nobody can verify.

    Each counts, whatever revision it claims, so that a forged one hides no other. `chained`: a subject's events name
    the one before; without it, the caller sees by sequences that none is missing.
    """

    def __init__(self, floor: int | None, lineage: str = "", *, chained: bool = True) -> None:
        super().__init__(floor, lineage)
        self._chained = chained

    def _check_change(self, subject: str, event: Event) -> EventAction | Gap:
        if not self._chained:
            return EventAction.APPLY
        last = self._seen.get(subject, self._floor)
        if last is not None and event.previous > last:
            return Gap.MISSING
        self._remember(subject, max(event.revision, last or 0))
        return EventAction.APPLY


class SubscriptionCheck(GapCheck):
    """The checks of a subscription, whose consumer goes on where the subscriber was.

    What was applied before it began is not known: the first event of a subject may follow any that was committed by
    then (`began`, a revision). Events without payload (`full` false) have no checksum to look at.
    """

    def __init__(self, began: int, lineage: str, *, full: bool) -> None:
        super().__init__(None, lineage)
        self._began, self._full = began, full

    def listed(self, subjects: Sequence[str], revision: int) -> None:
        """All that these subjects had up to a revision was read from the API."""
        self._began = max(self._began, revision)
        for subject in subjects:
            self._remember(subject, max(revision, self._seen.get(subject, 0)))

    def _check_change(self, subject: str, event: Event) -> EventAction | Gap:
        if subject not in self._seen and event.previous > self._began:
            return Gap.MISSING
        return super()._check_change(subject, event)

    def _is_intact(self, event: Event) -> bool:
        return event.intact if self._full else True
