"""Stores for tests: options in a temporary directory, mutations of small objects, a clock set by the test."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, encode, encode_json
from atoll.machinery.storage.clock import Clock
from atoll.machinery.storage.contract import Delete, Page, Position, Put, Replica, Scope, Store
from atoll.machinery.storage.options import StoreOptions

CONFIGMAPS = ResourceType("", "configmaps")
START_S = 1_800_000_000.0


class HandClock:
    """Wall and steady time that a test moves."""

    def __init__(self, now_s: float = START_S) -> None:
        self.wall_s = now_s
        self.steady_s = 1000.0

    def wall(self) -> float:
        return self.wall_s

    def steady(self) -> float:
        return self.steady_s

    def pass_time(self, seconds: float) -> None:
        """Advance both clocks, as time does."""
        self.wall_s += seconds
        self.steady_s += seconds

    def clock(self) -> Clock:
        return Clock(self.wall, self.steady)


def store_options(directory: Path, **changes: Any) -> StoreOptions:
    """Options for a directory on any file system; commits inline unless set otherwise."""
    settings = {"allow_any_filesystem": True, "commit_in_thread": False, "reserve_bytes": 1, **changes}
    return StoreOptions(directory=str(directory), **settings)


def key(name: str, *, cluster: str = "root", namespace: str = "default", type: ResourceType = CONFIGMAPS) -> ObjectKey:
    return ObjectKey(type, cluster, namespace, name)


def put(key: ObjectKey, *, expected: int = 0, data: str = "", metadata: Object | None = None, **more: Any) -> Put:
    """A Put of a small object; `more` are its other fields."""
    named = {"name": key.name, "namespace": key.namespace, **(metadata or {})}
    value, hole = encode({"kind": "Thing", "metadata": named, "data": data, **more})
    return Put(key, value, hole, expected)


def replica(
    key: ObjectKey,
    revision: int,
    *,
    origin: str = "east",
    generation: int = 1,
    metadata: Object | None = None,
    **more: Any,
) -> Replica:
    """The row of a small object from another shard."""
    named = {"name": key.name, "namespace": key.namespace, "resourceVersion": f"{revision:016}", **(metadata or {})}
    return Replica(origin, key, encode_json({"kind": "Thing", "metadata": named, **more}), revision, generation)


def gone(key: ObjectKey, revision: int, *, origin: str = "east", generation: int = 1) -> Replica:
    """The row of a deletion from another shard."""
    return Replica(origin, key, b"", revision, generation)


def delete(key: ObjectKey, expected: int) -> Delete:
    return Delete(key, expected)


async def create(store: Store, *names: str, **where: Any) -> list[int]:
    """Create small objects, one submit each; return their revisions."""
    return [(await store.submit([put(key(name, **where), data=name)]))[0] for name in names]


def pages(
    store: Store,
    scope: Scope,
    *,
    at: int = 0,
    limit: int = 0,
    size_bytes: int = 1 << 20,
    label: tuple[str, str] | None = None,
) -> Iterable[Page]:
    """All slices of a list, at the revision of the first."""
    after: Position | None = None
    while True:
        page = store.page(scope, at=at, after=after, limit=limit, size_bytes=size_bytes, label=label)
        yield page
        at, after = page.revision, page.after
        if after is None:
            return


def listed(store: Store, scope: Scope, **how: Any) -> list[bytes]:
    """The whole list, slice by slice."""
    return [value for page in pages(store, scope, **how) for value in page.values]
