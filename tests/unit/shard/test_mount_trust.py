"""The authorities by which a shard trusts the servers of mounts."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from atoll.machinery.process import tls
from harness.servers.in_process.shard import shard_inside


async def test_those_of_the_system_are_read_for_the_first_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[ssl.SSLContext] = []

    def note(context: ssl.SSLContext) -> None:
        read.append(context)

    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", note)
    tls._public.cache_clear()

    async with shard_inside(tmp_path) as shard:
        shard.app.pipeline()
        assert not read

        mounts = shard.app._mounts()
        assert mounts is not None
        assert mounts._forwarder() is mounts._forwarder()
        assert len(read) == 1
    tls._public.cache_clear()
