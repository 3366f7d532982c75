"""Of mailboxes more are in work at a time than of other keys: each waits for its shard, whatever there is to do."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from atoll.edge.placement_translator.projection import MAX_REQUESTS, Projection
from atoll.edge.placement_translator.statuses import Statuses
from atoll.edge.process import WORKERS, _Part, _Process
from atoll.machinery.control.queue import Requeue, WorkQueue
from harness.waits import until


class Waiting:
    """A controller whose reconciles wait for ever."""

    def __init__(self, name: str) -> None:
        self.name, self.in_work = name, 0
        self.queue: WorkQueue[str] = WorkQueue()

    async def synced(self) -> None:
        return

    async def reconcile(self, key: str) -> Requeue:
        self.in_work += 1
        await asyncio.Event().wait()
        return None


@pytest.mark.parametrize(("name", "at_once"), [(Projection.name, MAX_REQUESTS), (Statuses.name, WORKERS)])
async def test_keys_in_work_at_a_time(name: str, at_once: int, tmp_path: Path) -> None:
    controller, process = Waiting(name), _Process(cast(Any, None), tmp_path, cast(Any, None))
    for number in range(2 * MAX_REQUESTS):
        controller.queue.add(str(number))
    part = _Part(asyncio.Event(), (controller,), list, lambda _, reconcile: reconcile)
    await process._control(controller, part)

    async def is_full() -> bool:
        return controller.in_work == at_once

    await until(is_full, "as many keys are in work as may be")
    # Each worker has had its turns.
    for _ in range(5):
        await asyncio.sleep(0)
    assert controller.in_work == at_once
    assert controller.queue.depth == 2 * MAX_REQUESTS - at_once
    await process._life.close()
