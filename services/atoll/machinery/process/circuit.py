"""Circuit breakers: stop calling a peer that fails, and let one call at a time find out whether it is back.

The egress guard keeps one for each webhook, the shard clients of controllers one for each shard, the proxy one for each
backend; they differ in `CircuitPolicy` alone. Invariant: while a circuit is open, at most one call begins in each
pause, and unless probes may overlap at most one is under way.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

import msgspec

from atoll.machinery.process.backoff import Backoff

K = TypeVar("K", bound=Hashable)


class CircuitPolicy(msgspec.Struct, frozen=True):
    """When a circuit opens, and how long it stays so."""

    #: The pause after each failure from the one that opened the circuit.
    pause: Backoff
    #: Failures in a row that open it.
    failures: int = 1
    #: A probe starts after each pause, also while an earlier one has no answer yet.
    overlapping: bool = False


class Circuit:
    """The circuit of one peer. Times are seconds of one monotonic clock.

    Call `enter` before a call, then exactly one of `succeeded`, `failed` and `abandoned`.
    """

    __slots__ = ("_failures", "_policy", "_probing", "_retry_at_s", "reason")

    def __init__(self, policy: CircuitPolicy) -> None:
        self._policy = policy
        self._failures = 0
        self._probing = False
        self._retry_at_s = 0.0
        #: The last failure; empty before the first.
        self.reason = ""

    @property
    def has_failed(self) -> bool:
        """The last call failed."""
        return self._failures > 0

    @property
    def is_tripped(self) -> bool:
        """So many calls in a row failed that the next one is a probe."""
        return self._failures >= self._policy.failures

    def is_open(self, now_s: float) -> bool:
        """Whether `enter` would refuse a call."""
        return self.is_tripped and (self._probing or now_s < self._retry_at_s)

    def enter(self, now_s: float) -> bool:
        """Whether a call may be made. After the pause one call may: it is the probe."""
        if not self.is_tripped:
            return True
        if self.is_open(now_s):
            return False
        if self._policy.overlapping:
            self._retry_at_s = now_s + self._policy.pause.delay_s(0)
        self._probing = not self._policy.overlapping
        return True

    def succeeded(self) -> None:
        self._failures, self._probing, self._retry_at_s, self.reason = 0, False, 0.0, ""

    def failed(self, now_s: float, reason: str = "") -> None:
        """Count a failure. Calls that began before the circuit opened and fail during its pause are not counted."""
        if self.is_tripped and now_s < self._retry_at_s:
            return
        self._failures += 1
        self._probing = False
        self.reason = reason
        if self.is_tripped:
            self._retry_at_s = now_s + self._policy.pause.delay_s(self._failures - self._policy.failures)

    def abandoned(self) -> None:
        """The call ended without telling anything about the peer: another may be the probe."""
        self._probing = False


class Circuits(Generic[K]):
    """Circuits by peer, kept only for peers whose last call failed; at most `limit`, the oldest are dropped first."""

    def __init__(self, policy: CircuitPolicy, limit: int) -> None:
        self._policy, self._limit = policy, limit
        self._circuits: dict[K, Circuit] = {}

    def is_open(self, key: K, now_s: float) -> bool:
        """Whether `enter` would refuse a call."""
        circuit = self._circuits.get(key)
        return circuit is not None and circuit.is_open(now_s)

    def enter(self, key: K, now_s: float) -> bool:
        """Whether a call may be made now."""
        circuit = self._circuits.get(key)
        return circuit is None or circuit.enter(now_s)

    def reason(self, key: K) -> str:
        """The last failure of a peer; empty if its last call did not fail."""
        circuit = self._circuits.get(key)
        return circuit.reason if circuit is not None else ""

    def succeeded(self, key: K) -> None:
        self._circuits.pop(key, None)

    def failed(self, key: K, now_s: float, reason: str = "") -> None:
        """Count a failure of a peer."""
        circuit = self._circuits.pop(key, None) or Circuit(self._policy)
        circuit.failed(now_s, reason)
        self._circuits[key] = circuit
        if len(self._circuits) > self._limit:
            del self._circuits[next(iter(self._circuits))]

    def abandoned(self, key: K) -> None:
        """A call to a peer ended without telling anything about it."""
        circuit = self._circuits.get(key)
        if circuit is not None:
            circuit.abandoned()
