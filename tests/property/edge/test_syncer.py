"""A syncer that is killed between any two actions leaves the edge as the mailbox says, and no object written twice."""

from __future__ import annotations

import copy
import random
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.machinery.edge.applied import record_of
from atoll.machinery.edge.names import ADOPTED, DOWNSYNCED, OVERWRITE, SYNCER, ObjectRef
from atoll.machinery.edge.plan import Action, Annotate, Apply, Delete, SyncState, Wanted, acknowledged, is_made_by, plan
from atoll.machinery.edge.syncerconfigs import plan_parts, specs_of
from atoll.machinery.edge.syncset import sync_set
from atoll.machinery.meta.objects import Object, annotations_of
from atoll.machinery.patch.managedfields.apply import apply_patch
from atoll.machinery.patch.managedfields.managers import Manager
from atoll.machinery.patch.managedfields.options import ApplyOptions
from atoll.machinery.patch.managedfields.update import track_update
from harness.data.patch_schemas import SCHEMA, thing
from harness.seeds import drawn

GROUP, ME = "example.io", "sync-target-uid"
NOW = "2026-01-01T00:00:00Z"


def thing_ref(namespace: str, name: str) -> ObjectRef:
    return ObjectRef(GROUP, "things", namespace, name)


def namespace_ref(name: str) -> ObjectRef:
    return ObjectRef("", "namespaces", "", name)


class Edge:
    """An edge cluster: server-side apply, updates, deletions of Namespaces with what is in them."""

    def __init__(self) -> None:
        self.objects: dict[ObjectRef, Object] = {}
        self.writes_of_equal_objects = 0
        self._revision = 0

    def do(self, action: Action) -> Object | None:
        live = self.objects.get(action.ref)
        if isinstance(action, Delete):
            assert live is not None
            assert (live["metadata"]["uid"], live["metadata"]["resourceVersion"]) == (
                action.uid,
                action.resource_version,
            )
            self.delete(action.ref)
            return None
        if isinstance(action, Annotate):
            assert live is not None
            changed = copy.deepcopy(live)
            changed["metadata"]["annotations"] = {**annotations_of(changed), **action.annotations}
            return self.update("annotator", action.ref, changed)
        assert not action.ref.namespace or namespace_ref(action.ref.namespace) in self.objects
        who = Manager(SYNCER, "Apply", action.configuration["apiVersion"])
        new = apply_patch(live, action.configuration, who, SCHEMA, ApplyOptions(force=True, now=NOW))
        if live == new:
            self.writes_of_equal_objects += 1
        return self._store(action.ref, new)

    def update(self, manager: str, ref: ObjectRef, new: Object) -> Object:
        if ref.namespace and namespace_ref(ref.namespace) not in self.objects:
            bare = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ref.namespace}}
            self._store(namespace_ref(ref.namespace), bare)
        track_update(self.objects.get(ref), new, Manager(manager, "Update", new["apiVersion"]), SCHEMA, NOW)
        return self._store(ref, new)

    def delete(self, ref: ObjectRef) -> None:
        self.objects.pop(ref, None)
        if ref.resource == "namespaces":
            self.objects = {each: obj for each, obj in self.objects.items() if each.namespace != ref.name}

    def _store(self, ref: ObjectRef, new: Object) -> Object:
        self._revision += 1
        before = self.objects.get(ref, {"metadata": {}})["metadata"]
        system = {"uid": before.get("uid", f"edge-{self._revision}"), "resourceVersion": str(self._revision)}
        self.objects[ref] = {**new, "metadata": {**new["metadata"], **system}}
        return self.objects[ref]


