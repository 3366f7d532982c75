"""Promises to a subscriber: it has the log byte for byte, or got a RESYNC and has reread the state since."""

from __future__ import annotations

from fault.model.log import Log
from fault.recorder.history import Scope
from fault.traffic.streamlog import CONTROL, StreamMessage, matches
from fault.traffic.subscriber import Round
from fault.validators.violation import StreamDiffers

_EVERYWHERE = Scope("*")


def subscriber_has_the_truth(
    received: list[Round], filters: tuple[str, ...], logged: list[StreamMessage], log: Log, scope: Scope = _EVERYWHERE
) -> None:
    """Each round is the log from where it began, without a gap; the last goes to the log's end. Rereads are of a
    scope."""
    wanted = [one for one in logged if matches(filters, one.subject)]
    for number, one in enumerate(received):
        expected = [each for each in wanted if each.revision > one.revision]
        if number + 1 < len(received):
            expected = expected[: len(one.events)]
        # The shard may have written on after its log was read.
        events = [each for each in one.events if each.revision <= logged[-1].revision]
        _same(events, expected, f"round {number} after {one.gap or 'the start'}")
        if one.gap and one.state != _state(log, scope, one.revision):
            raise StreamDiffers(f"round {number}: the reread at {one.revision} is not the state")


def _state(log: Log, scope: Scope, revision: int) -> dict[str, int]:
    """Objects of the traffic's resource in a scope."""
    found = log.state(scope, revision)
    return {f"{one.key.cluster}/{one.key.namespace}/{one.key.name}": one.revision for one in found}


def stream_is_the_log(held: list[StreamMessage], logged: list[StreamMessage]) -> int:
    """Check that the stream equals the log, without RESYNC and FENCE; return the number of RESYNC."""
    _same([one for one in held if one.subject != CONTROL and one.revision <= logged[-1].revision], logged, "stream")
    return sum(one.operation == "RESYNC" for one in held)


def _same(events: list[StreamMessage], expected: list[StreamMessage], what: str) -> None:
    if events == expected:
        return
    for index, (one, other) in enumerate(zip(events, expected, strict=False)):
        if one != other:
            raise StreamDiffers(f"{what}: event {index} is {one}, the log says {other}")
    raise StreamDiffers(f"{what}: {len(events)} events, the log says {len(expected)}")
