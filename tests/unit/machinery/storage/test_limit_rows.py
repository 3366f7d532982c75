"""Rows of limits: of a file that an older version wrote, and of the shard's setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.types import CONFIG_MAPS, LOGICAL_CLUSTERS, RESOURCE_QUOTAS
from atoll.machinery.storage.contract import GuardFailed, Store
from atoll.machinery.storage.encoding import keys
from atoll.machinery.storage.encoding.rows import pack_limits
from atoll.machinery.storage.limits import Limit
from atoll.machinery.storage.lmdb_store import open_store
from atoll.machinery.storage.maintenance.fsck import fsck
from harness.data.stores import create, key, put, store_options

LIMIT_OF_NINE = {"core.kcp.io/max-total-objects": "9"}


async def test_the_quotas_of_an_older_file_count_from_its_first_start(tmp_path: Path) -> None:
    options = store_options(tmp_path / "store")
    store = open_store(options)
    await create(store, "a")
    await store.submit([put(key("q", type=RESOURCE_QUOTAS), spec={"hard": {"count/configmaps": "3"}})])
    environment = store._environment
    assert environment.limits is not None
    with environment.env.begin(write=True) as txn:
        txn.drop(environment.limits.limits, delete=False)
        txn.drop(environment.limits.totals, delete=False)
        txn.delete(b"limits", db=environment.meta)
    await store.close()
    assert {problem.what for problem in fsck(options)} == {"row is missing"}
    store = open_store(options)
    await create(store, "b")
    with store.snapshot() as snapshot:
        assert snapshot.limits(CONFIG_MAPS, "root", "default") == [Limit("q", "count/configmaps", 3, 2)]
    await store.close()
    assert fsck(options) == []


async def test_quotas_of_a_file_whose_rows_were_numbers_alone_count_what_objects_use(tmp_path: Path) -> None:
    options = store_options(tmp_path / "store")
    store = open_store(options)
    pods = ResourceType("", "pods", "a" * 64)
    resources = {"requests": {"cpu": "2"}}
    await store.submit([put(key("p", type=pods), spec={"containers": [{"name": "c", "resources": resources}]})])
    await store.submit(
        [put(ObjectKey(LOGICAL_CLUSTERS, "root", "", "cluster"), metadata={"annotations": LIMIT_OF_NINE})]
    )
    await store.submit([put(key("q", type=RESOURCE_QUOTAS), spec={"hard": {"cpu": "3", "pods": "3"}})])
    environment = store._environment
    assert environment.limits is not None
    with environment.env.begin(write=True) as txn:
        row_key = keys.limit_key("root", "default", ("", "pods"), "q")
        txn.put(row_key, pack_limits((Limit("q", "pods", 3, 1),)), db=environment.limits.limits)
        environment.put_meta(txn, "limits", True)
    await store.close()
    store = open_store(options)
    with store.snapshot() as snapshot:
        assert snapshot.limits(pods, "root", "default") == [Limit("q", "cpu", 3, 2), Limit("q", "pods", 3, 1)]
        assert (snapshot.total("root").used, snapshot.total("root").hard) == (3, 9)
    await store.close()
    assert fsck(options) == []


async def held(store: Store, cluster: str) -> int:
    """How many objects a Ready cluster takes before it refuses one; at most five."""
    await store.submit([put(ObjectKey(LOGICAL_CLUSTERS, cluster, "", "cluster"), status={"phase": "Ready"})])
    for number in range(1, 5):
        try:
            await store.submit([put(key(f"c{number}", cluster=cluster))])
        except GuardFailed:
            return number
    return 5


@pytest.mark.parametrize(("cluster", "count"), [("2gq1h7", 3), ("root", 5), ("system:admin", 5)])
async def test_the_setting_limits_every_cluster_but_root_and_the_systems_own(
    tmp_path: Path, cluster: str, count: int
) -> None:
    options = store_options(tmp_path / "store", total_object_limit=3)
    store = open_store(options)
    assert await held(store, cluster) == count
    with store.snapshot() as snapshot:
        assert snapshot.total(cluster).used == count
        assert snapshot.total(cluster).hard == (3 if count == 3 else 0)
    await store.close()
    assert fsck(options) == []
