"""What does it cost to hold 100,000 workspaces of other shards, and how soon does a restarted proxy find one?
What does a shard hold and spend that keeps only those it needs (`loadtest.followed`)?

Each is a Workspace, a LogicalCluster and a route, applied into a fresh store in batches as followers do, with their
mark. Then a fresh process opens the file, as a front proxy does after a crash, and asks for a workspace. Run as a
program this module is that process.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import msgspec

from atoll.machinery.meta.hashes import identity_hash
from atoll.machinery.meta.names import ROOT, ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.storage.contract import ClusterRoute, Mark, Mutation, Replica, Scope
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from atoll.machinery.storage.options import StoreOptions
from loadtest import followed
from loadtest.bench import Bench, percentile, workspace
from loadtest.report import Row

BATCH_REPLICAS = 500
#: Workspaces below one parent.
CHILDREN = 1000
READS = 20_000
ANSWERED = b"answered\n"
_WORKSPACES = ResourceType("tenancy.kcp.io", "workspaces", identity_hash(b"loadtest"))


class Restarted(msgspec.Struct, frozen=True):
    """The results of a process that opened the store."""

    open_ms: float
    get_us: float
    list_ms: float
    resident_mb: float


async def run(bench: Bench) -> list[Row]:
    count, place = bench.size(10_000, 100_000), bench.place()
    try:
        rows = await _apply(options(place), count)
        first_ms, said = await _restart(place, count)
        file_bytes = (place / "data.mdb").stat().st_blocks * 512
    finally:
        shutil.rmtree(place, ignore_errors=True)
    note = f"{count:,} workspaces of other shards"
    measured = [
        *await _followed(bench, bench.size(100, 1000)),
        *await _followed(bench, bench.size(1000, 10_000)),
        # With needed rows alone: what all of them cost rises with their number, and is known from the sizes before.
        *await _followed(bench, bench.size(2000, 100_000), narrow_only=True),
    ]
    return [
        *rows,
        *measured,
        Row("replicas: bytes of disk a workspace", file_bytes / count, "B"),
        Row("replicas: restart, new process to first answer", first_ms, "ms", 1000, note=note),
        Row("replicas: opening the store", said.open_ms, "ms"),
        Row("replicas: there.get", said.get_us, "us"),
        Row(f"replicas: {CHILDREN:,} workspaces of a parent", said.list_ms, "ms"),
        Row("replicas: resident after the first answer", said.resident_mb, "MB"),
    ]


async def _followed(bench: Bench, count: int, *, narrow_only: bool = False) -> list[Row]:
    place = bench.place()
    try:
        return await followed.measure(place, max(count, followed.EXPORTS), narrow_only=narrow_only)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def options(place: Path) -> StoreOptions:
    """The store of the scenario."""
    return StoreOptions(directory=str(place), allow_any_filesystem=True)


def cluster(number: int) -> str:
    """The logical cluster of a workspace."""
    return f"{random.Random(number).getrandbits(80):016x}"[:16]


def parent(number: int) -> str:
    """The parent of a workspace: root, or one of those below it."""
    return ROOT if number < CHILDREN else cluster(number % CHILDREN)


async def _apply(where: StoreOptions, count: int) -> list[Row]:
    store = open_store(where)
    waits: list[float] = []
    began, cpu = time.monotonic(), time.process_time()
    try:
        await store.submit([ClusterRoute(ROOT, "root")])
        sent, made = _sent(count), 0.0
        while batch := _timed(sent):
            made += batch[1]
            at = time.monotonic()
            await store.submit([*batch[0], Mark("stream", b"position")])
            waits.append(time.monotonic() - at)
        took, spent = sum(waits), time.process_time() - cpu - made
    finally:
        await store.close()
    note = f"whole {time.monotonic() - began:.1f} s"
    return [
        Row("replicas: applied in batches of 500", 2 * count / took, "/s", note=note),
        Row("replicas: CPU a replica, routes with it", spent / (2 * count) * 1e6, "us", 80),
        Row("replicas: a batch p99", percentile(waits, 0.99) * 1000, "ms"),
    ]


def _timed(sent: Iterator[Mutation]) -> tuple[list[Mutation], float] | None:
    """The next batch, and the CPU seconds of making it."""
    began = time.process_time()
    batch = list(islice(sent, BATCH_REPLICAS * 3 // 2))
    return (batch, time.process_time() - began) if batch else None


def _sent(count: int) -> Iterator[Mutation]:
    """Rows that shards publish for that many workspaces, the parents first."""
    for number in range(count):
        origin = f"shard-{number % 8}" if number >= CHILDREN else "root"
        yield _replica(origin, ObjectKey(_WORKSPACES, parent(number), "", f"w{number}"), _workspace(number), number)
        yield ClusterRoute(cluster(number), origin)
        yield _replica(origin, _key(number), _logical_cluster(number), number)


def _replica(origin: str, key: ObjectKey, obj: Object, number: int) -> Replica:
    revision = 1_700_000_000_000_000 + number
    obj["metadata"]["resourceVersion"] = str(revision)
    return Replica(origin, key, encode_json(obj), revision, 1)


def _workspace(number: int) -> Object:
    obj = workspace(f"w{number}")
    obj["metadata"]["annotations"] = {
        "core.kcp.io/shard": "shard",
        "kcp.io/cluster": parent(number),
        "internal.tenancy.kcp.io/cluster": cluster(number),
    }
    obj["spec"] |= {"cluster": cluster(number), "URL": f"https://proxy.example.dev:6443/clusters/root:w{number}"}
    obj["status"] = {"phase": "Ready", "conditions": _conditions("WorkspaceScheduled", "WorkspaceInitialized")}
    return obj


def _logical_cluster(number: int) -> Object:
    path = f"root:w{number % CHILDREN}:w{number}"
    owner = {
        "apiVersion": "tenancy.kcp.io/v1alpha1",
        "resource": "workspaces",
        "name": f"w{number}",
        "cluster": parent(number),
    }
    notes = {"kcp.io/path": path, "internal.kcp.io/replicate": "true", "internal.tenancy.kcp.io/type": "root:universal"}
    return {
        "apiVersion": "core.kcp.io/v1alpha1",
        "kind": "LogicalCluster",
        "spec": {"owner": owner},
        "metadata": {"name": "cluster", "annotations": notes},
        "status": {"phase": "Ready", "conditions": _conditions("WorkspaceAPIBindingsInitialized")},
    }


def _conditions(*types: str) -> list[Object]:
    moment = "2026-01-01T00:00:00Z"
    return [{"type": type, "status": "True", "lastTransitionTime": moment} for type in types]


# --- the process that restarts


async def _restart(place: Path, count: int) -> tuple[float, Restarted]:
    """Milliseconds until a new process gave its first answer, and its output."""
    began = time.monotonic()
    command = (sys.executable, "-m", __name__, str(place), str(count))
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, env=paths)
    assert process.stdout is not None
    while (line := await process.stdout.readline()) != ANSWERED:
        if not line:
            raise RuntimeError("the process that restarted did not answer")
    first_ms = (time.monotonic() - began) * 1000
    said, _ = await process.communicate()
    return first_ms, msgspec.json.decode(said, type=Restarted)


async def _answer(place: Path, count: int) -> Restarted:
    began = time.monotonic()
    store = open_store(options(place))
    opened = time.monotonic()
    _find(store, _key(count - 1))
    sys.stdout.buffer.write(ANSWERED)
    sys.stdout.buffer.flush()
    resident = _resident_mb()
    chance = random.Random(1)
    chosen = [_key(chance.randrange(count)) for _ in range(READS)]
    at = time.monotonic()
    for key in chosen:
        _find(store, key)
    each = (time.monotonic() - at) / READS
    at = time.monotonic()
    with store.snapshot() as snapshot:
        found = snapshot.replicas.scan(Scope(_WORKSPACES, ROOT), None, CHILDREN)
    listed = time.monotonic() - at
    if len(found) != min(CHILDREN, count):
        raise RuntimeError(f"{len(found)} workspaces below root")
    await store.close()
    return Restarted((opened - began) * 1e3, each * 1e6, listed * 1e3, resident)


def _key(number: int) -> ObjectKey:
    return ObjectKey(LOGICAL_CLUSTERS, cluster(number), "", "cluster")


def _find(store: LmdbStore, key: ObjectKey) -> None:
    with store.snapshot() as snapshot:
        if snapshot.replicas.get(key) is None:
            raise RuntimeError(f"{key} is not there")


def _resident_mb() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))


def main(arguments: Sequence[str]) -> int:
    """Open the store of a directory, answer, and say how long that took."""
    place, count = arguments
    said = asyncio.run(_answer(Path(place), int(count)))
    sys.stdout.buffer.write(msgspec.json.encode(said))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
