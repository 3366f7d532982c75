"""A write whose commit does not end is answered with a timeout."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.meta.status import Timeout
from atoll.machinery.meta.types import NAMESPACES
from atoll.machinery.process.shared_timeout import SharedTimeout
from harness.servers.in_process.minimal_shard import cell

HOME = "home"


async def test_a_write_whose_commit_hangs_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*_: Sequence[object]) -> asyncio.Future[list[int]]:
        return asyncio.get_running_loop().create_future()

    async with cell(tmp_path) as here:
        await here.cluster(HOME)
        core = replace(here.core, submit_limit=SharedTimeout(0.05))
        with monkeypatch.context() as patched:
            patched.setattr(type(here.store), "queue", hang)
            with pytest.raises(Timeout, match="outcome unknown"):
                target = Target(here.kind(NAMESPACES), HOME, "", "a")
                await Loopback(core, "test").create(target, {"metadata": {"name": "a"}})
