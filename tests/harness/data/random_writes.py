"""Random writes of objects of many kinds, and the state that they lead to."""

from __future__ import annotations

import random
from collections.abc import Iterable

from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.types import EVENTS, LOGICAL_CLUSTERS, RESOURCE_QUOTAS
from atoll.machinery.storage.lmdb_store import LmdbStore
from harness.data.stores import delete, key, put

SECRETS = ResourceType("", "secrets")
#: The value of each object that there is.
State = dict[ObjectKey, bytes]


def _owned(name: str, random: random.Random) -> dict[str, object]:
    return {
        "ownerReferences": [{"uid": f"u{random.randrange(3)}"}] if random.random() < 0.3 else None,
        "labels": {"claimed.internal.apis.kcp.io/x": name} if random.random() < 0.3 else None,
        "finalizers": ["f"] if random.random() < 0.2 else None,
    }


async def write_randomly(store: LmdbStore, state: State, random: random.Random) -> None:
    """One random write of one of many kinds; `state` follows."""
    where = random.choice(
        [
            key(f"o{random.randrange(6)}"),
            key(f"o{random.randrange(3)}", cluster="other"),
            key(f"e{random.randrange(3)}", type=EVENTS),
            key(f"s{random.randrange(3)}", type=SECRETS),
            key("q", type=RESOURCE_QUOTAS),
            ObjectKey(LOGICAL_CLUSTERS, "other", "", "cluster"),
        ]
    )
    with store.snapshot() as snapshot:
        revision = snapshot.revision_of(where)
    if revision and random.random() < 0.3:
        await store.submit([delete(where, revision)])
        state.pop(where)
        return
    more: dict[str, object] = {}
    if where.type == LOGICAL_CLUSTERS:
        more["status"] = {"phase": random.choice(("Ready", "Initializing"))}
    if where.type == RESOURCE_QUOTAS:
        more["spec"] = {"hard": {"count/configmaps": "50"}}
    value = put(where, expected=revision, data=str(random.random()), metadata=_owned(where.name, random), **more)
    await store.submit([value])
    with store.snapshot() as snapshot:
        found = snapshot.get(where)
    assert found is not None
    state[where] = bytes(found.value)


def state_of(store: LmdbStore, keys: Iterable[ObjectKey]) -> State:
    """The state of these objects in a store."""
    with store.snapshot() as snapshot:
        found = {each: snapshot.get(each) for each in keys}
    return {each: bytes(record.value) for each, record in found.items() if record is not None}
