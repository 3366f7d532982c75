"""Rows of a deleted workspace in the store: history, and after compaction none."""

from __future__ import annotations

from pathlib import Path

import lmdb
import pytest

from atoll.machinery.storage.lmdb_store import open_store
from harness.clients.api import Api, configmap, crd, define, eventually, workspace_under
from harness.data.stores import store_options
from harness.servers.shard_process import ShardProcess

pytestmark = pytest.mark.long

WORKSPACES = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
CLUSTER = "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"
HISTORY = {"log", "versions", "clusters"}


def rows_with(directory: Path, name: str) -> dict[str, int]:
    """By database, the number of rows of a closed store with a name in their key or value."""
    found: dict[str, int] = {}
    with lmdb.open(str(directory), readonly=True, lock=False, max_dbs=32, map_size=1 << 40) as env, env.begin() as txn:
        for database in [bytes(key).decode() for key, _ in txn.cursor()]:
            handle = env.open_db(database.encode(), txn=txn, create=False)
            with txn.cursor(handle) as cursor:
                count = sum(name.encode() in key or name.encode() in value for key, value in cursor)
            if count:
                found[database] = count
    return found


@pytest.mark.timeout(120)
async def test_a_deleted_workspace_leaves_history_and_compaction_takes_that(tmp_path: Path) -> None:
    async with ShardProcess(tmp_path) as shard:
        root = Api(shard, "root")
        path = workspace_under(root)
        inside = root.at(path)
        cluster = inside.get(CLUSTER).json["metadata"]["annotations"]["kcp.io/cluster"]
        define(inside, crd("boats"))
        for number in range(20):
            inside.post("/api/v1/namespaces/default/configmaps", configmap(f"c{number}", labels={"a": "b"}))
            inside.post("/api/v1/namespaces/default/secrets", {"metadata": {"name": f"s{number}"}})
        child = workspace_under(root, path)
        below = root.at(child).get(CLUSTER).json["metadata"]["annotations"]["kcp.io/cluster"]
        name = path.rpartition(":")[2]
        root.delete(f"{WORKSPACES}/{name}")
        eventually(lambda: root.send("GET", f"{WORKSPACES}/{name}").code == 404, "the workspace is gone", 60)
    store = shard.root / "store"
    for gone in (cluster, below):
        left = rows_with(store, gone)
        assert set(left) <= HISTORY, left
        assert left["log"] > 0
    options = store_options(store, log_retention_s=1, list_window_s=1, log_retention_bytes=1)
    opened = open_store(options)
    try:
        await opened.compact()
    finally:
        await opened.close()
    for gone in (cluster, below):
        assert rows_with(store, gone) == {}, gone
