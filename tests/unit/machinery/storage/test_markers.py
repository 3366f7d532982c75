"""A LogicalCluster that names the shard which has its cluster opens no gate, and is open again when it returns."""

from __future__ import annotations

from pathlib import Path

from atoll.machinery.meta import wellknown
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import Object, encode
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.storage.contract import GateState, Put
from atoll.machinery.storage.lmdb_store import open_store
from harness.data.stores import store_options

KEY = ObjectKey(LOGICAL_CLUSTERS, "abcdefgh12345678", "", "cluster")


async def test_a_cluster_that_another_shard_has_is_not_here(tmp_path: Path) -> None:
    store = open_store(store_options(tmp_path / "store"))
    try:
        revision = 0
        for moved_to, expected in (("", GateState.OPEN), ("east", GateState.CLOSED), ("", GateState.OPEN)):
            annotations = {wellknown.MOVED_TO: moved_to} if moved_to else {}
            obj: Object = {"metadata": {"name": "cluster", "annotations": annotations}, "status": {"phase": "Ready"}}
            value, hole = encode(obj)
            revision = (await store.submit([Put(KEY, value, hole, revision)]))[0]
            with store.snapshot() as snapshot:
                gate = snapshot.gate(KEY.cluster)
            assert (gate.state, bool(gate.generation)) == (expected, not moved_to)
    finally:
        await store.close()
