"""Replicas of a site's shards, read from their files while they run: does each shard hold the others' rows?

eventually(lambda: not differences(stores_of(site)), "all shards know what all others published")
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.storage.contract import Scope, Snapshot
from atoll.machinery.storage.environment.databases import Environment
from atoll.machinery.storage.environment.opening import open_for_reading
from atoll.machinery.storage.options import StoreOptions
from atoll.machinery.storage.pages import each_record
from atoll.machinery.storage.reading.records import Records
from atoll.machinery.storage.reading.snapshot import LmdbSnapshot
from harness.models.replicated_types import is_replicated, may_be_replicated
from harness.servers.site import Site

#: Reading a whole stream again after its loss takes longer than one loop turn on a loaded machine.
CONVERGE_S = 120.0
_Rows = Mapping[ObjectKey, tuple[int, bytes]]


@contextmanager
def _opened(directory: Path) -> Iterator[tuple[Environment, Snapshot]]:
    environment = open_for_reading(StoreOptions(directory=str(directory), allow_any_filesystem=True))
    try:
        with LmdbSnapshot(
            Records(environment, None, lambda *_event, **_facts: None, frozenset()), environment
        ) as snapshot:
            yield environment, snapshot
    finally:
        environment.close()


def _scopes(environment: Environment) -> Iterator[Scope]:
    with environment.reading() as txn:
        types = list(environment.type_table.all(txn).values())
    return map(Scope, types)


def published(store: Path) -> _Rows:
    """The rows of a shard that others replicate."""
    with _opened(store) as (environment, snapshot):
        scopes = [scope for scope in _scopes(environment) if may_be_replicated(scope.type)]
        records = (record for scope in scopes for record in each_record(snapshot, scope))
        return {r.key: (r.revision, r.value) for r in records if is_replicated(r.key, r.value)}


def held(store: Path, origin: str) -> _Rows:
    """All rows that a shard or the proxy holds of another shard, valid or not."""
    with _opened(store) as (environment, snapshot):
        rows = (snapshot.replicas.rows_of(origin, scope, limit=1_000_000) for scope in _scopes(environment))
        return {r.key: (r.revision, r.value) for page in rows for r in page}


def differences(stores: Mapping[str, Path]) -> list[str]:
    """Missing and superfluous rows by holder and origin: a line each, empty if there is none. `stores` by shard."""
    found: list[str] = []
    for origin, store in stores.items():
        there = published(store)
        for process in stores.keys() - {origin}:
            here = held(stores[process], origin)
            changed = [key for key in there.keys() | here.keys() if there.get(key) != here.get(key)]
            found += [f"{process} of {origin}: {key}" for key in changed]
    return found


def stores_of(site: Site) -> dict[str, Path]:
    """The directories of all shards' stores by name."""
    return {name: site.layout.shard(name) / "store" for name in site.shards}


def converged(site: Site) -> None:
    """Return once all shards hold each other's rows; fail with the differences."""
    stores = stores_of(site)
    assert published(stores["root"]), "there is something to tell"
    deadline = time.monotonic() + CONVERGE_S
    while told := differences(stores):
        assert time.monotonic() < deadline, "\n".join(told[:20])
        time.sleep(0.1)
