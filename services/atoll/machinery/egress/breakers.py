"""When a peer that fails is left alone: the circuits of all calls of one process, by URL, trust and deadline.

Conversions leave a failing peer alone for ten seconds. An admission webhook holds up every write that it acts on, so a
call is tried again within a second, also while the last one has no answer, and only what says that nobody answers
opens its circuit: failed connections and timeouts. Invariant: a call that an open circuit refuses fails with the words
of the last failure.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

import msgspec

from atoll.machinery.egress.errors import EgressError
from atoll.machinery.process.backoff import Backoff
from atoll.machinery.process.circuit import CircuitPolicy, Circuits

MAX_CIRCUITS = 2048
#: After this many failures in a row calls fail at once, for this long.
FAILURES, PAUSE_S, SHORT_PAUSE_S = 5, 10.0, 0.5


class Breaking(msgspec.Struct, frozen=True):
    """What opens a circuit (results of `EgressError`), and for how long."""

    policy: CircuitPolicy
    results: frozenset[str]


#: A wrong status is an answer, never a failure of the peer.
PATIENT = Breaking(
    CircuitPolicy(Backoff(PAUSE_S, PAUSE_S, 1.0, 1.0), FAILURES),
    frozenset({"unreachable", "unresolved", "untrusted", "timeout", "broken"}),
)
EAGER = Breaking(
    CircuitPolicy(Backoff(SHORT_PAUSE_S, SHORT_PAUSE_S, 1.0, 1.0), FAILURES, overlapping=True),
    frozenset({"unreachable", "unresolved", "timeout"}),
)


class Breakers:
    """The circuits of one process."""

    def __init__(self) -> None:
        self._circuits = {each: Circuits[object](each.policy, MAX_CIRCUITS) for each in (PATIENT, EAGER)}

    def guard(self, key: object, breaking: Breaking) -> _Guard:
        """Return the context of one call: it fails at once while the circuit is open, and records how the call ends."""
        return _Guard(self._circuits[breaking], key, breaking)


class _Guard:
    """The context of one call."""

    __slots__ = ("_breaking", "_circuits", "_key")

    def __init__(self, circuits: Circuits[object], key: object, breaking: Breaking) -> None:
        self._circuits, self._key, self._breaking = circuits, key, breaking

    def __enter__(self) -> None:
        if not self._circuits.enter(self._key, asyncio.get_running_loop().time()):
            raise EgressError("open", self._circuits.reason(self._key))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._circuits.succeeded(self._key)
        elif isinstance(error, EgressError) and error.result in self._breaking.results:
            self._circuits.failed(self._key, asyncio.get_running_loop().time(), str(error))
        else:
            self._circuits.abandoned(self._key)
