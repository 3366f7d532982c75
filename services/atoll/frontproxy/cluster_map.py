"""The file with which a load balancer sends requests for a logical cluster directly to its shard.

`process` runs `keep` if a file is configured. The file has names of logical clusters alone: paths change owners and are
unbounded, names mean one cluster for ever. Invariants: the file is complete at any time, and sorted; a cluster that is
missing or stale in it costs a detour or a refusal, never a wrong response, as shards authorize for themselves.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import structlog

from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.process.private_files import write_private
from atoll.machinery.storage.contract import Position, Scope, Store
from atoll.machinery.storage.pages import PAGE, pages, position_after

log = structlog.get_logger()

#: Least time between two writes: each is linear in the number of clusters.
PAUSE_S = 10.0


async def keep(store: Store, file: Path, pause_s: float = PAUSE_S) -> None:
    """Write the file whenever clusters are added, removed or moved, until cancelled."""
    written = ""
    while True:
        with store.snapshot() as snapshot:
            count = snapshot.replicas.count
        text = await _text(store)
        if text != written:
            try:
                await asyncio.to_thread(write_private, file, text.encode())
                written = text
            except OSError as error:
                log.error("cluster map not written", file=str(file), reason=str(error))
        await asyncio.sleep(pause_s)
        await store.replicated(count)


async def _text(store: Store) -> str:
    """`<cluster> <shard>` lines. Requests are served between two pages."""

    def read(after: Position | None) -> list[tuple[ObjectKey, str]]:
        with store.snapshot() as snapshot:
            replicas = snapshot.replicas
            found = replicas.revisions(Scope(LOGICAL_CLUSTERS), after, PAGE)
            return [(key, replicas.shard_of(key.cluster)) for key, _ in found]

    lines: list[str] = []
    for page in pages(read, lambda row: position_after(row[0])):
        lines += [f"{key.cluster} {shard}\n" for key, shard in page if shard]
        await asyncio.sleep(0)
    return "".join(lines)
