"""The tasks of requests count for whoever pays for the time of the event loop, and run as they are for others."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from atoll.machinery.apiserver.call.preferences import Preferences
from atoll.machinery.apiserver.call.requestinfo import parse
from atoll.machinery.apiserver.request import Request
from atoll.machinery.apiserver.serving.in_flight import InFlight


async def room() -> None:
    """There is room for audit."""


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("is_counted", [True, False])
async def test_each_step_of_a_task_counts(method: str, is_counted: bool) -> None:
    steps: list[float] = []
    exchange = SimpleNamespace(spawn=asyncio.create_task)
    observer = SimpleNamespace(room=room)
    info = parse(method, b"/api/v1/namespaces/default/configmaps")
    request = Request(cast(Any, exchange), cast(Preferences, None), "", info, cast(Any, observer), 0.0)
    request.took = steps.append if is_counted else None
    ended = asyncio.Event()

    async def work() -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        ended.set()

    InFlight().spawn(request, work())
    await asyncio.wait_for(ended.wait(), 5)
    assert len(steps) == (4 if is_counted else 0)
