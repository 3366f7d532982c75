"""What a shard holds and spends for the workspaces of eight others: all of them, or those that it needs.

`scenarios.replicas` runs it. The others are simulated: stores with a publisher each, over one real nats-server. All is
published before the follower is measured, and nothing is audited, so that the CPU seconds of this process are the
follower's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from atoll.machinery.meta import hashes, wellknown
from atoll.machinery.meta.names import ROOT, ObjectKey
from atoll.machinery.meta.objects import Object, encode
from atoll.machinery.meta.types import API_EXPORTS, LOGICAL_CLUSTERS
from atoll.machinery.storage.contract import Put, Snapshot
from atoll.machinery.stream.publisher.publish_window import WindowLimits
from atoll.machinery.stream.publisher.publisher import PublisherOptions
from atoll.replication.shard_replica import ReplicaProgress
from harness.servers.in_process.followers import TYPES, Archipelago, Member, cluster_key, workspace_key
from loadtest.report import Row

SHARDS = tuple(f"s{number}" for number in range(8))
#: Exports of each shard, in as many of its workspaces.
EXPORTS = 5
#: Of the workspaces of each shard, one in so many changes while the follower is away.
CHANGED = 10
_BATCH = 500
_TIMEOUT_S = 3600.0
#: At the start of a connection alone, when the streams are empty.
_UNAUDITED = PublisherOptions(audit_interval_s=0.0, limits=WindowLimits(stall_s=60.0))
_MODES = {"all": False, "needed": True}


class Measured(msgspec.Struct, frozen=True):
    """What one follower held and spent: for everything at first, and for the changes after an absence."""

    rows: int
    size_bytes: int
    first_s: float
    changes_s: float


async def measure(place: Path, count: int, *, narrow_only: bool = False) -> list[Row]:
    """Return the rows of the report for eight shards of `count` workspaces each; `narrow_only`: not of all rows."""
    modes, found = dict(list(_MODES.items())[narrow_only:]), dict[str, Measured]()
    async with Archipelago(place, ROOT, *SHARDS, *modes) as sea:
        await _populate(sea, count)
        first = {mode: await _follow(sea.member(mode), narrow, "first") for mode, narrow in modes.items()}
        await _change(sea, count)
        for mode, narrow in modes.items():
            spent = await _follow(sea.member(mode), narrow, "second")
            found[mode] = Measured(*_held(sea.member(mode)), first[mode], spent)
    return [row for mode, said in found.items() for row in _rows(f"{count:,} a shard, {mode}", said)]


def _rows(note: str, said: Measured) -> list[Row]:
    return [
        Row(f"followed: rows of 8 others ({note})", said.rows, ""),
        Row(f"followed: bytes of these ({note})", said.size_bytes / 1e6, "MB"),
        Row(f"followed: CPU of the first reading ({note})", said.first_s * 1000, "ms"),
        Row(f"followed: CPU for changes of a tenth ({note})", said.changes_s * 1000, "ms"),
    ]


async def _follow(member: Member, narrow: bool, word: str) -> float:
    """Follow until every shard's exports of this round count and all is read; return the CPU seconds."""
    began = time.process_time()
    follower = await member.follow(needed_only=narrow)
    wanted = word.encode()

    def is_current(view: Snapshot) -> bool:
        exports = [view.replicas.get(_export(shard, number)) for shard in SHARDS for number in range(EXPORTS)]
        return all(each is not None and wanted in each.value for each in exports)

    await _until(lambda: len(follower.consumers) == len(SHARDS) + 1 and not follower.behind_s(), 0.02)
    await _until(lambda: all(_is_complete(member, origin) for origin in (ROOT, *SHARDS)), 0.02)
    await _until(lambda: _look(member, is_current), 0.02)
    spent = time.process_time() - began
    await member.follow_no_more()
    return spent


def _is_complete(member: Member, origin: str) -> bool:
    data = member.store.get_mark(f"replication.{origin}")
    return data is not None and msgspec.json.decode(data, type=ReplicaProgress).mark is not None


def _look(member: Member, holds: Callable[[Snapshot], bool]) -> bool:
    with member.store.snapshot() as snapshot:
        return holds(snapshot)


async def _until(holds: Callable[[], bool], pause_s: float) -> None:
    async with asyncio.timeout(_TIMEOUT_S):
        while not holds():  # noqa: ASYNC110  # conditions of other tasks have no event
            await asyncio.sleep(pause_s)


