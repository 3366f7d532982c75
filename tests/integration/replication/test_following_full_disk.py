"""A follower with a full disk: deletions are applied, and other changes once there is space."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from atoll.machinery.meta.names import ROOT, ObjectKey
from atoll.machinery.meta.types import API_EXPORTS
from atoll.machinery.storage.contract import Delete, StoreFull
from atoll.machinery.storage.maintenance.fsck import fsck
from harness.data.stores import create, key, store_options
from harness.servers.in_process.followers import Archipelago, Member
from harness.servers.nats import eventually

NO_ROOM = "store full, replicas wait"


def export(name: str) -> ObjectKey:
    return ObjectKey(API_EXPORTS, ROOT, "", name)


def leave_free(member: Member, reserve_bytes: int) -> None:
    """Set the free space that the store reserves, and check at once."""
    space = member.store.space
    space._options = store_options(Path(member.options.directory), reserve_bytes=reserve_bytes)
    space._measured_at = float("-inf")


async def test_replication_waits_for_room_and_takes_none_from_deletes(tmp_path: Path) -> None:
    async with Archipelago(tmp_path, "root") as sea:
        root, reader = sea.shard("root"), await sea.reader()
        await root.announce("root")
        for name in ("kept", "early"):
            await root.put(export(name))
        [revision] = await create(reader.store, "local")
        await reader.until(lambda view: view.replicas.get(export("kept")) and view.replicas.get(export("early")))
        leave_free(reader, 1 << 60)
        with pytest.raises(StoreFull):
            await create(reader.store, "new")
        await root.delete(export("early"))
        await reader.until(lambda view: view.replicas.get(export("early")) is None)
        with capture_logs() as logs:
            await root.put(export("late"))
            await eventually(lambda: NO_ROOM in [entry["event"] for entry in logs])
        assert reader.replica(export("late")) is None
        assert reader.replica(export("kept")) is not None
        await reader.store.submit([Delete(key("local"), revision)])
        leave_free(reader, 1)
        await reader.until(lambda view: view.replicas.get(export("late")))
        await reader.close()
        assert fsck(reader.options) == []
        del sea.members["proxy-front"]
