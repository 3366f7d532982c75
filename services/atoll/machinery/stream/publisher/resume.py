"""Where a stream writer goes on: a pure decision from its cursor, the tip of the stream and the log's floor.

A writer asks at its start and whenever the server refused its expected sequence. The stream itself says what was
published; the cursor only covers what the stream cannot say (entries that need no message, messages that aged out).
Invariant: after the plan is followed, each log entry is in the stream or behind a RESYNC.
"""

from __future__ import annotations

import msgspec

from atoll.machinery.stream.events import Event, Phase
from atoll.machinery.stream.publisher.log_source import LogIdentity

#: How far the clocks of two writers may differ.
_CLOCK_STEP_S = 300


class StreamCursor(msgspec.Struct, frozen=True):
    """A writer's stored progress. All entries up to `revision` were handled; the message at `sequence` carries revision
    `written`; `created` is the creation time of the stream, `lineage` the log's, `filling` the stream's (0: the
    first)."""

    revision: int
    sequence: int
    written: int
    created: str
    lineage: str
    filling: int = 0
    #: The id of the key that signed; empty in a cursor of a version without signatures.
    key: str = ""
    #: The policy under which the state stream was filled.
    policy: str = ""


class StreamTip(msgspec.Struct, frozen=True):
    """The end of a stream: its last sequence, and the last genuine message that can be read with its sequence."""

    created: str
    last_sequence: int
    event: Event | None = None
    sequence: int = 0
    foreign: bool = False  # the end holds only messages that this shard did not sign


class ResumePlan(msgspec.Struct, frozen=True):
    """Go on after revision `after`; `restart`: with a RESYNC first (changes) or by a refill (state); `purge`: drop the
    stream's messages before that."""

    after: int
    restart: bool = False
    reason: str = ""
    purge: bool = False


class Deposed(Exception):
    """A writer with a higher epoch publishes for this shard. This one must stop serving."""

    def __init__(self, own: int, other: int) -> None:
        super().__init__(f"epoch {own} was superseded by {other}")
        self.own, self.other = own, other


def resume_plan(
    cursor: StreamCursor | None, tip: StreamTip, source: LogIdentity, floor: int, now_s: float
) -> ResumePlan:
    """Raises Deposed if the stream's last message carries a higher epoch than ours, of this very store.

    An epoch is a second since 1970: one ahead of the clock was not given by an open of the store.
    """
    last = tip.event
    if last is not None and last.shard_uid == source.shard_uid and source.epoch < last.epoch <= now_s + _CLOCK_STEP_S:
        raise Deposed(source.epoch, last.epoch)
    plan = _decide(cursor, tip, source, floor)
    if plan.after < floor and not plan.restart:
        return ResumePlan(floor, True, "compaction passed the stream")
    return plan


def has_twin(tip: StreamTip, source: LogIdentity, sent_until: int) -> bool:
    """Return whether another process of our epoch may have written the stream's last message: one behind all that this
    process sent, the sequence `sent_until`. 0 where nothing that it sent was acknowledged."""
    last = tip.event
    if last is None or tip.sequence <= sent_until:
        return False
    return (last.shard_uid, last.epoch) == (source.shard_uid, source.epoch)


def _decide(cursor: StreamCursor | None, tip: StreamTip, source: LogIdentity, floor: int) -> ResumePlan:
    last = tip.event
    if last is not None and (last.lineage, last.shard_uid) != (source.lineage, source.shard_uid):
        return ResumePlan(floor, True, "the stream holds another history")
    if cursor is not None and cursor.lineage != source.lineage:
        return ResumePlan(floor, True, "the log has a new lineage")
    if cursor is not None and cursor.created != tip.created:
        return ResumePlan(floor, True, "the stream was created again")
    if last is not None and last.phase in (Phase.BEGIN, Phase.REFILL):
        return ResumePlan(floor, True, "a refill was interrupted")
    if cursor is None:
        return _without_cursor(tip, floor)
    return _with_cursor(cursor, tip, floor)


def _without_cursor(tip: StreamTip, floor: int) -> ResumePlan:
    if tip.event is not None:
        return ResumePlan(tip.event.revision, reason="no cursor")
    if tip.last_sequence == 0 and floor == 0:
        return ResumePlan(0, reason="first start")
    return ResumePlan(floor, True, "neither a cursor nor a message")


def _with_cursor(cursor: StreamCursor, tip: StreamTip, floor: int) -> ResumePlan:
    last = tip.event
    if last is not None and tip.sequence > cursor.sequence:
        return ResumePlan(last.revision, reason="the cursor was behind")
    if last is not None and tip.sequence == cursor.sequence and last.revision != cursor.written:
        return ResumePlan(last.revision, reason="the stream and the cursor disagree")
    if tip.foreign and tip.last_sequence >= cursor.sequence:
        # Nothing of ours is lost: strangers stand behind it.
        return ResumePlan(cursor.revision, reason="the stream ends in foreign messages")
    if last is None and tip.last_sequence > cursor.sequence:
        return ResumePlan(floor, True, "messages after the cursor are gone")
    if tip.last_sequence >= cursor.sequence:
        return ResumePlan(cursor.revision, reason="cursor and stream agree")
    if last is not None:
        return ResumePlan(last.revision, reason="the stream lost its tail")
    return ResumePlan(floor, True, "the stream lost all it held")