def _held(member: Member) -> tuple[int, int]:
    """The rows of other shards that a follower holds, and their bytes."""
    rows = size = 0
    for origin in (ROOT, *SHARDS):
        after: ObjectKey | None = None
        while True:
            with member.store.snapshot() as snapshot:
                page, after = snapshot.replicas.outdated(origin, 1 << 62, after, _BATCH)
                found = [snapshot.replicas.row_of(origin, key) for key in page]
            rows += len(page)
            size += sum(len(row[0].value) for row in found if row is not None)
            if after is None:
                break
    return rows, size


# --- the other shards ---


async def _populate(sea: Archipelago, count: int) -> None:
    for name in (ROOT, *SHARDS):
        sea.member(name).publish(_UNAUDITED)
    async with _published(sea):
        for shard in SHARDS:
            await sea.member(ROOT).announce(shard)
            await sea.member(ROOT).schedule(ROOT, shard, shard)
            parent = _organization(shard)
            await _put(sea.member(shard), [(cluster_key(parent), _cluster(ROOT, shard, "first"))])
            objects: list[tuple[ObjectKey, Object]] = []
            for number in range(count):
                name = f"w{number}"
                objects.append((workspace_key(parent, name), _workspace(parent, name, shard)))
                objects.append((cluster_key(_named(parent, name, shard)), _cluster(parent, name, "first")))
            await _put(sea.member(shard), objects)
            await _put(sea.member(shard), [(_export(shard, number), _offer("first")) for number in range(EXPORTS)])


async def _change(sea: Archipelago, count: int) -> None:
    async with _published(sea):
        for shard in SHARDS:
            parent = _organization(shard)
            names = [f"w{number}" for number in range(EXPORTS, count, CHANGED)]
            clusters = [(cluster_key(_named(parent, name, shard)), _cluster(parent, name, "second")) for name in names]
            await _put(sea.member(shard), clusters)
            await _put(sea.member(shard), [(_export(shard, number), _offer("second")) for number in range(EXPORTS)])


@asynccontextmanager
async def _published(sea: Archipelago) -> AsyncIterator[None]:
    """What is written inside is published at the end."""
    yield
    for name in (ROOT, *SHARDS):
        publishing = sea.member(name).publishing
        assert publishing is not None
        await publishing.publisher.drain(_TIMEOUT_S)


async def _put(member: Member, objects: Sequence[tuple[ObjectKey, Object]]) -> None:
    for start in range(0, len(objects), _BATCH):
        some = objects[start : start + _BATCH]
        with member.store.snapshot() as snapshot:
            puts = [Put(key, *encode(obj), snapshot.revision_of(key)) for key, obj in some]
        await member.store.submit(puts)


def _uid(parent: str, name: str) -> str:
    return f"uid-of-{parent}-{name}"


def _named(parent: str, name: str, shard: str) -> str:
    return hashes.cluster_name_of(parent, _uid(parent, name), shard)


def _organization(shard: str) -> str:
    return _named(ROOT, shard, shard)


def _export(shard: str, number: int) -> ObjectKey:
    return ObjectKey(API_EXPORTS, _named(_organization(shard), f"w{number}", shard), "", "e")


def _offer(word: str) -> Object:
    return {
        "apiVersion": "apis.kcp.io/v1alpha2",
        "kind": "APIExport",
        "metadata": {"name": "e"},
        "spec": {"round": word},
    }


def _workspace(parent: str, name: str, shard: str) -> Object:
    metadata = {"name": name, "uid": _uid(parent, name), "annotations": {wellknown.SHARD: shard}}
    spec = {
        "cluster": _named(parent, name, shard),
        "URL": f"https://proxy.example.dev:6443/clusters/root:{shard}:{name}",
    }
    status = {"phase": "Ready", "conditions": _conditions("WorkspaceScheduled", "WorkspaceInitialized")}
    return {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": TYPES.workspaces.resource, "metadata": metadata} | {
        "spec": spec,
        "status": status,
    }


def _cluster(parent: str, name: str, word: str) -> Object:
    metadata = {"name": wellknown.SINGLETON, "annotations": {"kcp.io/path": f"root:{name}", "round": word}}
    status = {"phase": "Ready", "conditions": _conditions("WorkspaceAPIBindingsInitialized")}
    return {"apiVersion": "core.kcp.io/v1alpha1", "kind": LOGICAL_CLUSTERS.resource, "metadata": metadata} | {
        "spec": {"owner": {"cluster": parent, "name": name}},
        "status": status,
    }


def _conditions(*types: str) -> list[Object]:
    moment = "2026-01-01T00:00:00Z"
    return [{"type": type, "status": "True", "lastTransitionTime": moment} for type in types]
