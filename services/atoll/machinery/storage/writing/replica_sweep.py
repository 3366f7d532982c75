"""Dropping what a complete reading of another shard's state did not bring, however much that is.

`LmdbStore.submit` runs it for the `SweepReplicas` that a submit begins with, before the rest of it. Each piece looks
at a bounded number of rows and is a job of the writer. Invariant: a row that was written meanwhile, in the new
generation, stays.
"""

from __future__ import annotations

import asyncio

from atoll.machinery.storage.contract import SweepReplicas
from atoll.machinery.storage.encoding import keys
from atoll.machinery.storage.environment.databases import Environment
from atoll.machinery.storage.reading.replica_view import outdated
from atoll.machinery.storage.writing.writer import Job, Writer

#: Rows that a sweep looks at before others get a turn, and so the most that it drops in one transaction.
SWEEP_ROWS = 1000


async def sweep(environment: Environment, writer: Writer, wanted: SweepReplicas) -> int:
    """Drop an origin's rows of earlier generations; gives how many. Each piece is durable by itself."""
    assert environment.replicas is not None, "whoever writes has made them"
    origin, raw, dropped = keys.origin_prefix(wanted.origin), b"", 0
    while True:
        with environment.reading() as txn:
            doomed, raw = outdated(txn, environment.replicas, (origin, raw), wanted.generation, SWEEP_ROWS)
        if doomed:
            dropped += await writer.run(_dropping(origin, doomed, wanted.generation))
        if not raw:
            return dropped
        await asyncio.sleep(0)


def _dropping(origin: bytes, doomed: list[bytes], generation: int) -> Job:
    return lambda application, _txn: application.replication.drop(origin, doomed, generation)
