"""A model of a site: shards that create, move and delete clusters and record their published messages, and a follower
that keeps rows and routes as the store would. For the property tests of cluster ownership.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from atoll.machinery.kcp.sharding.ownership import ROOT_SHARD, Owner, claim_of, holders_of
from atoll.machinery.kcp.sharding.ownership_resolver import OwnershipResolver, Resolution
from atoll.machinery.kcp.sharding.shards import ROOTS
from atoll.machinery.meta import hashes, wellknown
from atoll.machinery.meta.names import ROOT
from atoll.machinery.meta.wellknown import BORN_ON, MOVED_GENERATION, MOVED_TO

CLUSTER, WORKSPACE, SHARD = "cluster", "workspace", "shard"
LIAR = "liar"


class Place(NamedTuple):
    """The location of an object; `name` is empty for LogicalClusters."""

    kind: str
    cluster: str
    name: str = ""


class Said(NamedTuple):
    """One message of a shard; without a value it is a deletion."""

    place: Place
    revision: int
    value: bytes | None


class Cluster:
    """The true state of a cluster. One without a parent begins on a shard: `root` for a home, its holder for a root."""

    def __init__(
        self, name: str, shard: str, parent: str = "", workspace: str = "", user: str = "", begins: str = ""
    ) -> None:
        self.name, self.shard, self.born_on = name, shard, shard
        self.parent, self.workspace, self.user, self.begins = parent, workspace, user, begins
        self.moves = 0


class Site:
    """The true state, earlier states, and each shard's messages in order."""

    def __init__(self, shards: Sequence[str]) -> None:
        self.said: dict[str, list[Said]] = {shard: [] for shard in shards}
        self.clusters: dict[str, Cluster] = {ROOT: Cluster(ROOT, "root")}
        self.owners: dict[str, set[str]] = {}
        self._roots: dict[str, list[str]] = {}
        self._revision = self._names = 0

    def say(self, shard: str, place: Place, value: dict[str, Any] | None) -> None:
        self._revision += 1
        data = json.dumps(value).encode() if value is not None else None
        self.said[shard].append(Said(place, self._revision, data))

    def create(self, parent: Cluster, shard: str) -> None:
        self._names += 1
        name = f"w{self._names}"
        uid = f"uid-{name}"
        made = Cluster(hashes.cluster_name_of(parent.name, uid, shard), shard, parent.name, name)
        self._add(made)
        self.say(shard, Place(CLUSTER, made.name), self.logical(made))
        self.say(parent.shard, Place(WORKSPACE, parent.name, name), self.claim(made))

    def home(self, shard: str) -> None:
        self._names += 1
        user = f"user-{self._names}"
        made = Cluster(hashes.home_cluster_name(user), shard, user=user, begins=ROOT_SHARD)
        self._add(made)
        if shard != ROOT_SHARD:
            made.moves = 1
            self.say(ROOT_SHARD, Place(CLUSTER, made.name), self.logical(made, moved(shard, 1)))
        self.say(shard, Place(CLUSTER, made.name), self.logical(made))

    def root(self, shard: str, *, late: bool) -> None:
        """A root of a shard; `late`: its Shard object says so after it was created."""
        self._names += 1
        path = f"tenant-{self._names}:acme"
        made = Cluster(hashes.root_cluster_name(path), shard, begins=shard)
        self._add(made)
        if not late:
            self.hold(shard, path)
        self.say(shard, Place(CLUSTER, made.name), self.logical(made))
        if late:
            self.hold(shard, path)

    def hold(self, shard: str, path: str) -> None:
        """Let a shard hold a root."""
        self._roots.setdefault(shard, []).append(path)
        annotations = {ROOTS: ",".join(self._roots[shard])}
        self.say(ROOT_SHARD, Place(SHARD, ROOT, shard), {"metadata": {"annotations": annotations}})

    def move(self, cluster: Cluster, to: str) -> None:
        """Write target, marker and Workspace; then delete the source's objects except the marker."""
        source = cluster.shard
        if source == to or cluster.name == ROOT:
            return
        cluster.moves += 1
        cluster.shard = to
        self.owners[cluster.name].add(to)
        inside = [each for each in self.clusters.values() if each.parent == cluster.name]
        self.say(to, Place(CLUSTER, cluster.name), self.logical(cluster))
        for each in inside:
            self.say(to, Place(WORKSPACE, cluster.name, each.workspace), self.claim(each))
        self.say(source, Place(CLUSTER, cluster.name), self.logical(cluster, moved(to, cluster.moves)))
        if cluster.parent:
            where = Place(WORKSPACE, cluster.parent, cluster.workspace)
            self.say(self.clusters[cluster.parent].shard, where, self.claim(cluster))
        for each in inside:
            self.say(source, Place(WORKSPACE, cluster.name, each.workspace), None)

    def delete(self, cluster: Cluster) -> None:
        if cluster.name == ROOT or any(each.parent == cluster.name for each in self.clusters.values()):
            return
        del self.clusters[cluster.name]
        if cluster.begins not in ("", cluster.shard):
            self.say(cluster.begins, Place(CLUSTER, cluster.name), None)
        self.say(cluster.shard, Place(CLUSTER, cluster.name), None)
        if cluster.parent:
            where = Place(WORKSPACE, cluster.parent, cluster.workspace)
            self.say(self.clusters[cluster.parent].shard, where, None)

    def lie(self, about: str, how: int) -> None:
        """Let the liar claim a cluster that it never had, in one of several ways."""
        if LIAR in self.owners.get(about, ()):
            return
        self._names += 1
        uid = {"metadata": {"uid": f"uid-w{self._names}", "annotations": {wellknown.SHARD: LIAR}}}
        match how:
            case 0:
                self.say(LIAR, Place(CLUSTER, about), {"spec": {}})
            case 1:
                self.say(LIAR, Place(CLUSTER, about), {"spec": {"createdBy": {"username": f"u{self._names}"}}})
            case 2:
                moved = {MOVED_TO: LIAR, MOVED_GENERATION: "99"}
                self.say(LIAR, Place(CLUSTER, about), {"metadata": {"annotations": moved}, "spec": {}})
            case 3:
                spec = {"owner": {"cluster": ROOT, "name": "lie"}}
                self.say(LIAR, Place(CLUSTER, about), {"spec": spec})
                self.say(LIAR, Place(WORKSPACE, ROOT, "lie"), {**uid, "spec": {"cluster": about}})
            case 4:
                user = self.clusters[about].user or f"nobody-yet-{self._names}"
                spec = {"createdBy": {"username": user}}
                self.say(LIAR, Place(CLUSTER, hashes.home_cluster_name(user)), {"spec": spec})
            case 5:
                path = f"stranger-{self._names}:acme"
                self.say(LIAR, Place(SHARD, ROOT, LIAR), {"metadata": {"annotations": {ROOTS: path}}})
                self.say(LIAR, Place(CLUSTER, hashes.root_cluster_name(path)), {"spec": {}})
            case _:
                for own in [each.name for each in self.clusters.values() if each.shard == LIAR]:
                    where = Place(WORKSPACE, own, f"lie-{self._names}")
                    self.say(LIAR, where, {**uid, "spec": {"cluster": about}})
                    self.say(LIAR, Place(CLUSTER, about), {"spec": {"owner": {"cluster": own, "name": where.name}}})

    def logical(self, cluster: Cluster, annotations: dict[str, str] | None = None) -> dict[str, Any]:
        spec: dict[str, Any] = {"createdBy": {"username": cluster.user}}
        if cluster.parent:
            spec["owner"] = {"cluster": cluster.parent, "name": cluster.workspace}
        return {"metadata": {"annotations": annotations or {}}, "spec": spec}

    def claim(self, cluster: Cluster) -> dict[str, Any]:
        annotations = {wellknown.SHARD: cluster.shard}
        if cluster.shard != cluster.born_on or cluster.moves:
            annotations[BORN_ON] = cluster.born_on
        uid = f"uid-{cluster.workspace}"
        return {"metadata": {"uid": uid, "annotations": annotations}, "spec": {"cluster": cluster.name}}

    def _add(self, cluster: Cluster) -> None:
        self.clusters[cluster.name] = cluster
        self.owners[cluster.name] = {cluster.shard}

    def last_said(self) -> dict[str, list[Said]]:
        """The content of the streams: the last message of each object, in order."""
        found = {}
        for shard, messages in self.said.items():
            last = {message.place: message for message in messages}
            found[shard] = [message for message in messages if last[message.place] is message]
        return found


