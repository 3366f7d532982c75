"""What a peak took is given back: after a large collection is deleted, the process holds little more than before."""

from __future__ import annotations

import pytest

from harness.clients.api import Api, configmap, eventually
from harness.servers.memory import anonymous_bytes
from harness.servers.shard_process import ShardProcess

MIB = 1 << 20
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
OBJECTS = 40
#: Below what a deletion of 40 MiB leaves with the allocator, which is 50 MiB.
KEPT_BYTES = 24 * MIB
#: Four times the longest time until the next look at the memory and the one after it, in a quiet moment.
LIMIT_S = 60.0


@pytest.mark.long
def test_what_a_deleted_collection_took_is_given_back(shard: ShardProcess, api: Api) -> None:
    for number in range(OBJECTS):
        api.post(CONFIGMAPS, configmap(f"item-{number:03}", {"text": "a line\n" * (MIB // 8)}))
    before = anonymous_bytes(shard.pid)
    api.delete(CONFIGMAPS)
    eventually(lambda: anonymous_bytes(shard.pid) < before + KEPT_BYTES, "freed memory is returned", LIMIT_S)
