"""Which readings of a rewound stream are complete: those that reach what the replica already held."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.types import API_EXPORTS
from atoll.machinery.storage.lmdb_store import open_store
from atoll.machinery.stream.consumer.gaps import Gap
from atoll.machinery.stream.consumer.state_consumer import StateMark
from atoll.machinery.stream.publisher.log_events import from_entry
from atoll.replication.metrics import ReplicationMetrics
from atoll.replication.replica_writer import ReplicaWriter
from atoll.replication.shard_replica import ShardReplica, SourceShard
from harness.data.stores import store_options
from harness.models.shard_log import ShardLog, Source
from harness.servers.in_process.followers import TYPES

HELD = StateMark("then", "a1", 5, 9, 1.0)


@pytest.mark.parametrize(
    ("written", "lineage", "rows"),
    [(8, "a1", 1), (9, "a1", 0), (10, "a1", 0), (8, "b2", 0)],
    ids=["older", "as-old", "newer", "of-another-history"],
)
@pytest.mark.parametrize("restarted", [False, True], ids=["", "restarted"])
async def test_a_rewound_stream_counts_once_it_reaches_the_revision_held(
    tmp_path: Path, written: int, lineage: str, rows: int, restarted: bool
) -> None:
    """Also after a restart in the middle of the reading."""
    store = open_store(store_options(tmp_path / "store"))
    writer = ReplicaWriter(store, "", ReplicationMetrics(CollectorRegistry()))
    writer.types = TYPES
    replica = ShardReplica(writer, SourceShard("east"))
    object_key = ObjectKey(API_EXPORTS, "abcdefgh12345678", "", "e")
    await replica.begin(Gap.NEW)
    await replica.apply([from_entry("state", Source("east"), ShardLog().put(object_key))], None)
    await replica.sweep(HELD)
    await replica.begin(Gap.REWOUND)
    if restarted:
        replica = ShardReplica(writer, SourceShard("east"))
        await replica.begin(Gap.NEW)
    mark = msgspec.structs.replace(HELD, written=written, lineage=lineage)
    with capture_logs() as lines:
        await replica.sweep(mark)
    with store.snapshot() as snapshot:
        row = snapshot.replicas.row_of("east", object_key)
    await store.close()
    assert ((row is not None), replica.mark()) == (bool(rows), None if rows else mark)
    lost = [(line["rows"], line["first"]) for line in lines if line["event"].endswith("restored shard lacks")]
    assert lost == ([(1, ["apiexports.apis.kcp.io abcdefgh12345678|e"])] if lineage != HELD.lineage else [])
