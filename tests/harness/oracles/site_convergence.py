"""Replicas of a site's shards, read from their files while they run: does each shard hold the others' rows?

eventually(lambda: not differences(stores_of(site)), "all shards know what all others published")
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import decode, spec_of
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.storage.contract import Scope, Snapshot
from atoll.machinery.storage.environment.databases import Environment
from atoll.machinery.storage.environment.opening import open_for_reading
from atoll.machinery.storage.options import StoreOptions
from atoll.machinery.storage.pages import each_record
from atoll.machinery.storage.reading.records import Records
from atoll.machinery.storage.reading.snapshot import LmdbSnapshot
from atoll.replication.needed_rows import is_selected
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
    """Missing and superfluous rows by holder and origin: a line each, empty if there is none. `stores` by shard.

    Of Workspaces and LogicalClusters a shard may lack those that it does not need.
    """
    found: list[str] = []
    rows = {name: published(store) for name, store in stores.items()}
    for origin, there in rows.items():
        for process in stores.keys() - {origin}:
            here = held(stores[process], origin)
            needed = {*_needed(rows[process], here)}
            optional = {key for key in there if is_selected(key.type) and key not in here and _place(key) not in needed}
            changed = [key for key in there.keys() | here.keys() if there.get(key) != here.get(key)]
            found += [f"{process} of {origin}: {key}" for key in changed if key not in optional]
    return found


def _place(key: ObjectKey) -> tuple[str, str]:
    """The cluster of a LogicalCluster or Workspace, and the name of the Workspace."""
    return key.cluster, "" if key.type == LOGICAL_CLUSTERS else key.name


def _needed(own: _Rows, here: _Rows) -> Iterator[tuple[str, str]]:
    """Yield the places that a shard needs for its own rows and for those that it holds."""
    for key, (_, value) in own.items():
        if key.type == LOGICAL_CLUSTERS:
            owner = spec_of(decode(value)).get("owner") or {}
            yield owner.get("cluster", ""), owner.get("name", "")
        elif key.type.resource == "workspaces":
            yield spec_of(decode(value)).get("cluster", ""), ""
    for key in here:
        if not is_selected(key.type):
            yield key.cluster, ""


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
