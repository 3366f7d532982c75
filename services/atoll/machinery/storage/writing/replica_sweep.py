"""Deletes the rows of an origin that its last full read did not bring, in bounded pieces.

`LmdbStore.submit` runs it for a leading `SweepReplicas`, before the rest of the submit. Each piece reads a bounded
number of rows and is a job of the writer. Invariant: a row written in the new generation while the sweep runs stays.
"""

from __future__ import annotations

import asyncio

from atoll.machinery.storage.contract import SweepReplicas
from atoll.machinery.storage.encoding import keys
from atoll.machinery.storage.environment.databases import Environment
from atoll.machinery.storage.reading.replica_view import outdated_rows
from atoll.machinery.storage.writing.writer import Job, Writer

#: Rows that one piece of a sweep reads, and so the most that it deletes in one transaction.
SWEEP_ROWS = 1000


async def sweep(environment: Environment, writer: Writer, mutation: SweepReplicas) -> int:
    """Delete an origin's rows of earlier generations. Return their number. Each piece is durable by itself."""
    assert environment.replicas is not None, "opening for writing creates the databases of replicas"
    origin, raw, deleted = keys.origin_prefix(mutation.origin), b"", 0
    while True:
        with environment.reading() as txn:
            doomed, raw = outdated_rows(txn, environment.replicas, origin, raw, mutation.generation, SWEEP_ROWS)
        if doomed:
            deleted += await writer.run(_deletion(origin, doomed, mutation.generation))
        if not raw:
            return deleted
        await asyncio.sleep(0)


def _deletion(origin: bytes, doomed: list[bytes], generation: int) -> Job:
    return lambda transaction, _txn: transaction.replica_rows.drop(origin, doomed, generation)
