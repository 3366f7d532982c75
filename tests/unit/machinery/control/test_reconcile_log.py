"""The log of reconciles: one line each, with what it did."""

from __future__ import annotations

import asyncio

from structlog.testing import capture_logs

from atoll.machinery.control.queue import WorkQueue
from atoll.machinery.control.reconcile_log import logged, note
from atoll.machinery.control.worker import work


async def test_a_reconcile_is_one_line_with_what_it_did_and_a_failure_one_of_its_worker() -> None:
    queue: WorkQueue[str] = WorkQueue()
    done, turns = asyncio.Event(), 0

    async def reconcile(key: str) -> None:
        nonlocal turns
        turns += 1
        note(operation="apply")
        if key == "bad" and turns == 1:
            raise ValueError("not yet")
        # What runs beside it belongs to it.
        await asyncio.gather(beside())

    async def beside() -> None:
        note(objects=turns)

    def observe(seconds: float, *, failed: bool) -> None:
        if turns == 3:
            done.set()

    queue.add("bad")
    queue.add("good")
    with capture_logs() as lines:
        worker = asyncio.create_task(work("test", queue, logged("test", reconcile), observe))
        await asyncio.wait_for(done.wait(), 60)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
    assert [(each["event"], each["key"]) for each in lines] == [
        ("reconcile failed", "bad"),
        ("reconcile", "good"),
        ("reconcile", "bad"),
    ]
    said = {name: value for name, value in lines[1].items() if name != "duration_ms"}
    assert said == {
        "event": "reconcile",
        "log_level": "info",
        "controller": "test",
        "key": "good",
        "operation": "apply",
        "objects": 2,
    }
    note(operation="outside")
