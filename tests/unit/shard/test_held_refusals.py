"""Who asks too much of a mailbox waits, or is refused late, and holds up nobody else meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from atoll.machinery.meta.names import ROOT
from atoll.virtualworkspaces.edge import loop_time
from atoll.virtualworkspaces.edge.loop_time import Turns
from harness.servers.in_process.requests import InProcessClient
from harness.servers.in_process.shard import shard_inside

USERS = 'boss-token,boss,u-boss,"system:kcp:admin"\n'
PATH = "/api/v1/namespaces/default/configmaps/a"


def holds_the_loop(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Have each request of the view count as one that held the loop for so long."""
    monkeypatch.setattr(Turns, "took", lambda self, _, took=Turns.took: took(self, seconds))


@contextlib.asynccontextmanager
async def clients(tmp_path: Path) -> AsyncIterator[tuple[InProcessClient, InProcessClient]]:
    """One user's requests in a shard: to the workspace itself, and to its mailbox view."""
    (tmp_path / "tokens.csv").write_text(USERS)
    async with shard_inside(tmp_path, tokens=str(tmp_path / "tokens.csv")) as shard:
        pipeline = shard.app.pipeline()
        inside = InProcessClient(pipeline, ROOT, "boss-token", "/services/mailbox")
        assert (await inside.send("GET", PATH))[0] == 404, "there is no mailbox, which is found in its turn"
        yield InProcessClient(pipeline, ROOT, "boss-token"), inside


async def test_a_request_waits_for_its_turn_and_others_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with clients(tmp_path) as (direct, inside):
        holds_the_loop(monkeypatch, 0.1)
        assert (await inside.send("GET", PATH))[0] == 404
        waits, began_s = asyncio.create_task(inside.send("GET", PATH)), time.monotonic()
        await asyncio.sleep(0)
        assert (await direct.send("GET", "/version"))[0] == 200
        assert not waits.done(), "it waits"
        assert (await waits)[0] == 404
        assert time.monotonic() - began_s > 0.2


async def test_a_refusal_is_held_back_and_others_are_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with clients(tmp_path) as (direct, inside):
        holds_the_loop(monkeypatch, 2.0)
        assert (await inside.send("GET", PATH))[0] == 404
        monkeypatch.setattr(loop_time, "LONGEST_WAIT_S", 0.0)
        refused = asyncio.create_task(inside.send("GET", PATH))
        await asyncio.sleep(0)
        assert (await direct.send("GET", "/version"))[0] == 200
        assert not refused.done(), "it is held back"
        assert (await refused)[0] == 429
