"""The store against a model: a dict for each revision and a list of changes, under random operations."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import decode, splice
from atoll.machinery.storage.contract import (
    Check,
    Delete,
    DeletePrefix,
    Mutation,
    ObjectExists,
    ObjectMissing,
    Operation,
    Put,
    RevisionCompacted,
    RevisionConflict,
    Scope,
    StoreError,
)
from harness.data.stores import listed, pages, put
from harness.models.store_machine import StoreMachine
from harness.seeds import drawn

PLAIN = ResourceType("", "configmaps")
SEALED = ResourceType("", "secrets")
LONG = "n" * 300
INDEXED = "claimed.internal.apis.kcp.io/h"

types = st.sampled_from([PLAIN, SEALED])
clusters = st.sampled_from(["a", "ab", "root:x"])
namespaces = st.sampled_from(["", "x", "x-y"])
names = st.sampled_from(["a", "ab", "a-b", "a.b", LONG, LONG + "2"])
object_keys = st.builds(ObjectKey, types, clusters, namespaces, names)
scopes = st.builds(Scope, types, st.sampled_from(["", "a", "ab"]), st.sampled_from(["", "x"]))
# With finalizers a prefix delete must leave it; with an owner the index rows must follow.
metadata = st.fixed_dictionaries(
    {},
    optional={
        "finalizers": st.just(["f/x"]),
        "ownerReferences": st.lists(st.fixed_dictionaries({"uid": st.sampled_from(["u1", "u2"])}), max_size=2),
        "labels": st.dictionaries(st.sampled_from([INDEXED, "app"]), st.sampled_from("12"), max_size=2),
    },
)


#: A change as the model keeps it: revision, operation, key, image.
Logged = tuple[int, Operation, ObjectKey, bytes]


class Machine(StoreMachine):
    """Random operations on a real store and on the model."""

    def __init__(self) -> None:
        super().__init__(sealed_types=(SEALED,), log_retention_s=600, ring_bytes=4_000)
        self.now: dict[ObjectKey, tuple[int, bytes, bool]] = {}
        self.states: dict[int, dict[ObjectKey, bytes]] = {0: {}}
        self.log: list[Logged] = []
        self.cursors: list[tuple[Scope, int, list[Logged], object]] = []

    def do(self, *mutations: Mutation) -> list[int] | StoreError:
        try:
            return self.loop.run_until_complete(self.store.submit(list(mutations)))
        except StoreError as error:
            return error

    @property
    def last(self) -> int:
        return self.log[-1][0] if self.log else 0

    # --- the model

    def expected_error(self, mutations: list[Mutation]) -> type[StoreError] | None:
        for mutation in mutations:
            assert isinstance(mutation, Put | Delete | Check)
            stands = self.now[mutation.key][0] if mutation.key in self.now else 0
            if stands != mutation.expected:
                return ObjectExists if not mutation.expected else ObjectMissing if not stands else RevisionConflict
        return None

    def apply(self, mutation: Mutation, revision: int) -> None:
        if isinstance(mutation, Put):
            value = splice(mutation.value, mutation.hole, revision)
            operation = Operation.MODIFIED if mutation.key in self.now else Operation.ADDED
            self.now[mutation.key] = (revision, value, b'"finalizers"' in value)
            self.holes = {**getattr(self, "holes", {}), mutation.key: mutation.hole}
            self.note(revision, operation, mutation.key, value)
        elif isinstance(mutation, Delete):
            _, value, _ = self.now.pop(mutation.key)
            gone = splice(value, self.holes[mutation.key], revision)
            self.note(revision, Operation.DELETED, mutation.key, gone)

    def note(self, revision: int, operation: Operation, where: ObjectKey, value: bytes) -> None:
        assert revision > self.last
        self.log.append((revision, operation, where, value))
        self.states[revision] = {each: stands[1] for each, stands in self.now.items()}

    # --- writes

    @rule(where=object_keys, meta=metadata, data=st.text(max_size=20), drift=st.sampled_from([0, 0, 0, 1, -1]))
    def write(self, where: ObjectKey, meta: dict[str, object], data: str, drift: int) -> None:
        stands = self.now[where][0] if where in self.now else 0
        self.submit([put(where, expected=max(0, stands + drift), data=data, metadata=meta)])

    @rule(where=object_keys, drift=st.sampled_from([0, 0, 1]))
    def remove(self, where: ObjectKey, drift: int) -> None:
        stands = self.now[where][0] if where in self.now else 7
        self.submit([Delete(where, stands + drift)])

    @rule(
        chosen=st.lists(object_keys, min_size=2, max_size=4, unique=True),
        kinds=st.lists(st.integers(0, 2), min_size=4, max_size=4),
    )
    def several(self, chosen: list[ObjectKey], kinds: list[int]) -> None:
        """All or nothing: a Delete of an absent object fails the whole submit."""
        mutations: list[Mutation] = []
        for where, kind in zip(chosen, kinds, strict=False):
            stands = self.now[where][0] if where in self.now else 0
            made: list[Mutation] = [put(where, expected=stands), Check(where, stands), Delete(where, stands or 9)]
            mutations.append(made[kind])
        self.submit(mutations)

    def submit(self, mutations: list[Mutation]) -> None:
        expected = self.expected_error(mutations)
        result = self.do(*mutations)
        if expected is not None:
            assert type(result) is expected
            return
        assert isinstance(result, list)
        for mutation, revision in zip(mutations, result, strict=True):
            assert (revision == 0) == isinstance(mutation, Check)
            self.apply(mutation, revision)

    @rule(scope=scopes, limit=st.integers(1, 3))
    def remove_prefix(self, scope: Scope, limit: int) -> None:
        before = self.last
        doomed = [k for k in self.scoped(self.now, scope) if not self.now[k][2]]
        result = self.do(DeletePrefix(scope, limit))
        assert isinstance(result, list)
        assert result == [min(limit, len(doomed))]
        gone = self.store.tail(before)
        assert len(gone) == result[0]
        for entry in gone:
            assert entry.key in doomed
            self.apply(Delete(entry.key, 1), entry.revision)

    # --- reads

    @staticmethod
    def scoped(keys: object, scope: Scope) -> list[ObjectKey]:
        return [
            each
            for each in keys  # type: ignore[attr-defined]
            if each.type == scope.type
            and (not scope.cluster or each.cluster == scope.cluster)
            and (not scope.namespace or each.namespace == scope.namespace)
        ]

    @rule(scope=scopes, limit=st.sampled_from([0, 1, 2]), value=st.sampled_from("12"), back=st.integers(0, 4))
    def list_by_an_indexed_label(self, scope: Scope, limit: int, value: str, back: int) -> None:
        at = self.log[-1 - back][0] if len(self.log) > back else 0
        if at and self.expired(at):
            return
        state = self.states[at or self.last]
        every = [state[each] for each in self.scoped(state, scope)]
        carrying = [each for each in every if decode(each)["metadata"].get("labels", {}).get(INDEXED) == value]
        found: list[bytes] = []
        for page in pages(self.store, scope, at=at, limit=limit, size_bytes=500, label=(INDEXED, value)):
            found += page.values
        if at in {0, self.last}:
            assert sorted(found) == sorted(carrying)
        assert set(carrying) <= set(found) <= set(every)
        assert len(found) == len(set(found))

    @rule(scope=scopes, limit=st.sampled_from([0, 1, 2, 3]), back=st.integers(0, 8))
    def list_then_write_between_slices(self, scope: Scope, limit: int, back: int) -> None:
        """Slices of one list show one state, despite writes between them."""
        at = self.log[-1 - back][0] if len(self.log) > back else 0
        if at and self.expired(at):
            with pytest.raises(RevisionCompacted):
                self.store.page(scope, at=at)
            return
        state = self.states[at or self.last]
        expected = sorted(state[each] for each in self.scoped(state, scope))
        found: list[bytes] = []
        for index, page in enumerate(pages(self.store, scope, at=at, limit=limit, size_bytes=500)):
            found += page.values
            assert page.revision == (at or self.last if not index else page.revision)
            assert page.remaining in (-1, len(expected) - len(found))
            where = ObjectKey(scope.type, scope.cluster or "a", "x", "between")
            stands = self.now[where][0] if where in self.now else 0
            self.submit([put(where, expected=stands)])
        assert sorted(found) == expected

    def expired(self, at: int) -> bool:
        """Whether an exact revision is gone: the first entry above it is past the window, or compacted."""
        following = [entry[0] for entry in self.log if entry[0] > at]
        horizon = int((self.time.wall_s - self.options.list_window_s) * 1_000_000)
        return bool(following) and following[0] < horizon

    @rule(scope=scopes)
    def order(self, scope: Scope) -> None:
        short = [each for each in self.scoped(self.now, scope) if len(each.name) < 255]
        short.sort(key=lambda each: (each.cluster, each.namespace, each.name))
        expected = [self.now[each][1] for each in short]
        found = [value for value in listed(self.store, scope) if LONG.encode() not in value]
        assert found == expected

    @rule(scope=scopes, back=st.integers(0, 12))
    def watch(self, scope: Scope, back: int) -> None:
        start = self.log[-1 - back][0] if len(self.log) > back else 0
        try:
            cursor = self.store.cursor(scope, start)
        except RevisionCompacted:
            assert start < self.store.compacted
            return
        self.cursors.append((scope, start, [], cursor))

    @precondition(lambda self: self.cursors)
    @rule(which=st.integers(0, 20), limit=st.integers(1, 4))
    def read(self, which: int, limit: int) -> None:
        scope, start, seen, cursor = self.cursors[which % len(self.cursors)]
        try:
            changes = cursor.read(limit)  # type: ignore[attr-defined]
        except RevisionCompacted:
            assert cursor.position < self.store.compacted  # type: ignore[attr-defined]
            self.cursors.remove((scope, start, seen, cursor))
            return
        for change in changes:
            self.check_before(change)
        seen += [(change.revision, change.operation, change.key, change.after) for change in changes]
        self.compare(scope, start, seen, cursor.position)  # type: ignore[attr-defined]

    def check_before(self, change: object) -> None:
        where, revision = change.key, change.revision  # type: ignore[attr-defined]
        earlier = [entry for entry in self.log if entry[2] == where and entry[0] < revision]
        stood = earlier[-1] if earlier and earlier[-1][1] != Operation.DELETED else None
        assert change.before == (stood[3] if stood else None)  # type: ignore[attr-defined]
        assert change.previous == (stood[0] if stood else 0)  # type: ignore[attr-defined]

    def compare(self, scope: Scope, start: int, seen: list[Logged], to: int) -> None:
        inside = set(self.scoped([entry[2] for entry in self.log], scope))
        expected = [entry for entry in self.log if start < entry[0] <= to and entry[2] in inside]
        assert seen == expected

    # --- time

    @rule(seconds=st.sampled_from([1, 60, 299, 400]))
    def time_passes(self, seconds: int) -> None:
        self.time.pass_time(seconds)

    @rule()
    def compact(self) -> None:
        self.loop.run_until_complete(self.store.maintain())
        horizon = int((self.time.wall_s - 600) * 1_000_000)
        dropped = [entry[0] for entry in self.log if entry[0] <= horizon]
        assert self.store.compacted == (dropped[-1] if dropped else 0)

    @rule()
    def restart(self) -> None:
        self.cursors.clear()
        self.reopen()

    @rule()
    def rotate(self) -> None:
        self.loop.run_until_complete(self.store.reseal())

    @invariant()
    def current_state(self) -> None:
        with self.store.snapshot() as snapshot:
            assert snapshot.revision == self.last
            for where, (revision, value, _) in self.now.items():
                record = snapshot.get(where)
                assert record is not None
                assert (record.revision, record.value, record.key) == (revision, value, where)

    def teardown(self) -> None:
        for scope, start, seen, cursor in self.cursors:
            try:
                for change in cursor.read(10_000):  # type: ignore[attr-defined]
                    seen.append((change.revision, change.operation, change.key, change.after))
            except RevisionCompacted:
                assert cursor.position < self.store.compacted  # type: ignore[attr-defined]
                continue
            assert cursor.position >= self.last  # type: ignore[attr-defined]
            self.compare(scope, start, seen, self.last)
        super().teardown()


Machine.TestCase.settings = settings(
    max_examples=drawn(60), stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
TestStoreAgainstModel = Machine.TestCase
