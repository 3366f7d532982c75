"""The checks a consumer makes on what it receives, as plain state without any I/O.

`consumer` feeds it each event of the changes stream. Invariant: an event is passed on only if everything
before it on its subject was, or lies at or below a revision that the application has read by other means.
"""

from __future__ import annotations

import enum
from collections import OrderedDict

from atoll.machinery.stream.events import Event, Operation

_MAX_SUBJECTS = 200_000


class Gap(enum.StrEnum):
    """Why a consumer can no longer go on from what it has."""

    NEW = "there is no mark"
    STREAM = "the stream is not the one of the mark"
    REWOUND = "the stream ends before the mark"
    TRIMMED = "the stream begins behind the mark"
    REWRITTEN = "the message at the mark is another one"
    LINEAGE = "the shard lost acknowledged history"
    RESYNC = "the shard says so"
    MISSING = "an earlier change of the same subject did not arrive"
    SKIPPED = "the stream skipped a sequence"
    DAMAGED = "a payload fails its checksum"
    STALE = "the mark is older than the tombstones"


class Verdict(enum.Enum):
    """What to do with an event."""

    APPLY = 1
    DROP = 2


class GapCheck:
    """The last revision of each subject, above a floor at or below which everything is known to be applied.

    `floor` None means that nothing is known yet: the first event of a subject is then taken as it comes.
    Subjects not seen for long are forgotten, and the floor stands in for them.
    """

    def __init__(self, floor: int | None, lineage: str = "") -> None:
        self._floor = floor
        self.lineage = lineage
        self._seen: OrderedDict[str, int] = OrderedDict()

    def judge(self, subject: str, event: Event) -> Verdict | Gap:
        """Whether to apply an event or drop it as already known, or why neither is right."""
        if self.lineage and event.lineage != self.lineage:
            return Gap.LINEAGE
        self.lineage = event.lineage
        if event.operation is Operation.RESYNC:
            return Gap.RESYNC
        if event.operation is Operation.FENCE:
            return Verdict.DROP
        return self._judge_change(subject, event)

    def _judge_change(self, subject: str, event: Event) -> Verdict | Gap:
        last = self._seen.get(subject, self._floor)
        if last is not None and event.revision <= last:
            return Verdict.DROP
        if last is not None and event.previous > last:
            return Gap.MISSING
        if not event.intact:
            return Gap.DAMAGED
        self._remember(subject, event.revision)
        return Verdict.APPLY

    def _remember(self, subject: str, revision: int) -> None:
        self._seen[subject] = revision
        self._seen.move_to_end(subject)
        if len(self._seen) > _MAX_SUBJECTS:
            _, forgotten = self._seen.popitem(last=False)
            self._floor = max(self._floor or 0, forgotten)
