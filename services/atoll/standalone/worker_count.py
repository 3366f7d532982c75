"""How many API workers a shard starts with `--workers auto`, and what `atoll doctor` says about it.

`runner`, `site.runner` and the doctor call it. Pure, but for `resolve`.
"""

from __future__ import annotations

import structlog

from atoll.machinery.process import host_resources
from atoll.machinery.process.host_resources import Resources
from atoll.shard.config import AUTO, Workers

#: Memory that a worker may come to use, and the part of all memory that workers may use together.
WORKER_BYTES = 128 << 20
_MEMORY_PART = 4
#: More of them serve more reads, but then the writer is the limit of writes.
MOST = 8


def resolve(workers: Workers, shards: int = 1) -> int:
    """Return the number of workers of one shard, of `shards` on this machine."""
    if workers != AUTO:
        return workers
    found = host_resources.usable()
    count = choose(found, shards)
    structlog.get_logger().info(
        "workers chosen", workers=count, cores=round(found.cores, 2), memory_mib=found.memory_bytes >> 20
    )
    return count


def choose(found: Resources, shards: int = 1) -> int:
    """Return one worker a whole core from two cores on, as many as the memory allows; 0 for one process.

    The writer needs the least CPU of all and shares a core. One worker would be no more than one process.
    """
    count = min(int(found.cores / shards), found.memory_bytes // _MEMORY_PART // WORKER_BYTES // shards, MOST)
    return count if count > 1 else 0


def advice(found: Resources, load: float, *, is_running: bool, has_workers: bool) -> str:
    """Return the sentence of the doctor. `load` is the number of processes that run or wait to run."""
    count, idle = choose(found), max(0, round(found.cores - load))
    has = f"{found.cores:g} core{'' if found.cores == 1 else 's'}, {found.memory_bytes >> 20} MiB of memory"
    if not count:
        return f"{has}: one process uses them"
    if not is_running:
        return f"{has}: --workers auto starts {count} workers"
    if has_workers:
        return f"{has}: the shard of this directory has workers"
    if not idle:
        return f"{has}, none idle: the shard of this directory is one process"
    return f"{idle} core{'' if idle == 1 else 's'} idle, one process: --workers {count} would carry reads"
