"""kill -9 during replication: rows, routes and the mark always match the same batch."""

from __future__ import annotations

import asyncio
import itertools
import random
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.storage.contract import ClusterRoute, Mark, Mutation, Scope, SweepReplicas
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from atoll.machinery.storage.maintenance.fsck import fsck
from atoll.machinery.storage.options import StoreOptions
from fault.traffic.replicator import CLUSTERS, MARK, ORIGINS, TYPES, batches
from harness.data.stores import key, replica, store_options
from harness.environment import python_environment
from harness.models.replica_store import ReplicaModel
from harness.seeds import replay_command, seed_of_run
from harness.tiers import every

_THIS = "tests/fault/scenarios/test_replica_kills.py"


async def killed(options: StoreOptions, seed: int, acknowledgements: int) -> int:
    """Replicate in a process until so many batches are acknowledged, and kill it; return the last acknowledged one."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "fault.traffic.replicator", msgspec.json.encode(options).decode(), str(seed)),
        stdout=asyncio.subprocess.PIPE,
        env=python_environment(),
    )
    assert process.stdout is not None
    heard = 0
    try:
        while acknowledgements:
            line = await process.stdout.readline()
            assert line, "the replicator ended by itself"
            if line.strip().isdigit():
                heard, acknowledgements = int(line), acknowledgements - 1
    finally:
        process.kill()
        await process.wait()
    rest = (await process.stdout.read()).split(b"\n")[:-1]
    return max([heard, *(int(line) for line in rest if line.isdigit())])


def held(store: LmdbStore) -> dict[tuple[str, ObjectKey], tuple[int, bytes]]:
    """Every row of every origin."""
    found: dict[tuple[str, ObjectKey], tuple[int, bytes]] = {}
    with store.snapshot() as snapshot:
        for origin, type in itertools.product(ORIGINS, TYPES):
            for record in snapshot.replicas.rows_of(origin, Scope(type), limit=100_000):
                found[origin, record.key] = (record.revision, record.value)
    return found


def validate(store: LmdbStore, applied: ReplicaModel, following: Sequence[Mutation]) -> None:
    """Check that rows and routes match the mark; any part of the following sweep may be done."""
    there = held(store)
    swept = following[0]
    missing = set(applied.below(swept.origin, swept.generation)) if isinstance(swept, SweepReplicas) else set()
    for where, row in applied.rows.items():
        assert there.pop(where, None) == (row.revision, row.value) or where in missing
    assert there == {}
    with store.snapshot() as snapshot:
        routes = {cluster: snapshot.replicas.route_of(cluster) for cluster in CLUSTERS}
    assert routes == {cluster: applied.routes.get(cluster) for cluster in CLUSTERS}


async def campaign(options: StoreOptions, seed: int, kills: int) -> None:
    """Kill, check and continue, so many times."""
    dice, model, done = random.Random(f"{seed} kills"), ReplicaModel(), 0
    coming = batches(seed)
    following = next(coming)
    for _ in range(kills):
        heard = await killed(options, seed, dice.randint(1, 40))
        assert fsck(options) == []
        store = open_store(options)
        mark = int(store.get_mark(MARK) or b"0")
        assert mark >= heard
        while done < mark:
            for mutation in following:
                model.apply(mutation)
            done, following = done + 1, next(coming)
        validate(store, model, following)
        await store.close()


@pytest.mark.parametrize("in_thread", every(2, [False, True]), ids=["inline", "threaded"])
async def test_rows_and_mark_agree_whenever_replication_is_killed(tmp_path: Path, in_thread: bool) -> None:
    seed = seed_of_run(4)
    try:
        await campaign(store_options(tmp_path, commit_in_thread=in_thread), seed, kills=5)
    except AssertionError as failure:
        raise AssertionError(f"run again: {replay_command(seed, _THIS)}") from failure


@pytest.mark.long
@pytest.mark.timeout(1200)
async def test_rows_and_mark_agree_after_a_hundred_kills(tmp_path: Path) -> None:
    await campaign(store_options(tmp_path), seed_of_run(5), kills=100)


async def test_rows_that_are_not_of_the_mark_are_found(tmp_path: Path) -> None:
    """The check must fail for rows that are older than the mark, and for rows that are newer."""
    store, model, rest = open_store(store_options(tmp_path)), ReplicaModel(), [Mark(MARK, b"")]
    first, second = replica(key("a", cluster="a"), 1), replica(key("b", cluster="a"), 2)
    await store.submit([first])
    model.apply(first)
    validate(store, model, rest)
    model.apply(second)
    with pytest.raises(AssertionError):
        validate(store, model, rest)
    validate(store, model, [SweepReplicas("east", 2)])
    await store.submit([second, ClusterRoute("a", "east")])
    with pytest.raises(AssertionError):
        validate(store, model, rest)
    model.apply(ClusterRoute("a", "east"))
    validate(store, model, rest)
    await store.submit([replica(key("c", cluster="a"), 3)])
    with pytest.raises(AssertionError):
        validate(store, model, rest)
    await store.close()
