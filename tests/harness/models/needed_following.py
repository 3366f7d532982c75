"""A follower of a modelled site that keeps only needed rows, as `replication.needed_rows` and a consumer a shard do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from atoll.machinery.kcp.sharding.ownership import ROOT_SHARD, Owner, record_of
from atoll.machinery.meta.names import ROOT
from atoll.replication.needed_clusters import SOUGHT, NeededClusters, Reason, Workspace
from harness.models.cluster_ownership import CLUSTER, SHARD, WORKSPACE, Follower, Place, Said

Decision = tuple[str, Owner | None]


class NeededFollower:
    """Follows streams, each in its order, and reads what is newly needed out of their order."""

    def __init__(self, shards: Sequence[str], streams: dict[str, list[Said]]) -> None:
        self.follower, self.streams = Follower(shards), streams
        self.needed = NeededClusters(self._seat, self._held, lambda _: None)
        self.followed: dict[str, set[Place]] = {shard: set() for shard in shards}
        self.at = dict.fromkeys(shards, 0)

    def seek(self, cluster: str) -> None:
        self.needed.add(cluster, Reason(SOUGHT, "", cluster))

    def forget(self, cluster: str) -> None:
        self.needed.remove(cluster, Reason(SOUGHT, "", cluster))

    def take(self, shard: str, back: int, steps: int) -> Iterator[Decision]:
        """Take the next message of a stream, after going back by some if `back` is set."""
        self.at[shard] = max(0, self.at[shard] - back)
        for message in self.streams[shard][self.at[shard] : self.at[shard] + 1]:
            self.at[shard] += 1
            if message.place.kind == SHARD or message.place in self.followed[shard]:
                yield from self._hear(shard, message, steps)

    def select(self, shard: str, ahead: int, steps: int) -> Iterator[Decision]:
        """Drop what is needed no more; read what is newly needed, as it stands `ahead` messages later."""
        wanted = self._wanted(shard)
        for place in self.followed[shard] - wanted:
            self._release(shard, place)
        new = wanted - self.followed[shard]
        self.followed[shard] = wanted
        last = {message.place: message for message in self.streams[shard][: self.at[shard] + ahead]}
        for place in sorted(new & last.keys()):
            yield from self._hear(shard, last[place], steps)

    def settle(self) -> Iterator[Decision]:
        """Read everything to the end."""
        before = None
        while before != (before := self._state()):
            for shard, messages in self.streams.items():
                yield from self.select(shard, len(messages), 200)
                while self.at[shard] < len(messages):
                    yield from self.take(shard, 0, 200)

    def _state(self) -> tuple[object, ...]:
        return dict(self.at), {shard: set(places) for shard, places in self.followed.items()}

    def _wanted(self, shard: str) -> set[Place]:
        clusters = {Place(CLUSTER, each) for each in self.needed.clusters_of(shard)}
        return clusters | {Place(WORKSPACE, *each) for each in self.needed.workspaces_of(shard)}

    def _hear(self, shard: str, message: Said, steps: int) -> Iterator[Decision]:
        place, rows = message.place, self.follower.rows
        before = rows.get((shard, place))
        decided = list(self.follower.hear(shard, message, steps))
        if place.kind == CLUSTER and rows.get((shard, place)) is not before:
            if message.value is None:
                self.needed.dropped(shard, place.cluster)
            else:
                self.needed.held(shard, place.cluster, _owner(place.cluster, message.value))
        for cluster, _ in decided:
            self.needed.seated(cluster)
        yield from decided

    def _release(self, shard: str, place: Place) -> None:
        rows, seats = self.follower.rows, self.follower.seats
        rows.pop((shard, place), None)
        if place.kind != CLUSTER:
            return
        seat = seats.get(place.cluster)
        if seat is None or self.needed.needs(place.cluster):
            pass
        elif seat.shard == shard or (seat.shard, place) not in rows:
            del seats[place.cluster]
        self.needed.dropped(shard, place.cluster)

    def _seat(self, cluster: str) -> str:
        seat = self.follower.seats.get(cluster)
        return ROOT_SHARD if cluster == ROOT else seat.shard if seat is not None else ""

    def _held(self, cluster: str) -> Iterator[tuple[str, Workspace | None]]:
        for shard in self.streams:
            said = self.follower.rows.get((shard, Place(CLUSTER, cluster)))
            if said is not None:
                yield shard, _owner(cluster, said.value)


def _owner(cluster: str, value: bytes | None) -> Workspace | None:
    record = record_of(cluster, value)
    return record.owner if record is not None else None
