"""What the shards of a site hold of each other, read from their files while they run: does everybody know everything?

eventually(lambda: not differences(site), "all shards know what all others published")
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from atoll.machinery.kcp.sharding.stream_policy import KcpStreamPolicy
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.storage.contract import Record, Scope, Snapshot
from atoll.machinery.storage.environment.databases import Environment
from atoll.machinery.storage.environment.opening import open_for_reading
from atoll.machinery.storage.options import StoreOptions
from atoll.machinery.storage.pages import each_record
from atoll.machinery.storage.reading.records import Records
from atoll.machinery.storage.reading.snapshot import LmdbSnapshot
from harness.servers.site import Site

#: Reading everything again after a stream was lost is more than a turn of the loop on a loaded machine.
CONVERGE_S = 120.0
_POLICY = KcpStreamPolicy()
_Rows = Mapping[ObjectKey, tuple[int, bytes]]


@contextmanager
def _opened(directory: Path) -> Iterator[tuple[Environment, Snapshot]]:
    environment = open_for_reading(StoreOptions(directory=str(directory), allow_any_filesystem=True))
    try:
        with LmdbSnapshot(Records(environment, None, lambda *_event, **_facts: None, frozenset())) as snapshot:
            yield environment, snapshot
    finally:
        environment.close()


def _types(environment: Environment) -> Iterator[Scope]:
    with environment.reading() as txn:
        types = list(environment.type_table.all(txn).values())
    return (Scope(type) for type in types if _POLICY.may_replicate(type))


def _rows(records: Iterator[Record]) -> _Rows:
    return {r.key: (r.revision, r.value) for r in records if _POLICY.replicated(r.key, r.value)}


def published(site: Site, shard: str) -> _Rows:
    """What a shard has that others need."""
    with _opened(site.layout.shard(shard) / "store") as (environment, snapshot):
        return _rows(record for scope in _types(environment) for record in each_record(snapshot, scope))


def held(site: Site, process: str, origin: str) -> _Rows:
    """What a shard or the proxy holds of another shard, counted or not."""
    with _opened(site.layout.shard(process) / "store") as (environment, snapshot):
        there = snapshot.replicas
        return _rows(
            record for scope in _types(environment) for record in there.rows_of(origin, scope, limit=1_000_000)
        )


def differences(site: Site) -> list[str]:
    """Who does not hold of another shard what that has: a line each, empty if all is well."""
    found: list[str] = []
    for origin in site.shards:
        there = published(site, origin)
        for process in site.shards:
            here = held(site, process, origin) if process != origin else there
            changed = [key for key in there.keys() | here.keys() if there.get(key) != here.get(key)]
            found += [f"{process} of {origin}: {key}" for key in changed]
    return found


def converged(site: Site) -> None:
    """Return once all shards hold what all others have; fails with what differs."""
    assert published(site, "root"), "there is something to tell"
    deadline = time.monotonic() + CONVERGE_S
    while told := differences(site):
        assert time.monotonic() < deadline, "\n".join(told[:20])
        time.sleep(0.1)
