"""Which cached objects a shard copies for others, and which of others' copies a shard keeps."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from atoll.controllers.exports import copy_rows
from atoll.controllers.exports.cached_copies import CachedCopies
from atoll.controllers.exports.kept_copies import KeptCopies
from atoll.machinery.control.manager import Controller
from atoll.machinery.kcp.apis import copies
from atoll.machinery.kcp.apis.copies import KEPT, MARKER, CopySet
from atoll.machinery.kcp.sharding import replication_level
from atoll.machinery.meta.names import ROOT, ObjectKey
from atoll.machinery.meta.objects import Object, decode, encode, encode_json
from atoll.machinery.meta.types import (
    API_EXPORTS,
    CACHED_RESOURCE_ENDPOINT_SLICES,
    CACHED_RESOURCES,
    CLUSTER_ROLES,
    LOGICAL_CLUSTERS,
)
from atoll.machinery.storage.contract import ClusterRoute, LogEntry, Operation, Put, Replica, Scope
from atoll.replication.metrics import ReplicationMetrics
from atoll.replication.needed_copies import NeededCopies
from atoll.replication.replica_writer import ReplicaWriter
from harness.servers.in_process.minimal_shard import Cell, cell

HOME, FAR = "provider", "faraway"
ROLES = CopySet(HOME, "roles")
GROUP = "rbac.authorization.k8s.io"
IDENTITY, SCHEMA = "a" * 64, f"today.clusterroles.{GROUP}"


def url(shard: str, cluster: str = HOME) -> str:
    return f"https://{shard}.example/services/replication/{cluster}/roles"


def cached(uid: str = "", **selector: str) -> Object:
    spec: Object = {"group": GROUP, "version": "v1", "resource": "clusterroles"}
    if selector:
        spec["labelSelector"] = {"matchLabels": selector}
    return {"metadata": {"name": "roles"}, "spec": spec, "status": {"identityHash": IDENTITY}}


def offer(identity: str = IDENTITY, **annotations: str) -> Object:
    reference = {"apiGroup": "cache.kcp.io", "kind": "ClusterCachedResourceEndpointSlice", "name": "roles"}
    virtual = {"identityHash": identity, "reference": reference}
    entry = {"group": GROUP, "name": "clusterroles", "schema": SCHEMA, "storage": {"virtual": virtual}}
    return {"metadata": {"name": "roles", "annotations": annotations}, "spec": {"resources": [entry]}}


def slice_of(*urls: str) -> Object:
    spec = {"clusterCachedResource": {"name": "roles"}, "export": {"name": "roles"}}
    return {"metadata": {"name": "roles"}, "spec": spec, "status": {"endpoints": [{"url": each} for each in urls]}}


def role(name: str, **labels: str) -> Object:
    return {"metadata": {"name": name, "labels": labels}, "rules": []}


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Cell]:
    async with cell(tmp_path) as made:
        await made.cluster(HOME)
        shard = {"metadata": {"name": "here"}, "spec": {"virtualWorkspaceURL": "https://here.example"}}
        value, hole = encode(shard)
        await made.store.submit([Put(ObjectKey(made.facts.identities.shard_objects, ROOT, "", "here"), value, hole, 0)])
        yield made


async def offered(here: Cell, *urls: str) -> None:
    """Three roles, offered by an export, to the shards of these URLs."""
    for name in ("a", "b", "c"):
        await here.put(CLUSTER_ROLES, HOME, role(name, tier="gold" if name == "b" else "tin"))
    await here.put(CACHED_RESOURCES, HOME, cached())
    await here.put(API_EXPORTS, HOME, offer())
    await here.put(CACHED_RESOURCE_ENDPOINT_SLICES, HOME, slice_of(*urls))
    here.restart(CachedCopies(here.loopback, here.facts, "here"), from_state=True)
    await here.settle()


def copied(here: Cell) -> dict[str, Object]:
    return {each["metadata"]["name"]: each for each in here.loopback.each(Scope(ROLES.type, HOME))}


async def endpoints(here: Cell, *urls: str) -> None:
    status = {"endpoints": [{"url": each} for each in urls]}
    await here.change(CACHED_RESOURCE_ENDPOINT_SLICES, HOME, "roles", status=status)
    await here.settle(4)


async def test_copies_are_made_while_another_shard_uses_the_slice(here: Cell) -> None:
    await offered(here, url("here"))
    assert not copied(here), "this shard reads the objects themselves"
    await endpoints(here, url("here"), url("there"))
    found = copied(here)
    assert found.keys() == {"a", "b", "c", MARKER}
    obj = json.loads(found["b"]["spec"]["object"])
    original = here.found(CLUSTER_ROLES, HOME, "b")
    assert obj == {**original, "metadata": {k: v for k, v in original["metadata"].items() if k != "resourceVersion"}}
    assert found[MARKER]["spec"]["uid"] == here.found(CACHED_RESOURCES, HOME, "roles")["metadata"]["uid"]
    last = max(found.values(), key=lambda each: int(each["metadata"]["resourceVersion"]))
    assert last is found[MARKER], "the marker is behind them all"
    await endpoints(here, url("here"))
    assert not copied(here)


async def test_copies_follow_their_objects_and_the_selector(here: Cell) -> None:
    await offered(here, url("there"))
    await here.change(CLUSTER_ROLES, HOME, "a", rules=[{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}])
    await here.put(CLUSTER_ROLES, HOME, role("d", tier="gold"))
    await here.delete(CLUSTER_ROLES, HOME, "c")
    await here.settle(4)
    assert copied(here).keys() == {"a", "b", "d", MARKER}
    assert json.loads(copied(here)["a"]["spec"]["object"])["rules"][0]["verbs"] == ["get"]
    await here.change(CACHED_RESOURCES, HOME, "roles", spec=cached(tier="gold")["spec"])
    await here.settle(4)
    assert copied(here).keys() == {"b", "d", MARKER}
    labelled = here.found(CLUSTER_ROLES, HOME, "b")["metadata"] | {"labels": {}}
    await here.change(CLUSTER_ROLES, HOME, "b", metadata=labelled)
    await here.settle(4)
    assert copied(here).keys() == {"d", MARKER}


async def test_what_is_the_same_is_not_written_again(here: Cell) -> None:
    await offered(here, url("there"))
    with here.store.snapshot() as snapshot:
        before = snapshot.revision
    here.restart(CachedCopies(here.loopback, here.facts, "here"), from_state=True)
    await here.settle()
    with here.store.snapshot() as snapshot:
        assert snapshot.revision == before


async def test_changes_during_a_restart_are_found(here: Cell) -> None:
    await offered(here, url("there"))
    await here.delete(CLUSTER_ROLES, HOME, "a")
    await here.put(CLUSTER_ROLES, HOME, role("d"))
    here.restart(CachedCopies(here.loopback, here.facts, "here"), from_state=True)
    await here.settle()
    assert copied(here).keys() == {"b", "c", "d", MARKER}
    await here.delete_row(CACHED_RESOURCES, HOME, "roles")
    here.restart(CachedCopies(here.loopback, here.facts, "here"), from_state=True)
    await here.settle()
    assert not copied(here), "nothing else names them any more"


@pytest.mark.parametrize("change", ["identity", "export", "slice", "kind"])
async def test_nothing_is_copied_that_no_export_beside_it_offers(here: Cell, change: str) -> None:
    await offered(here, url("there"))
    assert copied(here)
    if change == "identity":
        await here.change(API_EXPORTS, HOME, "roles", spec=offer("b" * 64)["spec"])
    elif change == "export":
        await here.delete_row(API_EXPORTS, HOME, "roles")
    elif change == "slice":
        await here.delete_row(CACHED_RESOURCE_ENDPOINT_SLICES, HOME, "roles")
    else:
        await here.change(CACHED_RESOURCES, HOME, "roles", spec={**cached()["spec"], "resource": "unknown"})
    await here.settle()
    assert not copied(here)


async def test_copies_of_one_made_anew_end_in_a_marker_of_its_own(here: Cell) -> None:
    await offered(here, url("there"))
    before = copied(here)[MARKER]["spec"]["uid"]
    with here.store.snapshot() as snapshot:
        revision = snapshot.revision
    await here.delete_row(CACHED_RESOURCES, HOME, "roles")
    await here.put(CACHED_RESOURCES, HOME, cached(tier="gold"))
    await here.settle()
    assert copied(here).keys() == {"b", MARKER}
    assert copied(here)[MARKER]["spec"]["uid"] != before
    written = [entry for entry in here.store.tail(revision, 100) if entry.key.type == ROLES.type]
    assert [entry.key.name for entry in written] == [MARKER, "a", "c", MARKER], "until then there is none"
    assert [entry.operation.name for entry in written] == ["DELETED", "DELETED", "DELETED", "ADDED"]


async def test_copies_have_the_level_of_the_export_and_do_not_count(here: Cell) -> None:
    await offered(here, url("there"))
    with here.store.snapshot() as snapshot:
        total = snapshot.total(HOME).used
    export = here.found(API_EXPORTS, HOME, "roles")
    level = {replication_level.LEVEL: replication_level.REGION}
    await here.change(API_EXPORTS, HOME, "roles", metadata={**export["metadata"], "annotations": level})
    await here.settle()
    assert all(replication_level.may_hold(encode_json(each), "eu", "us") is False for each in copied(here).values())
    await endpoints(here)
    with here.store.snapshot() as snapshot:
        assert snapshot.total(HOME).used == total
    assert not copied(here)


# --- the shard of consumers ---


class Far:
    """A provider's cluster on another shard, as this shard's replicas have it."""

    def __init__(self, here: Cell) -> None:
        self.here, self.revision = here, 0
        self.set = CopySet(FAR, "roles")
        self.writer = ReplicaWriter(here.store, "here", ReplicationMetrics(CollectorRegistry()))
        self.needed = NeededCopies(self.writer, lambda: None)

    def controller(self, needed: NeededCopies) -> Controller:
        return KeptCopies(self.here.store, self.here.facts, "here", needed)

    async def send(self, key: ObjectKey, obj: Object | None) -> None:
        """A row of the other shard was written or deleted."""
        self.revision += 1
        value = b""
        if obj is not None:
            metadata = {**obj["metadata"], "resourceVersion": f"{self.revision:016d}"}
            value = encode_json({**obj, "metadata": metadata})
        await self.here.store.submit([Replica("there", key, value, self.revision, 1)])
        operation = Operation.MODIFIED if value else Operation.DELETED
        self.here.deliver_replica(LogEntry(self.revision, operation, key, value, False, 0, 0, 0))

    async def open(self) -> None:
        await self.here.store.submit([ClusterRoute(FAR, "there")])
        await self.send(ObjectKey(LOGICAL_CLUSTERS, FAR, "", "cluster"), {"metadata": {"name": "cluster"}})

    async def slice(self, *urls: str) -> None:
        obj = slice_of(*urls)
        obj["metadata"]["annotations"] = {"kcp.io/cluster": FAR}
        await self.send(ObjectKey(CACHED_RESOURCE_ENDPOINT_SLICES, FAR, "", "roles"), obj)

    async def copy(self, name: str, text: str) -> None:
        await self.send(self.set.key(name), copies.copy_of(self.set.key(name), {"metadata": {"name": name}, "x": text}))

    async def marker(self, uid: str) -> None:
        await self.send(self.set.key(MARKER), copies.marker_of(self.set.key(MARKER), uid))

    def kept(self) -> dict[str, str]:
        rows = self.here.loopback.each(Scope(self.set.type, KEPT, FAR))
        return {each["metadata"]["name"]: json.loads(each["spec"]["object"])["x"] for each in rows}

    def whole(self) -> str | None:
        with self.here.store.snapshot() as snapshot:
            record = snapshot.get(self.set.whole)
        return decode(record.value)["spec"]["uid"] if record is not None else None


@pytest.fixture
async def far(here: Cell) -> Far:
    made = Far(here)
    here.restart(made.controller(made.needed), from_state=True)
    await made.open()
    return made


async def test_a_set_is_kept_while_the_slice_has_this_shards_url(here: Cell, far: Far) -> None:
    await far.slice(url("there", FAR))
    await here.settle()
    assert far.set not in far.needed
    await far.slice(url("there", FAR), url("here", FAR))
    await here.settle()
    assert far.set in far.needed
    await far.copy("a", "one")
    await far.copy("b", "two")
    await here.settle(4)
    assert (far.kept(), far.whole()) == ({"a": "one", "b": "two"}, None), "not all of them are known to be here"
    await far.marker("first")
    await here.settle(4)
    assert far.whole() == "first"
    await far.copy("a", "changed")
    await far.send(far.set.key("b"), None)
    await here.settle(4)
    assert (far.kept(), far.whole()) == ({"a": "changed"}, "first")
    await far.slice(url("there", FAR))
    await here.settle(4)
    assert (far.kept(), far.whole(), far.set in far.needed) == ({}, None, False)
    await far.copy("a", "not needed")
    await here.settle(4)
    assert not far.kept()


async def test_readers_wait_while_the_copies_are_made_anew(here: Cell, far: Far) -> None:
    await far.slice(url("here", FAR))
    await far.copy("a", "one")
    await far.marker("first")
    await here.settle()
    assert far.whole() == "first"
    await far.send(far.set.key(MARKER), None)
    await here.settle()
    assert (far.whole(), far.kept()) == ("", {"a": "one"})
    await far.send(far.set.key("a"), None)
    await far.copy("b", "of the second")
    await far.marker("second")
    await here.settle()
    assert (far.whole(), far.kept()) == ("second", {"b": "of the second"})


async def test_a_start_finds_what_it_missed_and_what_it_no_longer_needs(here: Cell, far: Far) -> None:
    await far.slice(url("here", FAR))
    await far.copy("a", "one")
    await far.copy("b", "two")
    await far.marker("first")
    await here.settle()
    await far.send(far.set.key("a"), None)
    await far.copy("c", "three")
    again = NeededCopies(far.writer, lambda: None)
    assert far.set in again, "a start follows what the last one did"
    here.restart(far.controller(again), from_state=True)
    await here.settle()
    assert far.kept() == {"b": "two", "c": "three"}
    key = ObjectKey(CACHED_RESOURCE_ENDPOINT_SLICES, FAR, "", "roles")
    await here.store.submit([Replica("there", key, b"", 100, 1)])
    here.restart(far.controller(again), from_state=True)
    await here.settle()
    assert (far.kept(), far.whole(), far.set in again) == ({}, None, False)


async def test_large_objects_are_copied_beside_the_event_loop(here: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_rows, "LARGE_BYTES", 100)
    await offered(here, url("there"))
    assert copied(here).keys() == {"a", "b", "c", MARKER}
