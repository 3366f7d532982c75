"""A store process that writes submits of several objects: `python -m fault.traffic.transactions DIRECTORY SEED COUNT`.

Beside the store lies `submits.acks`: a line before each submit with its tags and what they say, and one when it was
acknowledged. A recorder under the process sees both in their order among the writes. FAULT_UNSAFE takes a promise of
LMDB away (`sync`, `metasync`), FAULT_MUTANT plants a bug; neither is anything the product could be told. With
FAULT_SHORT_LOG the log is compacted between the submits.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from pathlib import Path

import msgspec
from google_crc32c import value as crc32c

from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, encode
from atoll.machinery.meta.types import RESOURCE_QUOTAS
from atoll.machinery.storage.contract import Delete, Mutation, Put
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from atoll.machinery.storage.options import StoreOptions

ACKS, UNSAFE, SHORT_LOG = "submits.acks", "FAULT_UNSAFE", "FAULT_SHORT_LOG"
#: What the log may hold where it is compacted all the while: some of the last submits.
SHORT_LOG_BYTES = 40_000
SUBMITTERS, KEYS = 3, 12
_TYPE = ResourceType("", "configmaps")


class Line(msgspec.Struct, omit_defaults=True):
    """`writes` maps the tags of a submit that begins to checksums of their pads; without, submit `index` is acked.

    `keys` maps the names it writes to their tags, empty for one that it deletes.
    """

    index: int
    writes: dict[str, int] = {}
    keys: dict[str, str] = {}


def options(directory: Path) -> StoreOptions:
    return StoreOptions(
        directory=str(directory),
        allow_any_filesystem=True,
        commit_in_thread=False,
        reserve_bytes=1,
        map_size_bytes=1 << 30,
        log_retention_bytes=SHORT_LOG_BYTES if SHORT_LOG in os.environ else 1 << 30,
    )


class Submitter:
    """Writes submits on keys of its own, each built on what the one before left."""

    def __init__(self, number: int, store: LmdbStore, acks: int, dice: random.Random) -> None:
        self._number, self._store, self._acks, self._dice = number, store, acks, dice
        self._revisions: dict[ObjectKey, int] = {}

    async def submit(self, index: int) -> None:
        mutations: list[Mutation] = []
        said: dict[str, int] = {}
        keys: dict[str, str] = {}
        for part, number in enumerate(self._dice.sample(range(KEYS), self._dice.randint(1, 5))):
            key = ObjectKey(_TYPE, "root", "default", f"cold-{self._number}-{number}")
            known = self._revisions.get(key, 0)
            if known and self._dice.random() < 0.15:
                mutations.append(Delete(key, known))
                keys[key.name] = ""
                continue
            tag, pad = f"{index}.{part}", "x" * self._dice.randrange(100, 9000)
            said[tag], keys[key.name] = crc32c(pad.encode()), tag
            mutations.append(_put(key, known, tag, pad))
        self._say(Line(index, said, keys))
        revisions = await self._store.submit(mutations)
        self._say(Line(index))
        for mutation, revision in zip(mutations, revisions, strict=True):
            assert isinstance(mutation, Put | Delete)
            self._revisions[mutation.key] = revision if isinstance(mutation, Put) else 0

    def _say(self, line: Line) -> None:
        os.write(self._acks, msgspec.json.encode(line) + b"\n")


def _put(key: ObjectKey, expected: int, tag: str, pad: str) -> Put:
    metadata = {"name": key.name, "namespace": key.namespace, "uid": tag}
    obj: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"tag": tag, "pad": pad}}
    value, hole = encode(obj)
    return Put(key, value, hole, expected)


def _quota() -> Put:
    """A quota that counts every object and refuses none: each cut leaves counts that fsck compares."""
    metadata = {"name": "all", "namespace": "default"}
    value, hole = encode({"metadata": metadata, "spec": {"hard": {"count/configmaps": "1M"}}})
    return Put(ObjectKey(RESOURCE_QUOTAS, "root", "default", "all"), value, hole, 0)


async def work(directory: Path, seed: int, count: int) -> None:
    store = open_store(options(directory / "store"))
    await store.submit([_quota()])
    acks = os.open(directory / ACKS, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    dice = random.Random(seed)
    numbers = iter(range(count))

    async def one(submitter: Submitter) -> None:
        for index in numbers:
            await submitter.submit(index)
            if SHORT_LOG in os.environ:
                await store.compact()

    submitters = [Submitter(number, store, acks, random.Random(dice.random())) for number in range(SUBMITTERS)]
    await asyncio.gather(*map(one, submitters))
    os.close(acks)
    await store.close()


def unsafe(promise: str) -> None:
    """Open every environment without one of LMDB's syncs."""
    import lmdb

    opened = lmdb.open
    lmdb.open = lambda *names, **settings: opened(*names, **{**settings, promise: False})  # type: ignore[assignment]


if __name__ == "__main__":
    from fault.mutants import MUTANTS, VARIABLE

    if UNSAFE in os.environ:
        unsafe(os.environ[UNSAFE])
    if VARIABLE in os.environ:
        MUTANTS[os.environ[VARIABLE]]()
    Path(sys.argv[1]).mkdir(exist_ok=True)
    asyncio.run(work(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
