"""Who asks too much of a mailbox is refused late, and holds up nobody else meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from atoll.machinery.meta.names import ROOT
from atoll.virtualworkspaces.edge import allowance
from atoll.virtualworkspaces.edge.allowance import Rate
from harness.servers.in_process.requests import InProcessClient
from harness.servers.in_process.shard import shard_inside

USERS = 'boss-token,boss,u-boss,"system:kcp:admin"\n'
PATH = "/api/v1/namespaces/default/configmaps/a"


async def test_a_refusal_is_held_back_and_others_are_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allowance, "REQUESTS", Rate(0.001, 2.0))
    (tmp_path / "tokens.csv").write_text(USERS)
    async with shard_inside(tmp_path, tokens=str(tmp_path / "tokens.csv")) as shard:
        pipeline = shard.app.pipeline()
        direct = InProcessClient(pipeline, ROOT, "boss-token")
        inside = InProcessClient(pipeline, ROOT, "boss-token", "/services/mailbox")
        assert (await inside.send("GET", PATH))[0] == 404, "there is no mailbox, which is found behind the rate"
        refused = asyncio.create_task(inside.send("GET", PATH))
        await asyncio.sleep(0)
        assert (await direct.send("GET", "/version"))[0] == 200
        assert not refused.done(), "it is held back"
        assert (await refused)[0] == 429
