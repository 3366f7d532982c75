"""What came up equals what sets ask for, whenever the syncer is killed between two writes, and nothing else changes."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.edge.syncset import SyncSet, sync_set
from atoll.machinery.edge.upsync import PutCopy, is_upsynced, plan_upsync
from atoll.machinery.meta.objects import Object
from harness.seeds import drawn

NAMES = st.sampled_from(("x", "y", "z"))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("edge"), NAMES, st.integers(0, 2)),
        st.tuples(st.just("gone"), NAMES),
        st.tuples(st.just("somebody"), NAMES),
        st.tuples(st.just("sets"), st.lists(NAMES, unique=True)),
        st.tuples(st.just("sync"), st.integers(1, 3)),
    ),
    max_size=20,
)


def ref_of(name: str) -> ObjectRef:
    return ObjectRef("x.dev", "cogs", "a", name)


def thing(name: str, revision: int, **fields: Any) -> Object:
    metadata = {"name": name, "namespace": "a", "uid": f"u{revision}", "resourceVersion": str(revision)}
    return {"apiVersion": "x.dev/v1", "kind": "Cog", "metadata": metadata, **fields}


def carried(names: list[str]) -> SyncSet:
    sets = {"apiGroup": "x.dev", "resources": ["cogs"], "namespaces": ["*"], "names": names}
    metadata = {"name": "the-one", "annotations": {"edge.kubestellar.io/whole": "1"}}
    return sync_set([{"metadata": metadata, "spec": {"upsync": [sets]}}])


@settings(max_examples=drawn(60))
@given(STEPS)
def test_the_mailbox_ends_with_the_objects_that_sets_ask_for_and_with_what_others_made(
    steps: list[tuple[Any, ...]],
) -> None:
    live: dict[ObjectRef, Object] = {}
    held: dict[ObjectRef, Object] = {}
    others: dict[ObjectRef, Object] = {}
    names: list[str] = []
    writes = 0

    def sync(limit: int) -> int:
        nonlocal writes
        plan = plan_upsync(carried(names), live, held, "edge")
        for write in plan.writes[:limit]:
            writes += 1
            before = held.pop(write.ref, None)
            assert write.resource_version == ("" if before is None else before["metadata"]["resourceVersion"])
            if isinstance(write, PutCopy):
                system = {"uid": f"m{writes}", "resourceVersion": str(10_000 + writes)}
                held[write.ref] = {**write.obj, "metadata": {**write.obj["metadata"], **system}}
        return len(plan.writes)

    for number, (kind, *rest) in enumerate(steps, 1):
        if kind == "edge":
            live[ref_of(rest[0])] = thing(rest[0], number, spec={"a": rest[1]}, status={"b": rest[1]})
        elif kind == "gone":
            live.pop(ref_of(rest[0]), None)
        elif kind == "somebody" and ref_of(rest[0]) not in held:
            held[ref_of(rest[0])] = others[ref_of(rest[0])] = thing(rest[0], number)
        elif kind == "sets":
            names = rest[0]
        elif kind == "sync":
            sync(rest[0])
    while sync(99):
        pass
    assert {ref: obj for ref, obj in held.items() if not is_upsynced(ref, obj)} == others
    up = {ref: obj for ref, obj in held.items() if is_upsynced(ref, obj)}
    expected = {ref for ref in live if ref.name in names and ref not in others}
    assert set(up) == expected
    assert all((up[ref]["spec"], up[ref]["status"]) == (live[ref]["spec"], live[ref]["status"]) for ref in expected)
