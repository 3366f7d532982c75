"""Placement of homes by the shard `root`: the choice of a shard, its marker, and the creation there.

`handlers.homes` comes here where a home is not known. A choice is written before its shard is called; a shard that does
not answer is given up for another one, but never once it has created the home. Invariant: of two first uses one
chooses the shard, and a later choice has a higher generation.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import NamedTuple

import structlog

from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.federation.federated_view import federated
from atoll.machinery.apiserver.writing.batch import Batch
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.apiserver.writing.target import Target
from atoll.machinery.client.client import Client
from atoll.machinery.client.resource import Resource
from atoll.machinery.kcp.sharding.scheduling import Candidate, Unschedulable
from atoll.machinery.kcp.workspaces import homes
from atoll.machinery.kcp.workspaces.homes import HomeUser, Seat
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.status import AlreadyExists, Conflict, Details, NotFound, TooManyRequests
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.meta.wellknown import SINGLETON
from atoll.machinery.process.retry import ATTEMPTS
from atoll.machinery.storage.contract import Snapshot
from atoll.replication.peers import PEER_ERRORS, TIMEOUT_S, Peers
from atoll.shard.handlers.home_claims import HomeClaims
from atoll.tenancy.placement import ShardPlacement

log = structlog.get_logger()

CLUSTERS = Resource("core.kcp.io", "v1alpha1", "logicalclusters", namespaced=False)
#: Metadata that stays where one choice takes the place of another.
_KEPT = ("uid", "resourceVersion", "creationTimestamp", "generation")


class _Absent(Exception):
    """A home that its shard does not have any more (`is_gone`), or does not answer for."""

    def __init__(self, *, is_gone: bool) -> None:
        super().__init__()
        self.is_gone = is_gone


def home_of(view: View, cluster: str) -> Object | None:
    """Return the LogicalCluster of a home, or its marker."""
    record = view.get(_key(cluster))
    return decode(record.value) if record is not None else None


def current_home(snapshot: Snapshot, cluster: str) -> Object | None:
    """Return a home as this process has it; None for one of an earlier choice than its marker's."""
    found = home_of(federated(snapshot), cluster)
    if found is None or homes.seat_of(found) is None:
        return found
    row = snapshot.replicas.get(_key(cluster))
    home = decode(row.value) if row is not None else None
    return None if home is None or homes.is_outdated(home, homes.generation_of(found)) else home


class Seats(NamedTuple):
    """Where homes can be: the known shards, those that claim a cluster, and clients of the others."""

    placement: ShardPlacement
    claims: HomeClaims
    peers: Peers | None