def moved(to: str, generation: int) -> dict[str, str]:
    """The annotations of a marker."""
    return {MOVED_TO: to, MOVED_GENERATION: str(generation)}


class Follower:
    """`kcp.ownership.Rows` in memory, and the routes that were decided."""

    def __init__(self, shards: Sequence[str], own: str = "") -> None:
        self.own, self._shards = own, [shard for shard in shards if shard != own]
        self.rows: dict[tuple[str, Place], Said] = {}
        self.seats: dict[str, Owner] = {}
        self.holders: dict[str, str] = {}

    def hear(self, origin: str, message: Said, steps: int) -> Iterator[tuple[str, Owner | None]]:
        """Apply a message as the store does; return the decision, if there is one."""
        known = self.rows.get((origin, message.place))
        if known is not None and message.revision <= known.revision:
            return
        before = known.value if known is not None else None
        if message.value is None:
            self.rows.pop((origin, message.place), None)
        else:
            self.rows[origin, message.place] = message
        resolution = Resolution()
        resolver = OwnershipResolver(self, resolution)
        kind, cluster, name = message.place
        if kind == SHARD:
            self._hold(resolver)
        elif kind == WORKSPACE:
            resolver.workspace(origin, cluster, name, claim_of(cluster, before))
        else:
            resolver.logical_cluster(origin, cluster, before)
        while resolution.pending:
            decided = list(resolver.decisions(steps))
            for where, seat in decided:
                if seat is None:
                    self.seats.pop(where, None)
                else:
                    self.seats[where] = seat
            yield from decided

    def _hold(self, resolver: OwnershipResolver) -> None:
        objects = [
            (place.name, json.loads(said.value or b"{}"))
            for (shard, place), said in self.rows.items()
            if (shard, place.kind) == (ROOT_SHARD, SHARD)
        ]
        before = self.holders
        self.holders = holders_of((name, obj["metadata"]["annotations"][ROOTS]) for name, obj in objects)
        for cluster in before.keys() | self.holders.keys():
            if before.get(cluster) != self.holders.get(cluster):
                resolver.held(cluster)

    def holder(self, cluster: str) -> str:
        return self.holders.get(cluster, "")

    def seat(self, cluster: str) -> Owner | None:
        return self.seats.get(cluster)

    def origins(self) -> Sequence[str]:
        return self._shards

    def logical_cluster(self, origin: str, cluster: str) -> bytes | None:
        return self._value(origin, Place(CLUSTER, cluster))

    def workspace(self, origin: str, cluster: str, name: str) -> bytes | None:
        return self._value(origin, Place(WORKSPACE, cluster, name))

    def workspaces(self, origin: str, cluster: str, after: str, limit: int) -> Sequence[tuple[str, bytes]]:
        found = sorted(
            (place.name, said.value or b"")
            for (shard, place), said in self.rows.items()
            if (shard, place.kind, place.cluster) == (origin, WORKSPACE, cluster) and place.name > after
        )
        return found[:limit]

    def _value(self, origin: str, place: Place) -> bytes | None:
        said = self.rows.get((origin, place))
        return said.value if said is not None else None
