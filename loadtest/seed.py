"""Many objects straight into a store that nothing serves: what would take a client minutes, in seconds.

They are written through the store's own writer, so file and log look as if clients had made them.
"""

from __future__ import annotations

from atoll.machinery.meta import times
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import encode
from atoll.machinery.storage.contract import Put
from atoll.machinery.storage.lmdb_store import LmdbStore
from loadtest.bench import config_map

BATCH = 500
CONFIG_MAPS = ResourceType("", "configmaps")
CLUSTER, NAMESPACE = "root", "default"


async def fill(store: LmdbStore, count: int, name: str = "seed") -> None:
    """Write `count` ConfigMaps of 1 KB into the namespace `default` of `root`."""
    now = times.now()
    for begin in range(0, count, BATCH):
        await store.submit([_put(f"{name}-{number:07d}", now) for number in range(begin, min(begin + BATCH, count))])


def _put(name: str, now: str) -> Put:
    obj = config_map(name)
    obj["metadata"] |= {
        "namespace": NAMESPACE,
        "uid": f"00000000-0000-4000-8000-{hash(name) & 0xFFFFFFFFFFFF:012x}",
        "creationTimestamp": now,
        "annotations": {"kcp.io/cluster": CLUSTER},
    }
    value, hole = encode(obj)
    return Put(ObjectKey(CONFIG_MAPS, CLUSTER, NAMESPACE, name), value, hole, 0)
