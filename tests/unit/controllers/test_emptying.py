"""A large cluster is emptied in submits of a bounded size, so that other writes run in between."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from atoll.controllers.workspaces.logicalcluster_deletion import BATCH, LogicalClusterDeletion
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import encode
from atoll.machinery.meta.types import CONFIG_MAPS, LOGICAL_CLUSTERS, SECRETS, SERVICE_ACCOUNTS
from atoll.machinery.storage.contract import Delete, GuardFailed, Put
from harness.servers.in_process.minimal_shard import cell

COUNT = 300
TYPES = [CONFIG_MAPS, SECRETS, SERVICE_ACCOUNTS]


async def test_one_submit_removes_no_more_than_a_batch_of_all_types(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cell(tmp_path) as here:
        await here.cluster("old")
        for type in TYPES:
            names = [f"o{number}" for number in range(COUNT)]
            rows = [(ObjectKey(type, "old", "default", name), *encode({"metadata": {"name": name}})) for name in names]
            await here.store.submit([Put(key, value, hole, 0) for key, value, hole in rows])
        submit, removed = here.store.submit, list[int]()

        async def counted(*args: Any, **options: Any) -> Sequence[int]:
            counts = await submit(*args, **options)
            removed.append(sum(counts))
            return counts

        monkeypatch.setattr(here.store, "submit", counted)
        going = LogicalClusterDeletion(here.loopback, here.kind(LOGICAL_CLUSTERS), here.facts.identities.workspaces)
        remaining = await going._clear("old", TYPES)
        assert remaining.is_empty
        assert sum(removed) == COUNT * len(TYPES)
        assert max(removed) <= BATCH


async def test_what_comes_into_a_cluster_while_its_end_is_planned_is_not_left_behind(tmp_path: Path) -> None:
    async with cell(tmp_path) as here:
        await here.cluster("leaf")
        going = LogicalClusterDeletion(here.loopback, here.kind(LOGICAL_CLUSTERS), here.facts.identities.workspaces)
        free = going._removable("leaf", 30)
        assert free == []
        batch = here.loopback.batch()
        going._remove(batch, "leaf", free)
        late = ObjectKey(CONFIG_MAPS, "leaf", "default", "late")
        value, hole = encode({"metadata": {"name": "late"}})
        [revision] = await here.store.submit([Put(late, value, hole, 0)])
        with pytest.raises(GuardFailed):
            await batch.submit()
        assert here.get(LOGICAL_CLUSTERS, "leaf", "cluster") is not None
        await here.store.submit([Delete(late, revision)])
        again = here.loopback.batch()
        going._remove(again, "leaf", [])
        await again.submit()
        with here.store.snapshot() as snapshot:
            assert snapshot.usage("leaf") == []