class Mailbox:
    """Objects, and the SyncerConfigs that list them, which a translator writes one by one."""

    def __init__(self) -> None:
        self.objects: dict[ObjectRef, Object] = {}
        self.parts: dict[str, Object] = {}

    def place(self, ref: ObjectRef, spec: Object | None, annotations: dict[str, str]) -> None:
        metadata = {"uid": f"mailbox-{ref.namespace}-{ref.name}", "annotations": annotations}
        if ref.resource == "namespaces":
            obj: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ref.name, **metadata}}
        else:
            obj = thing(spec, **metadata)
            obj["metadata"] |= {"name": ref.name, "namespace": ref.namespace}
        self.objects[ref] = obj

    def list(self, writes: int) -> None:
        """Do so many writes of the translator."""
        plans = plan_parts(specs_of(dict.fromkeys(self.objects, "v1"), [], 300), self.parts.values(), 1)
        for each in (*plans.create, *plans.apply)[:writes]:
            self.parts[each["metadata"]["name"]] = each
        if writes > len(plans.create) + len(plans.apply):
            for each in plans.delete:
                del self.parts[each["metadata"]["name"]]

    def wanted(self, is_complete: bool = True) -> Wanted:
        return Wanted(dict(self.objects), sync_set(self.parts.values()), is_complete)


class Syncer:
    """The loop around the plan, which may stop anywhere and lose what it remembers."""

    def __init__(self, edge: Edge, mailbox: Mailbox) -> None:
        self.edge, self.mailbox = edge, mailbox
        self.state = SyncState(ME)
        self.made: set[ObjectRef] = set()

    def run(self, limit: int, keeps_records: bool = True) -> int:
        wanted = self.mailbox.wanted()
        actions = plan(wanted, self.edge.objects, self.state, 0.0)
        self.state = acknowledged(wanted, self.state)
        for action in actions[:limit]:
            existed = action.ref in self.edge.objects
            answer = self.edge.do(action)
            if isinstance(action, Apply) and answer is not None:
                assert action.is_new != existed
                if not existed and DOWNSYNCED in annotations_of(answer):
                    self.made.add(action.ref)
                record = record_of(action.configuration, answer, SYNCER)
                if keeps_records:
                    records = {**self.state.records, action.ref: record}
                    self.state = msgspec.structs.replace(self.state, records=records)
        return len(actions)


NAMES = st.sampled_from(("x", "y", "z"))
SPACES = st.sampled_from(("a", "b"))
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "replicas": st.integers(0, 2),
        "map": st.dictionaries(st.sampled_from("pq"), st.sampled_from("12"), min_size=1, max_size=2),
        "items": st.lists(st.sampled_from("pq"), unique=True, min_size=1).map(lambda all: [{"name": n} for n in all]),
    },
).filter(bool)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("place"), SPACES, NAMES, SPECS, st.sampled_from(({}, {}, {OVERWRITE: "false"}))),
        st.tuples(st.just("place namespace"), SPACES),
        st.tuples(st.just("withdraw"), SPACES, NAMES),
        st.tuples(st.just("withdraw namespace"), SPACES),
        st.tuples(st.just("list"), st.sampled_from((1, 2, 99, 99))),
        st.tuples(st.just("edit at the edge"), SPACES, NAMES, SPECS),
        st.tuples(st.just("delete at the edge"), SPACES, NAMES),
        st.tuples(st.just("sync"), st.sampled_from((1, 2, 3, 99)), st.booleans()),
        st.tuples(st.just("lose state")),
    ),
    max_size=18,
)


def do(step: tuple[Any, ...], edge: Edge, mailbox: Mailbox, syncer: Syncer) -> None:
    kind, *rest = step
    if kind == "place":
        mailbox.place(thing_ref(*rest[:2]), *rest[2:])
    elif kind == "place namespace":
        mailbox.place(namespace_ref(rest[0]), None, {})
    elif kind == "withdraw":
        mailbox.objects.pop(thing_ref(*rest), None)
    elif kind == "withdraw namespace":
        mailbox.objects.pop(namespace_ref(rest[0]), None)
    elif kind == "list":
        mailbox.list(rest[0])
    elif kind == "edit at the edge":
        ref = thing_ref(*rest[:2])
        base = copy.deepcopy(edge.objects.get(ref)) or thing({}, name=ref.name, namespace=ref.namespace)
        edge.update("owner", ref, {**base, "spec": {**base.get("spec", {}), **rest[2]}})
        if DOWNSYNCED not in annotations_of(edge.objects[ref]):
            syncer.made.discard(ref)
    elif kind == "delete at the edge":
        edge.delete(thing_ref(*rest))
        syncer.made.discard(thing_ref(*rest))
    elif kind == "sync":
        syncer.run(*rest)
    else:
        syncer.state = SyncState(ME)


