"""Power cuts at random moments: whatever the disk kept of unsynced sectors, the store opens and lacks nothing acked.

The same check must fail for stores that sync less than the product does.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from atoll.machinery.storage.environment.opening import open_for_reading
from fault.faults.powercut import Disk, Recorded, events, record
from fault.mutants import VARIABLE
from fault.scenarios.images import Phase, submits, violations_of
from fault.traffic.transactions import SHORT_LOG, UNSAFE, options
from harness.seeds import replay_command, seed_of_run

SUBMITS, FEW, GATE, LONG, TEETH = 100, 50, 200, 2000, 60
_THIS = "tests/fault/scenarios/test_power_cuts.py"


def violations(
    directory: Path, seed: int, count: int, phase: Phase = Phase.SUBMITS, **environment: str
) -> dict[int, str]:
    """Record a store at work and validate so many images of it."""
    trace = record(directory, seed, SUBMITS, **environment)
    return violations_of(trace, directory / "image", count, seed, phase)


def assert_none(found: dict[int, str], seed: int) -> None:
    assert not found, f"{len(found)} images, first {next(iter(found.items()))}\n  {replay_command(seed, _THIS)}"


def test_the_recorder_sees_what_a_commit_is_made_of(tmp_path: Path) -> None:
    recorded = events(record(tmp_path, 1, 20))
    kinds = Counter(one.kind for one in recorded)
    begun, acked = submits(recorded)
    assert acked == set(range(20)) == set(begun)
    assert min(kinds["W"], kinds["S"], kinds["Y"]) >= 10, kinds
    disk = Disk()
    for one in recorded:
        disk.take(one)
    assert not disk.pending
    file = (tmp_path / "work" / "store" / "data.mdb").read_bytes()
    assert bytes(disk.durable) == file[: len(disk.durable)], "what was recorded is not what was written"


def test_a_cut_keeps_what_was_synced_and_any_part_of_the_rest() -> None:
    import random

    disk = Disk()
    for one in (Recorded("W", 0, b"a" * 1024), Recorded("S", 0, b""), Recorded("W", 512, b"b" * 1024)):
        disk.take(one)
    cuts = {disk.cut(random.Random(number)) for number in range(200)}
    a, b, hole = b"a" * 512, b"b" * 512, bytes(512)
    assert cuts >= {a + a, a + b, a + a + b, a + b + b}
    assert all(cut.startswith(a) and hole not in cut for cut in cuts)


def test_power_cuts_lose_nothing(tmp_path: Path) -> None:
    seed = seed_of_run(31)
    assert_none(violations(tmp_path, seed, FEW), seed)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_two_thousand_power_cuts_lose_nothing(tmp_path: Path) -> None:
    seed = seed_of_run(32)
    for number in range(4):
        directory = tmp_path / str(number)
        directory.mkdir()
        assert_none(violations(directory, seed + number, LONG // 4), seed)


@pytest.mark.long
def test_power_cuts_while_the_store_is_made_leave_one_that_opens(tmp_path: Path) -> None:
    seed = seed_of_run(35)
    assert_none(violations(tmp_path, seed, GATE, Phase.CREATION), seed)


@pytest.mark.long
def test_power_cuts_while_the_log_is_compacted_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SHORT_LOG, "1")
    seed = seed_of_run(36)
    assert_none(violations(tmp_path, seed, GATE, Phase.COMPACTION), seed)
    environment = open_for_reading(options(tmp_path / "work" / "store"))
    with environment.reading() as txn:
        assert environment.compacted(txn) > 0
    environment.close()


@pytest.mark.long
def test_a_compacted_store_that_syncs_less_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SHORT_LOG, "1")
    found = violations(tmp_path, seed_of_run(37), TEETH, Phase.COMPACTION, **{UNSAFE: "sync"})
    assert len(found) > TEETH // 10, found


@pytest.mark.long
@pytest.mark.parametrize("promise", ["sync", "metasync"])
def test_a_store_that_syncs_less_is_found(tmp_path: Path, promise: str) -> None:
    found = violations(tmp_path, seed_of_run(33), TEETH, Phase.SUBMITS, **{UNSAFE: promise})
    assert len(found) > TEETH // 10, found


@pytest.mark.long
def test_submits_that_are_committed_in_parts_are_found(tmp_path: Path) -> None:
    """The planted bug `split_batch`."""
    found = violations(tmp_path, seed_of_run(34), TEETH, Phase.SUBMITS, **{VARIABLE: "split_batch"})
    assert any("TornSubmit" in said for said in found.values()), found
