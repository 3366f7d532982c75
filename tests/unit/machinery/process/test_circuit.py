"""Circuit breakers: when they open, which calls may try during a pause, and what closes them again."""

from __future__ import annotations

from atoll.machinery.process.backoff import Backoff
from atoll.machinery.process.circuit import Circuit, CircuitPolicy, Circuits

FAILURES, PAUSE_S = 5, 10.0
STEADY = CircuitPolicy(Backoff(PAUSE_S, PAUSE_S, 1.0, 1.0), FAILURES)
DOUBLING = CircuitPolicy(Backoff(1.0, 4.0, 1.0, 1.0))


def test_one_call_tries_after_the_pause() -> None:
    circuits: Circuits[str] = Circuits(STEADY, 10)
    for _ in range(FAILURES):
        assert circuits.enter("peer", 0.0)
        circuits.failed("peer", 0.0, "dead")
    assert not circuits.enter("peer", PAUSE_S - 1)
    assert circuits.reason("peer") == "dead"
    assert circuits.enter("peer", PAUSE_S), "the one that tries"
    assert not circuits.enter("peer", PAUSE_S), "others wait for its result"
    assert circuits.is_open("peer", PAUSE_S)
    circuits.abandoned("peer")
    assert circuits.enter("peer", PAUSE_S)
    circuits.succeeded("peer")
    assert circuits.enter("peer", 0.0)
    assert circuits.reason("peer") == ""


def test_pauses_double_up_to_the_longest_and_begin_again_after_a_success() -> None:
    circuit, now = Circuit(DOUBLING), 0.0
    for pause in (1.0, 2.0, 4.0, 4.0):
        assert circuit.enter(now)
        circuit.failed(now)
        assert not circuit.enter(now + pause - 0.5)
        now += pause
    assert circuit.enter(now)
    circuit.succeeded()
    assert (circuit.has_failed, circuit.is_open(now)) == (False, False)
    circuit.failed(now)
    assert circuit.enter(now + 1.0)


def test_calls_that_were_under_way_when_it_opened_do_not_lengthen_the_pause() -> None:
    circuit = Circuit(DOUBLING)
    for _ in range(3):
        assert circuit.enter(0.0)
    for _ in range(3):
        circuit.failed(0.0)
    assert circuit.enter(1.0)


def test_circuits_are_kept_for_so_many_peers_that_failed_last() -> None:
    circuits: Circuits[int] = Circuits(DOUBLING, 2)
    for peer in range(3):
        circuits.failed(peer, 0.0)
    assert [circuits.is_open(peer, 0.0) for peer in range(3)] == [False, True, True]


def test_overlapping_probes_begin_one_a_pause_whether_the_last_one_ended_or_not() -> None:
    circuit = Circuit(CircuitPolicy(Backoff(1.0, 1.0, 1.0, 1.0), overlapping=True))
    circuit.failed(0.0, "silent")
    assert not circuit.enter(0.5)
    assert circuit.enter(1.0)
    assert not circuit.enter(1.5)
    assert circuit.enter(2.0), "the first probe is still under way"
    # Of the first probe, in the pause of the second.
    circuit.failed(2.5)
    assert circuit.enter(3.0)
    circuit.succeeded()
    assert circuit.enter(3.0)