@settings(max_examples=drawn(120))
@given(STEPS)
def test_the_edge_ends_as_the_mailbox_says_whenever_the_syncer_is_killed(steps: list[tuple[Any, ...]]) -> None:
    edge, mailbox = Edge(), Mailbox()
    syncer = Syncer(edge, mailbox)
    for step in steps:
        before = dict(edge.objects)
        do(step, edge, mailbox, syncer)
        if step[0] == "sync":
            # Nothing but what the syncer made is ever deleted.
            assert all(ref in syncer.made for ref in before if ref not in edge.objects)
        syncer.made &= set(edge.objects)
    mailbox.list(99)
    while syncer.run(99):
        pass
    assert edge.writes_of_equal_objects == 0
    for ref, source in mailbox.objects.items():
        found = edge.objects[ref]
        marks = annotations_of(found)
        if annotations_of(source).get(OVERWRITE) == "false":
            assert marks[OVERWRITE] == "false"
            continue
        assert (DOWNSYNCED in marks) != (ADOPTED in marks)
        for name, value in source.get("spec", {}).items():
            live = found["spec"][name]
            assert value.items() <= live.items() if isinstance(value, dict) else live == value or name == "items"
    left = [
        ref
        for ref, obj in edge.objects.items()
        if ref not in mailbox.objects and is_made_by(ME, ref, obj) and annotations_of(obj).get(OVERWRITE) != "false"
    ]
    # A Namespace stays while somebody's objects are in it.
    assert all(any(each.namespace == ref.name for each in edge.objects) for ref in left)
    assert all(ref.resource == "namespaces" for ref in left)
    placed = set(edge.objects)
    mailbox.objects.clear()
    mailbox.list(99)
    while syncer.run(99):
        pass
    assert placed - set(edge.objects) <= syncer.made


@settings(max_examples=drawn(60))
@given(STEPS, st.randoms(use_true_random=False))
def test_nothing_is_deleted_under_a_list_that_is_older_incomplete_or_half_written(
    steps: list[tuple[Any, ...]], chance: random.Random
) -> None:
    edge, mailbox = Edge(), Mailbox()
    syncer = Syncer(edge, mailbox)
    for step in steps:
        do(step, edge, mailbox, syncer)
    mailbox.list(99)
    while syncer.run(99):
        pass
    state = syncer.state
    survivors = set(edge.objects)
    mailbox.place(thing_ref("a", "new"), {"replicas": 1}, {})
    mailbox.list(99)
    syncer.run(99)
    for ref in list(mailbox.objects):
        if chance.random() < 0.5:
            del mailbox.objects[ref]
    # Objects are missing in the mailbox, but the list still has them.
    assert not deletions(plan(mailbox.wanted(), edge.objects, syncer.state, 0.0))
    mailbox.list(99)
    assert not deletions(plan(mailbox.wanted(is_complete=False), edge.objects, state, 0.0))
    newer = msgspec.structs.replace(state, number=10**15)
    assert not deletions(plan(mailbox.wanted(), edge.objects, newer, 0.0))
    mailbox.parts.pop("the-one")
    assert not deletions(plan(mailbox.wanted(), edge.objects, state, 0.0))
    assert survivors <= set(edge.objects)


def deletions(actions: list[Action]) -> list[Action]:
    return [each for each in actions if isinstance(each, Delete)]
