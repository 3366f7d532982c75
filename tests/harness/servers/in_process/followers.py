"""Shards that publish and processes that follow them, in the test's own event loop: real stores, a real nats-server.

async with Archipelago(tmp_path, "root", "east") as sea:
    east = await sea.shard("east")
    reader = await sea.reader("front")
    await sea.root.announce("east"); await east.put(...)
    await reader.until(lambda view: view.replicas.get(key) is not None)
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry, generate_latest

from atoll.machinery.meta import hashes, wellknown
from atoll.machinery.meta.names import ROOT, ObjectKey, ResourceType
from atoll.machinery.meta.objects import Object, decode, encode
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.storage.contract import Delete, LogEntry, Put, Snapshot
from atoll.machinery.storage.lmdb_store import LmdbStore, open_store
from atoll.machinery.storage.maintenance.offline import mark_restored
from atoll.machinery.storage.published_log import PublishedLog
from atoll.machinery.stream.connection import Access
from atoll.machinery.stream.permissions import reader_permissions, reader_user, shard_permissions, shard_user
from atoll.machinery.stream.publisher.publisher import PublisherOptions
from atoll.machinery.stream.server.config import NatsUser
from atoll.replication.follower import Follower, FollowerOptions
from atoll.replication.root_types import root_types
from harness.data.event_keys import PUBLIC
from harness.data.stores import store_options
from harness.servers.in_process.publisher import QUICK, Running
from harness.servers.nats import NatsServer, eventually

TYPES = root_types("7" * 64, "5" * 64)
#: The limit of waits on a loaded machine: a consumer takes a server for lost only after 25 s of silence.
TIMEOUT_S = 90.0


class ChangeRecorder:
    """A listener that records its notifications."""

    def __init__(self) -> None:
        self.entries: list[LogEntry] = []
        self.count = 0

    def wants_replicas(self, type: ResourceType) -> bool:
        return True

    def replicas_changed(self, entries: Sequence[LogEntry], count: int) -> None:
        self.entries += entries
        self.count = count

    def of(self, key: ObjectKey) -> list[str]:
        return [entry.operation.name for entry in self.entries if entry.key == key]


class Member:
    """A shard or another process: a store that may publish and may follow."""

    def __init__(self, sea: Archipelago, name: str, user: NatsUser) -> None:
        self.sea, self.name, self.user = sea, name, user
        self.options = store_options(sea.directory / name, shard=name)
        self.store = open_store(self.options)
        self.publishing: Running | None = None
        #: The keys that it trusts; None: those of the site.
        self.event_keys: dict[str, tuple[str, ...]] | None = None
        self.follower: Follower | None = None
        self.registry = CollectorRegistry()
        self.changes = ChangeRecorder()
        self._following: asyncio.Task[None] | None = None

    @property
    def access(self) -> Access:
        access = self.sea.access(self.user)
        return access if self.event_keys is None else msgspec.structs.replace(access, event_keys=self.event_keys)

    # --- publishing ---

    def publish(self, options: PublisherOptions = QUICK) -> Running:
        # A server can hang over a damaged file: then it is for its supervisor, if it has one, as in a shard.
        options = msgspec.structs.replace(options, restart_server=getattr(self.sea, "restart_server", None))
        self.publishing = Running(PublishedLog(self.store), self.access, options)
        return self.publishing

    async def publish_no_more(self) -> None:
        if self.publishing is not None:
            await self.publishing.stop()
            self.publishing = None

    async def put(self, key: ObjectKey, **members: Any) -> int:
        """Write an object unchanged, except for its name."""
        metadata = {"name": key.name, **members.pop("metadata", {})}
        if key.namespace:
            metadata["namespace"] = key.namespace
        value, hole = encode({"apiVersion": "v1", "kind": "Thing", "metadata": metadata, **members})
        with self.store.snapshot() as snapshot:
            expected = snapshot.revision_of(key)
        return (await self.store.submit([Put(key, value, hole, expected)]))[0]

    async def delete(self, key: ObjectKey) -> None:
        with self.store.snapshot() as snapshot:
            expected = snapshot.revision_of(key)
        await self.store.submit([Delete(key, expected)])

    async def announce(self, shard: str, region: str = "") -> None:
        """Write a Shard object, as root has them."""
        labels = {"region": region} if region else {}
        await self.put(shard_key(shard), metadata={"labels": labels}, spec={"baseURL": f"https://{shard}"})

    async def schedule(self, parent: str, name: str, shard: str) -> str:
        """Write the Workspace of a cluster on a shard; return the cluster's name."""
        uid = f"uid-of-{parent}-{name}"
        cluster = hashes.cluster_name_of(parent, uid, shard)
        metadata = {"uid": uid, "annotations": {wellknown.SHARD: shard}}
        await self.put(workspace_key(parent, name), metadata=metadata, spec={"cluster": cluster})
        return cluster

    async def open(self, cluster: str, parent: str = "", name: str = "", **annotations: str) -> None:
        """Write the LogicalCluster of a cluster; with a parent that of a Workspace."""
        spec: Object = {"owner": {"cluster": parent, "name": name}} if parent else {}
        await self.put(cluster_key(cluster), metadata={"annotations": annotations}, spec=spec)

    # --- following ---

    async def follow(self, **options: Any) -> Follower:
        given = {"types": TYPES, **options}
        own = self.name if self.user.name == shard_user(self.name) else ""
        self.registry = CollectorRegistry()
        self.follower = Follower(self.store, FollowerOptions(self.access, own, **given), self.registry)
        self.follower.set_listener(self.changes)
        self._following = asyncio.ensure_future(self.follower.run())
        return self.follower

    async def follow_no_more(self) -> None:
        if self._following is not None:
            self._following.cancel()
            done = await asyncio.gather(self._following, return_exceptions=True)
            assert isinstance(done[0], asyncio.CancelledError), done
            self._following = None

    async def reopen(self) -> None:
        """Stop everything of this process and open the store again."""
        await self.follow_no_more()
        await self.publish_no_more()
        await self.store.close()
        self.store = open_store(self.options)

    async def keep_store(self) -> Path:
        """A copy of the store as it is now. Stops everything of this process."""
        await self.reopen()
        directory = Path(self.options.directory)
        await self.store.close()
        copy = directory.with_name(f"{self.name}-copy")
        shutil.copytree(directory, copy)
        self.store = open_store(self.options)
        return copy

    async def restore(self, copy: Path) -> None:
        """Open the copy of the store, as an operator would; later changes are lost. Stops this process."""
        await self.reopen()
        await self.store.close()
        shutil.rmtree(self.options.directory)
        shutil.move(copy, self.options.directory)
        mark_restored(self.options, time.time_ns() // 1000)
        self.store = open_store(self.options)

    async def close(self) -> None:
        await self.follow_no_more()
        await self.publish_no_more()
        await self.store.close()

    async def until(self, holds: Callable[[Snapshot], object]) -> None:
        """Return when the store satisfies a condition."""

        def look() -> bool:
            assert self._following is None or not self._following.done(), "following ended"
            with self.store.snapshot() as snapshot:
                return bool(holds(snapshot))

        await eventually(look, TIMEOUT_S)

    def shard_of(self, cluster: str) -> str:
        with self.store.snapshot() as snapshot:
            return snapshot.replicas.shard_of(cluster)

    def replica(self, key: ObjectKey) -> Object | None:
        """A valid object of another shard."""
        with self.store.snapshot() as snapshot:
            record = snapshot.replicas.get(key)
        return decode(record.value) if record is not None else None

    def value(self, key: ObjectKey) -> bytes:
        """The bytes of a valid object of another shard."""
        with self.store.snapshot() as snapshot:
            record = snapshot.replicas.get(key)
        return record.value if record is not None else b""

    def sent(self, origin: str, key: ObjectKey) -> bool:
        """Whether a shard sent an object, valid or not."""
        with self.store.snapshot() as snapshot:
            return snapshot.replicas.row_of(origin, key) is not None

    def metric(self, name: str, **labels: str) -> float:
        given = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
        for line in generate_latest(self.registry).decode().splitlines():
            if line.startswith(f"{name}{{{given}}}" if given else f"{name} "):
                return float(line.rpartition(" ")[2])
        return 0.0


class Archipelago:
    """An async context manager: a nats-server with a user for each shard and reader, and the started processes."""

    def __init__(
        self, directory: Path, *shards: str, readers: Sequence[str] = ("proxy-front",), selects: bool = True
    ) -> None:
        """`selects`: the shards' readers may create consumers with several filters."""
        self.directory = directory
        self.shards = shards
        self.users = {name: shard_nats_user(name) for name in shards}
        self.users |= {name: reader_nats_user(name, shards) for name in readers}
        # Each shard reads the others as a user of its own.
        self._peers = {name: reader_nats_user(reader_user(name), shards, selects=selects) for name in shards}
        self.nats = NatsServer(directory, "everything", users=self._all())
        self.members: dict[str, Member] = {}

    async def __aenter__(self) -> Archipelago:
        await self.nats.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        for member in self.members.values():
            await member.close()
        await self.nats.stop()

    def _all(self) -> tuple[NatsUser, ...]:
        return (*self.users.values(), *self._peers.values())

    @property
    def restart_server(self) -> Callable[[], Awaitable[None]]:
        return self.nats.server.restart

    def access(self, user: NatsUser) -> Access:
        """The access of a user; a shard's with the one that it reads by."""
        address = self.nats.server.address
        peer = self._peers.get(user.name.removeprefix("shard-"))
        reader = peer.access(address) if peer is not None and user.permissions.shards else None
        keys = dict.fromkeys(self.shards, PUBLIC)
        return msgspec.structs.replace(user.access(address), reader=reader, event_keys=keys)

    async def with_users(self, *users: NatsUser) -> None:
        """Start the server again with more users, before any process is started."""
        assert not self.members
        await self.nats.stop()
        self.nats = NatsServer(self.directory, "everything", users=(*self._all(), *users))
        await self.nats.start()

    def shard(self, name: str) -> Member:
        """A shard that publishes; started at the first call."""
        if name not in self.members:
            self.member(name).publish()
        return self.members[name]

    def member(self, name: str) -> Member:
        """A process with a store; it does nothing yet."""
        if name not in self.members:
            self.members[name] = Member(self, name, self.users[name])
        return self.members[name]

    async def reader(self, name: str = "proxy-front", **options: Any) -> Member:
        """A process that follows."""
        member = self.member(name)
        await member.follow(**options)
        return member


def shard_nats_user(name: str) -> NatsUser:
    return NatsUser(shard_user(name), f"secret-{name}", shard_permissions(name))


def reader_nats_user(name: str, shards: Sequence[str], *, selects: bool = False) -> NatsUser:
    return NatsUser(name, f"secret-{name}", reader_permissions(name, shards, selects=selects))


def shard_key(name: str) -> ObjectKey:
    return ObjectKey(TYPES.shards, ROOT, "", name)


def workspace_key(cluster: str, name: str) -> ObjectKey:
    return ObjectKey(TYPES.workspaces, cluster, "", name)


def cluster_key(cluster: str) -> ObjectKey:
    return ObjectKey(LOGICAL_CLUSTERS, cluster, "", wellknown.SINGLETON)


__all__ = ["TYPES", "Archipelago", "LmdbStore", "Member", "cluster_key", "shard_key", "workspace_key"]
