"""When a peer that fails is left alone: the circuits of all calls of one process, by URL, trust and deadline.

Conversions leave a failing peer alone for ten seconds. An admission webhook holds up every write that it acts on, so a
call is tried again within a second, also while the last one has no answer, and only what says that nobody answers
opens its circuit: failed connections and timeouts. Invariant: a call that an open circuit refuses fails with the words
of the last failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

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

    @asynccontextmanager
    async def guard(self, key: object, breaking: Breaking) -> AsyncIterator[None]:
        """Fail at once while the circuit is open, and record how the call in the context ends."""
        circuits, now = self._circuits[breaking], asyncio.get_running_loop().time
        if not circuits.enter(key, now()):
            raise EgressError("open", circuits.reason(key))
        try:
            yield
        except EgressError as error:
            if error.result in breaking.results:
                circuits.failed(key, now(), str(error))
            else:
                circuits.abandoned(key)
            raise
        except BaseException:
            circuits.abandoned(key)
            raise
        circuits.succeeded(key)
