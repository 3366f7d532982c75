"""A controller's batch above a limit is Forbidden, not lost to another writer: nothing else would bring it back."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll.machinery.apiserver.call.errors import OverLimit
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import encode
from atoll.machinery.meta.types import CONFIG_MAPS, NAMESPACES, RESOURCE_QUOTAS
from atoll.machinery.storage.contract import Put
from harness.servers.in_process.minimal_shard import Cell, cell


async def a_namespace_of_one(here: Cell) -> None:
    """A namespace that may hold one ConfigMap."""
    for type, namespace, name in ((NAMESPACES, "", "n"), (RESOURCE_QUOTAS, "n", "q")):
        value, hole = encode({"metadata": {"name": name}, "spec": {"hard": {"count/configmaps": "1"}}})
        await here.store.submit([Put(ObjectKey(type, "old", namespace, name), value, hole, 0)])


async def test_a_batch_above_a_quota_is_forbidden_and_lands_nothing(tmp_path: Path) -> None:
    async with cell(tmp_path) as here:
        await here.cluster("old")
        await a_namespace_of_one(here)
        for submit in ("submit", "try_submit"):
            batch = here.loopback.batch()
            for name in ("a", "b"):
                target = Target(here.kind(CONFIG_MAPS), "old", "n", name)
                batch.create(target, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
            with pytest.raises(OverLimit, match='configmaps "b" is forbidden: exceeded quota: q, '):
                await getattr(batch, submit)()
        with here.store.snapshot() as snapshot:
            assert snapshot.get(ObjectKey(CONFIG_MAPS, "old", "n", "a")) is None
