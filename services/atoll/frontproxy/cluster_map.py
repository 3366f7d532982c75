"""The file with which a load balancer sends requests for a logical cluster directly to its shard.

`process` runs `keep` if a file is configured. The file has names of logical clusters alone: paths change owners and are
unbounded, names mean one cluster for ever. Invariants: the file is complete at any time, and sorted; a cluster that is
missing or stale in it costs a detour or a refusal, never a wrong response, as shards judge for themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import structlog

from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.process.pki import write_private
from atoll.machinery.storage.contract import Position, Scope, Store
from atoll.machinery.storage.pages import PAGE, position_after

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
    found: list[str] = []
    after: Position | None = None
    while True:
        page = list(_page(store, after))
        found += [f"{position.cluster} {shard}\n" for position, shard in page if shard]
        if len(page) < PAGE:
            return "".join(found)
        after = page[-1][0]
        await asyncio.sleep(0)


def _page(store: Store, after: Position | None) -> Iterator[tuple[Position, str]]:
    with store.snapshot() as snapshot:
        replicas = snapshot.replicas
        for key, _ in replicas.revisions(Scope(LOGICAL_CLUSTERS), after, PAGE):
            yield position_after(key), replicas.shard_of(key.cluster)
