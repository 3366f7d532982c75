"""Rows of other shards against a model: two dicts, under random replicas, routes, sweeps and restarts."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.storage.contract import (
    ClusterRoute,
    Mark,
    Mutation,
    ObjectMissing,
    Position,
    ReplicaView,
    Scope,
    SweepReplicas,
)
from atoll.machinery.storage.pages import position_after
from harness.data.stores import delete, gone, key, put, replica
from harness.models.replica_store import ReplicaModel
from harness.models.store_machine import StoreMachine
from harness.seeds import drawn

PLAIN, OTHER = ResourceType("", "configmaps"), ResourceType("example.dev", "others")
PATH = "paths.internal.atoll.dev/x"
CLUSTERS, ORIGINS = ("a", "ab", "root"), ("east", "eas", "w-1")
LONG = "n" * 300

object_keys = st.builds(
    ObjectKey,
    st.sampled_from([PLAIN, OTHER]),
    st.sampled_from(CLUSTERS),
    st.sampled_from(["", "x"]),
    st.sampled_from(["a", "ab", "a-b", LONG, LONG + "2"]),
)
origins = st.sampled_from(ORIGINS)
scopes = st.builds(Scope, st.sampled_from([PLAIN, OTHER]), st.sampled_from(["", *CLUSTERS]), st.sampled_from(["", "x"]))
sent = st.builds(
    lambda origin, where, revision, generation, label: (
        replica(where, revision, origin=origin, generation=generation, metadata={"labels": {PATH: label, "app": "x"}})
        if label
        else gone(where, revision, origin=origin, generation=generation)
    ),
    origins,
    object_keys,
    st.integers(1, 6),
    st.integers(1, 4),
    st.sampled_from(["", "", "1", "2"]),
)
routes = st.builds(ClusterRoute, st.sampled_from(CLUSTERS), st.sampled_from(["", *ORIGINS]), st.integers(0, 3))


class Machine(StoreMachine):
    """Random mutations on a real store and on the model."""

    def __init__(self) -> None:
        super().__init__()
        self.model = ReplicaModel()
        #: The state seen at each version, and the highest versions of all clusters.
        self.seen: dict[tuple[ResourceType, str, int], object] = {}
        self.highest = {PLAIN: 0, OTHER: 0}

    def submit(self, mutations: list[Mutation]) -> list[int]:
        return self.loop.run_until_complete(self.store.submit(mutations))

    @rule(mutations=st.lists(st.one_of(sent, sent, sent, routes), min_size=1, max_size=6), mark=st.binary(max_size=3))
    def publish(self, mutations: list[Mutation], mark: bytes) -> None:
        submitted = [*mutations, Mark("stream", mark)]
        assert self.submit(submitted) == [self.model.apply(mutation) for mutation in submitted]

    @rule(mutations=st.lists(st.one_of(sent, routes), max_size=3))
    def fail(self, mutations: list[Mutation]) -> None:
        """A failed submit changes nothing."""
        with_failure = [*mutations, Mark("stream", b"never"), delete(key("absent"), 7)]
        try:
            self.submit(with_failure)
        except ObjectMissing:
            return
        raise AssertionError("it did not fail")

    @rule(origin=origins, generation=st.integers(1, 5), limit=st.integers(1, 3))
    def sweep(self, origin: str, generation: int, limit: int) -> None:
        doomed: list[ObjectKey] = []
        after: ObjectKey | None = None
        with self.store.snapshot() as snapshot:
            while True:
                found, after = snapshot.replicas.outdated(origin, generation, after, limit)
                doomed += found
                if after is None:
                    break
        expected = self.model.below(origin, generation)
        assert len(doomed) == len(expected)
        assert {(origin, where) for where in doomed} == set(expected)
        submitted: list[Mutation] = [SweepReplicas(origin, generation), Mark("stream", b"s")]
        assert self.submit(submitted) == [self.model.apply(mutation) for mutation in submitted]

    @rule()
    def write_here(self) -> None:
        """Local writes do not affect replicas."""
        self.submit([put(key(f"n{self.store.hub.last}"))])

    @precondition(lambda self: self.model.rows)
    @rule()
    def restart(self) -> None:
        self.reopen()

    @rule(scope=scopes, limit=st.integers(1, 3))
    def page(self, scope: Scope, limit: int) -> None:
        found: list[tuple[ObjectKey, int, bytes]] = []
        after: Position | None = None
        while True:
            with self.store.snapshot() as snapshot:
                page = snapshot.replicas.scan(scope, after, limit)
                assert snapshot.replicas.revisions(scope, after, limit) == [(r.key, r.revision) for r in page]
            found += [(record.key, record.revision, record.value) for record in page]
            if len(page) < limit:
                break
            after = position_after(page[-1].key)
        assert found == self.model.counting(scope)

    @rule(type=st.sampled_from([None, PLAIN, OTHER]), value=st.sampled_from("12"), limit=st.integers(1, 3))
    def label(self, type: ResourceType | None, value: str, limit: int) -> None:
        found: list[ObjectKey] = []
        with self.store.snapshot() as snapshot:
            replica_view = snapshot.replicas
            while page := replica_view.labelled(PATH, value, type, limit, found[-1] if found else None):
                found += page
            assert replica_view.labelled(PATH, value, type) == found
            assert replica_view.labelled("app", "x") == []
        text = f'"{PATH}":"{value}"'.encode()
        rows = [row for each in (PLAIN, OTHER) for row in self.model.counting(Scope(each))]
        assert len(found) == len(set(found))
        assert set(found) == {where for where, _, stored in rows if text in stored and type in (None, where.type)}

    @rule(origin=origins, scope=scopes)
    def sender(self, origin: str, scope: Scope) -> None:
        with self.store.snapshot() as snapshot:
            found = [(r.key, r.revision, r.value) for r in snapshot.replicas.rows_of(origin, scope)]
        assert found == self.model.counting(scope, origin)

    @invariant()
    def state(self) -> None:
        with self.store.snapshot() as snapshot:
            replica_view = snapshot.replicas
            assert replica_view.count == self.model.count == self.store.hub.applied
            assert replica_view.empty == (not self.model.routes)
            assert {cluster: replica_view.route_of(cluster) for cluster in CLUSTERS} == {
                cluster: self.model.routes.get(cluster) for cluster in CLUSTERS
            }
            for _, where in self.model.rows:
                self.check_object(replica_view, where)
            for type in (PLAIN, OTHER):
                self.check_stamps(replica_view, type)
        assert self.store.get_mark("stream") == self.model.marks.get("stream")

    def check_object(self, replica_view: ReplicaView, where: ObjectKey) -> None:
        route = self.model.routes.get(where.cluster)
        row = self.model.rows.get((route.shard, where)) if route is not None else None
        found = replica_view.get(where)
        assert replica_view.revision_of(where) == (row.revision if row else 0)
        assert (found and (found.key, found.revision, found.value)) == (row and (where, row.revision, row.value))

    def check_stamps(self, replica_view: ReplicaView, type: ResourceType) -> None:
        """One version never stands for two states, and that of all clusters never falls."""
        for cluster in ("", *CLUSTERS):
            last, visible = replica_view.last(type, cluster), self.model.counting(Scope(type, cluster))
            assert self.seen.setdefault((type, cluster, last), visible) == visible
            assert last <= self.model.count
        assert replica_view.last(type, "") >= self.highest[type]
        self.highest[type] = replica_view.last(type, "")


Machine.TestCase.settings = settings(
    max_examples=drawn(50), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestReplicasAgainstModel = Machine.TestCase
