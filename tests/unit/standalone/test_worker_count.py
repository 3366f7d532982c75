"""The number of workers that `--workers auto` starts, and the sentence of `atoll doctor`."""

from __future__ import annotations

import pytest

from atoll.machinery.process import host_resources
from atoll.machinery.process.host_resources import Resources
from atoll.standalone.worker_count import advice, choose, resolve

GIB = 1 << 30
TWO = Resources(2.0, 8 * GIB)


@pytest.mark.parametrize(
    ("cores", "memory_bytes", "shards", "count"),
    [
        (0.5, 8 * GIB, 1, 0),
        (1.0, 8 * GIB, 1, 0),
        (1.9, 8 * GIB, 1, 0),
        (2.0, 8 * GIB, 1, 2),
        (3.5, 8 * GIB, 1, 3),
        (64.0, 64 * GIB, 1, 8),
        (8.0, 2 * GIB, 1, 4),
        (8.0, GIB // 2, 1, 0),
        (8.0, 64 * GIB, 3, 2),
        (2.0, 8 * GIB, 2, 0),
        (8.0, 2 * GIB, 2, 2),
    ],
)
def test_a_worker_a_core_as_far_as_memory_goes(cores: float, memory_bytes: int, shards: int, count: int) -> None:
    assert choose(Resources(cores, memory_bytes), shards) == count


def test_a_given_number_stays_and_auto_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_resources, "usable", lambda: TWO)
    assert [resolve(0), resolve(7), resolve("auto"), resolve("auto", 2)] == [0, 7, 2, 0]


@pytest.mark.parametrize(
    ("resources", "load", "running", "workers", "sentence"),
    [
        (TWO, 0.2, True, False, "2 cores idle, one process: --workers 2 would carry reads"),
        (TWO, 1.2, True, False, "1 core idle, one process: --workers 2 would carry reads"),
        (TWO, 5.0, True, False, "2 cores, 8192 MiB of memory, none idle: the shard of this directory is one process"),
        (TWO, 0.2, True, True, "2 cores, 8192 MiB of memory: the shard of this directory has workers"),
        (TWO, 0.2, False, False, "2 cores, 8192 MiB of memory: --workers auto starts 2 workers"),
        (Resources(1.0, GIB), 0.0, True, False, "1 core, 1024 MiB of memory: one process uses them"),
    ],
)
def test_the_doctor_names_what_would_help(
    resources: Resources, load: float, running: bool, workers: bool, sentence: str
) -> None:
    assert advice(resources, load, is_running=running, has_workers=workers) == sentence
