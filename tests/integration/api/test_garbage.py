"""A request that is answered is freed at once, with its body: nothing of it waits for the garbage collector."""

from __future__ import annotations

from pathlib import Path

from atoll.machinery.apiserver.request import Request
from harness.clients.tenants import token_file
from harness.garbage import left_over
from harness.servers.in_process.requests import InProcessClient
from harness.servers.in_process.shard import shard_inside

MAPS = "/api/v1/namespaces/default/configmaps"


async def test_requests_leave_no_cycles(tmp_path: Path) -> None:
    _, tokens = token_file(tmp_path)
    async with shard_inside(tmp_path, tokens=tokens) as shard:
        admin = InProcessClient(shard.app.pipeline(), "root", "master-token")
        patch = "application/merge-patch+json"
        with left_over() as found:
            assert (await admin.send("POST", MAPS, {"metadata": {"name": "a"}, "data": {"k": "1"}}))[0] == 201
            assert (await admin.send("GET", f"{MAPS}/a"))[0] == 200
            assert (await admin.send("PATCH", f"{MAPS}/a", {"data": {"k": "2"}}, patch))[0] == 200
            assert (await admin.send("DELETE", f"{MAPS}/a"))[0] == 200
        assert not [each for each in found if isinstance(each, Request)]
