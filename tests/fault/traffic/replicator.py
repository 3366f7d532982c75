"""Writes replicas as followers of other shards do, without the shards: `python -m fault.traffic.replicator OPTIONS
SEED`.

OPTIONS is a StoreOptions as JSON. It continues after the store's mark, prints the number of each acknowledged batch,
and runs until it is killed. Invariant: batch n of a seed is always the same.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import sys
from collections.abc import Iterator

import msgspec

from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.storage.contract import ClusterRoute, Mark, Mutation, SweepReplicas
from atoll.machinery.storage.lmdb_store import open_store
from atoll.machinery.storage.options import StoreOptions
from harness.data.stores import CONFIGMAPS, gone, replica

MARK = "stream"
ORIGINS, CLUSTERS = ("east", "west"), ("a", "b", "c")
TYPES = (CONFIGMAPS, ResourceType("example.dev", "others"))
#: Objects of one origin at most; a sweep of so many takes several pieces.
NAMES = 400


def batches(seed: int) -> Iterator[list[Mutation]]:
    """Replicas, readings of everything anew and sweeps of what they did not bring; each batch with its mark."""
    dice, revisions = random.Random(seed), itertools.count(1)
    generations = dict.fromkeys(ORIGINS, 1)
    for number in itertools.count(1):
        origin = dice.choice(ORIGINS)
        kind = dice.choices(("some", "anew", "sweep"), (6, 1, 1))[0] if number > 2 else "all"
        if kind == "anew":
            generations[origin] += 1
        size = {"some": dice.randint(1, 60), "anew": 900, "sweep": 0, "all": 2400}[kind]
        made: list[Mutation] = [SweepReplicas(origin, generations[origin])] if kind == "sweep" else []
        for key in dice.sample(_KEYS, size):
            send = gone if kind == "some" and dice.random() < 0.3 else replica
            labels = {"labels": {"paths.internal.atoll.dev/x": str(dice.randint(1, 3))}} if send is replica else {}
            more = {"metadata": labels} if labels else {}
            made.append(send(key, next(revisions), origin=origin, generation=generations[origin], **more))
        if dice.random() < 0.3:
            made.append(ClusterRoute(dice.choice(CLUSTERS), dice.choice(("", *ORIGINS))))
        yield [*made, Mark(MARK, str(number).encode())]


_KEYS = [
    ObjectKey(type, cluster, "", f"n{number}") for type in TYPES for cluster in CLUSTERS for number in range(NAMES)
]


async def replicate(options: StoreOptions, seed: int) -> None:
    """Apply batch after batch."""
    store = open_store(options)
    done = int(store.get_mark(MARK) or b"0")
    for number, batch in enumerate(itertools.islice(batches(seed), done, None), done + 1):
        await store.submit(batch)
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(replicate(msgspec.json.decode(sys.argv[1], type=StoreOptions), int(sys.argv[2])))
