"""A large collection is deleted in bounded memory, other requests are served meanwhile, and the answer is a list."""

from __future__ import annotations

from typing import Any

import pytest

from harness.clients.api import Api, configmap
from harness.clients.loop_probe import LoopProbe
from harness.servers.memory import forget_peak, peak_bytes, rss_bytes
from harness.servers.shard_process import ShardProcess

MIB = 1 << 20
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
#: The bound covers the buffered reply, some objects, and the store's mapped pages.
OBJECTS, ALLOWED_BYTES = 60, 160 * MIB
PROMISED_S = 0.1


def fill(api: Api, count: int, size_bytes: int) -> list[str]:
    """Create ConfigMaps of this size; return their names."""
    names = [f"item-{number:03}" for number in range(count)]
    for name in names:
        api.post(CONFIGMAPS, configmap(name, {"text": "a line\n" * (size_bytes // 7)}))
    return names


def names_of(listed: Any) -> list[str]:
    return [name for item in listed["items"] if (name := item["metadata"]["name"]) != "kube-root-ca.crt"]


@pytest.mark.long
def test_a_large_collection_is_deleted_in_bounded_memory(api: Api, shard: ShardProcess) -> None:
    names = fill(api, OBJECTS, MIB)
    before = rss_bytes(shard.pid)
    forget_peak(shard.pid)
    with LoopProbe(api, shard.pid) as probe:
        deleted = api.delete(CONFIGMAPS)
    grown = peak_bytes(shard.pid) - before
    assert deleted.json["kind"] == "ConfigMapList"
    assert names_of(deleted.json) == names
    assert names_of(api.get(CONFIGMAPS).json) == []
    assert probe.worst_s < 4 * PROMISED_S
    assert grown < ALLOWED_BYTES, f"memory peaked {grown // MIB} MiB above what it was"