class HomePlacement:
    """Places homes. `build` returns a batch with all objects of a new home on this shard."""

    def __init__(self, loopback: Loopback, seats: Seats, build: Callable[[HomeUser, Seat], Batch]) -> None:
        self._loopback, self._build = loopback, build
        self._placement, self._claims, self._peers = seats

    async def create(self, user: HomeUser, region: str) -> Object:
        """Return the LogicalCluster of a user's home, created if there is none. Raises TooManyRequests."""
        silent: set[str] = set()
        for _ in range(ATTEMPTS):
            seat = self._seat(user.cluster)
            if seat is None or seat.shard in silent or self._is_lost(seat):
                await self._place(user, region, silent, seat)
                seat = self._seat(user.cluster)
            if seat is None:
                continue
            try:
                return await self._home_at(user, seat)
            except _Absent as absent:
                if absent.is_gone:
                    await self._place(user, region, silent, seat)
                elif seat.is_created:
                    # It is there, though its shard does not answer now.
                    break
                else:
                    silent.add(seat.shard)
        raise TooManyRequests("Creating the home workspace", Details(retry_after_s=1))

    # --- the choice

    def _seat(self, cluster: str) -> Seat | None:
        """Return the shard that was chosen for a home; None before a choice."""
        with self._loopback.store.snapshot() as snapshot:
            found = home_of(snapshot, cluster)
        if found is None:
            return None
        own = Seat(self._placement.own, homes.generation_of(found), is_created=True)
        return homes.seat_of(found) or own

    def _is_lost(self, seat: Seat) -> bool:
        with self._loopback.store.snapshot() as snapshot:
            return self._placement.is_lost_home(snapshot, seat)

    async def _place(self, user: HomeUser, region: str, silent: Collection[str], before: Seat | None) -> None:
        """Write a new choice. If another request of the same user chose first, its choice counts; if the marker or an
        object that the home's bindings need was written concurrently, the caller tries again."""
        chosen = self._choose(user, region, {*silent, *await self._claims.shards(user.cluster)})
        generation = homes.next_generation(before.generation if before is not None else 0, time.time())
        with suppress(AlreadyExists, Conflict):
            await self._placed(user, Seat(chosen.name, generation, chosen.store), before).try_submit()

    def _choose(self, user: HomeUser, region: str, without: Collection[str]) -> Candidate:
        """Return the shard for a new home. Raises TooManyRequests."""
        with self._loopback.store.snapshot() as snapshot:
            try:
                return self._placement.choose_home(snapshot, user.path, region, without)
            except Unschedulable as error:
                raise TooManyRequests(str(error), Details(retry_after_s=1)) from error

    def _placed(self, user: HomeUser, seat: Seat, before: Seat | None) -> Batch:
        """Return a batch with a new home, or with the marker of one on another shard and the route to it.

        A home that takes the place of a marker here is built by the controller of roots. Raises AlreadyExists where
        the choice before is not the last one any more.
        """
        is_here = seat.shard == self._placement.own
        if is_here and before is None:
            return self._build(user, seat)
        batch = self._loopback.batch()
        wanted = homes.home(user, seat) if is_here else homes.marker(user, seat)
        if before is None:
            batch.create(self._target(user.cluster), wanted)
        else:
            found = _marker(batch, user.cluster, before.generation)
            if found is None:
                raise AlreadyExists("another request chose first")
            kept = {field: found["metadata"][field] for field in _KEPT if field in found["metadata"]}
            changed = {**wanted, "metadata": {**kept, **wanted["metadata"]}}
            batch.update(self._target(user.cluster), changed, whole=True)
        batch.route(user.cluster, "" if is_here else seat.shard, seat.generation)
        return batch

    def _target(self, cluster: str) -> Target:
        return Target(self._loopback.core.catalogs.builtin(LOGICAL_CLUSTERS), cluster, "", SINGLETON)

    # --- the home

    async def _home_at(self, user: HomeUser, seat: Seat) -> Object:
        """Return the LogicalCluster of a home on the shard chosen for it, created there if it was not yet.

        Raises _Absent for a shard that does not have it any more, or does not answer for it.
        """
        with self._loopback.store.snapshot() as snapshot:
            found = current_home(snapshot, user.cluster)
        if found is not None:
            return found
        if self._peers is None or seat.shard == self._placement.own:
            raise _Absent(is_gone=False)
        try:
            client = self._peers.client(seat.shard).cluster(user.cluster)
            async with asyncio.timeout(TIMEOUT_S):
                made = await (_existing(client) if seat.is_created else _created(client, homes.home(user, seat)))
        except PEER_ERRORS as error:
            log.warning("shard has no home", shard=seat.shard, reason=str(error) or type(error).__name__)
            raise _Absent(is_gone=seat.is_created and isinstance(error, NotFound)) from error
        if homes.is_outdated(made, seat.generation):
            # Of an earlier choice, which was given up: it goes.
            raise _Absent(is_gone=seat.is_created)
        if not seat.is_created and not await self._note(user.cluster, seat):
            raise _Absent(is_gone=False)
        return made

    async def _note(self, cluster: str, seat: Seat) -> bool:
        """Note on the marker that the home is there. Returns False if another shard was chosen meanwhile."""
        for _ in range(ATTEMPTS):
            batch = self._loopback.batch()
            found = _marker(batch, cluster, seat.generation)
            if found is None:
                return False
            with suppress(Conflict):
                batch.update(self._target(cluster), homes.created(found), whole=True)
                if await batch.try_submit():
                    return True
        return False


def _marker(view: View, cluster: str, generation: int) -> Object | None:
    """Return the marker of a choice; None where there is another one, or none."""
    found = home_of(view, cluster)
    seat = homes.seat_of(found) if found is not None else None
    return found if seat is not None and seat.generation == generation else None


async def _existing(client: Client) -> Object:
    return await client.get(CLUSTERS, SINGLETON)


async def _created(client: Client, wanted: Object) -> Object:
    try:
        return await client.create(CLUSTERS, wanted)
    except AlreadyExists:
        return await _existing(client)


def _key(cluster: str) -> ObjectKey:
    return ObjectKey(LOGICAL_CLUSTERS, cluster, "", SINGLETON)
