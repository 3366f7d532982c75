"""Copies: an apply that is left out would have changed nothing, what was rendered stays, and lists are complete."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.machinery.edge.applied import is_in_force, record_of
from atoll.machinery.edge.list_edits import edited
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.edge.placements import UpsyncSet
from atoll.machinery.edge.projection import is_system_key, portable
from atoll.machinery.edge.syncerconfigs import plan_parts, specs_of, whole_number
from atoll.machinery.edge.syncset import sync_set
from atoll.machinery.meta.objects import Object
from harness.data.patch_schemas import Live, thing
from harness.seeds import drawn

WORDS = st.sampled_from("pqr")
MAPS = st.dictionaries(WORDS, WORDS, max_size=2)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "replicas": st.integers(0, 1),
        "struct": st.fixed_dictionaries({}, optional={"x": WORDS, "deep": st.just({})}),
        "map": MAPS,
        "atomicMap": MAPS,
        "items": st.lists(WORDS, unique=True, max_size=3).map(lambda names: [{"name": name} for name in names]),
        "ports": st.lists(st.integers(1, 3), unique=True, max_size=2).map(lambda all: [{"port": each} for each in all]),
        "set": st.lists(WORDS, unique=True, max_size=2),
        "list": st.lists(WORDS, max_size=2),
        "open": st.dictionaries(WORDS, MAPS, max_size=1),
    },
)
METADATA = st.fixed_dictionaries({}, optional={"labels": MAPS, "finalizers": st.lists(WORDS, unique=True, max_size=2)})
THINGS = st.builds(lambda spec, metadata: thing(spec, **metadata), SPECS, METADATA)
STEPS = st.lists(st.tuples(st.sampled_from(["mine", "other", "update"]), THINGS), max_size=4)


def content(obj: Object) -> tuple[Object, Any]:
    """An object, and what managers own of it; times do not count."""
    entries = obj["metadata"].get("managedFields", [])
    owned = sorted((each["manager"], each["operation"], str(each["fieldsV1"])) for each in entries)
    return {**obj, "metadata": {k: v for k, v in obj["metadata"].items() if k != "managedFields"}}, owned


def write(live: Live, step: str, obj: Object) -> None:
    if step == "update":
        entries = [] if live.obj is None else live.entries
        live.update("u", {**obj, "metadata": {**obj["metadata"], "managedFields": entries}})
    else:
        live.apply(step, obj, force=True)


@settings(max_examples=drawn(60))
@given(STEPS, THINGS)
def test_an_apply_that_is_left_out_would_have_changed_nothing_and_one_is_enough(
    steps: list[tuple[str, Object]], wanted: Object
) -> None:
    live = Live()
    record = None
    for step, obj in steps:
        write(live, step, obj)
        if step == "mine" and live.obj is not None:
            record = record_of(obj, live.obj, "mine")
    if live.obj is not None:
        before = content(live.obj)
        is_left_out = is_in_force(wanted, live.obj, "mine", record)
        assert is_left_out or not is_in_force(wanted, live.obj, "mine")
        live.apply("mine", copy.deepcopy(wanted), force=True)
        assert not is_left_out or content(live.obj) == before
    else:
        live.apply("mine", wanted)
    assert live.obj is not None
    assert is_in_force(wanted, live.obj, "mine", record_of(wanted, live.obj, "mine"))
    # Without the record: an empty list has no owner, and of an empty map it is not certain that it was applied.
    assert is_in_force(wanted, live.obj, "mine") or "[]" in str(wanted) or "{}" in str(wanted)


KEYS = st.sampled_from(
    [
        "app",
        "a.dev/x",
        "kcp.io/cluster",
        "tenancy.kcp.io/phase",
        "internal.atoll.dev/x",
        "kubestellar.io/executing-count",
    ]
)
PARTS = st.dictionaries(KEYS, WORDS, max_size=4)


@settings(max_examples=drawn(30))
@given(PARTS, PARTS, st.lists(KEYS, unique=True, max_size=2), st.lists(st.sampled_from("123"), max_size=2))
def test_a_copy_has_nothing_of_the_cluster_it_comes_from_and_is_its_own_copy(
    labels: dict[str, str], annotations: dict[str, str], finalizers: list[str], owners: list[str]
) -> None:
    references = [{"apiVersion": "v1", "kind": "K", "name": each, "uid": each} for each in owners]
    metadata = {"uid": "u", "resourceVersion": "1", "creationTimestamp": "t", "generation": 2, "managedFields": [{}]}
    metadata |= {"labels": labels, "annotations": annotations, "finalizers": finalizers, "ownerReferences": references}
    source = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}, "status": {"x": 1}}
    source["metadata"] = {"name": "n", "namespace": "ns", **metadata}
    found = portable(source, {"1": "11", "11": "11"})
    assert set(found) == {"apiVersion", "kind", "data", "metadata"}
    kept = found["metadata"]
    assert set(kept) <= {"name", "namespace", "labels", "annotations", "finalizers", "ownerReferences"}
    keys = [*kept.get("labels", {}), *kept.get("annotations", {}), *kept.get("finalizers", [])]
    assert not [key for key in keys if is_system_key(key)]
    assert kept.get("labels", {}) == {key: value for key, value in labels.items() if key in ("app", "a.dev/x")}
    assert [each["uid"] for each in kept.get("ownerReferences", [])] == ["11" for each in owners if each == "1"]
    assert portable(found, {"1": "11", "11": "11"}) == found


REFS = st.builds(
    ObjectRef,
    st.sampled_from(("", "apps")),
    st.sampled_from(("configmaps", "deployments")),
    st.sampled_from(("", "a", "b")),
    st.sampled_from(("x", "y", "z")),
)
SETS = st.builds(UpsyncSet, st.just("g"), st.tuples(WORDS), st.tuples(WORDS), st.tuples(WORDS))


@settings(max_examples=drawn(30))
@given(st.lists(st.tuples(st.frozensets(REFS), st.frozensets(SETS, max_size=3)), min_size=1, max_size=4), st.booleans())
def test_syncers_read_what_was_listed_and_never_a_whole_set_that_lacks_an_object_of_before_and_after(
    steps: list[tuple[frozenset[ObjectRef], frozenset[UpsyncSet]]], is_small: bool
) -> None:
    """Between any two writes a set is not whole, or it is the one before or the one after."""
    parts: dict[str, Object] = {}
    before: frozenset[ObjectRef] = frozenset()
    numbers = [0]
    for objects, sets in steps:
        specs = specs_of(dict.fromkeys(objects, "v1"), sets, 300 if is_small else 1 << 20)
        writes = plan_parts(specs, parts.values(), 5)
        for each in (*writes.create, *writes.apply):
            parts[each["metadata"]["name"]] = each
            assert sync_set(parts.values()).number in (0, numbers[-1], whole_number(parts.values()))
            if sync_set(parts.values()).number > numbers[-1]:
                assert sync_set(parts.values()).protected == objects
        for each in writes.delete:
            del parts[each["metadata"]["name"]]
        found = sync_set(parts.values())
        assert found.objects == found.protected == objects
        assert found.upsync == tuple(sorted(sets))
        is_equal = objects == before and not writes.create
        numbers.append(found.number)
        assert numbers[-1] >= numbers[-2]
        assert is_equal or numbers[-1] > 0
        again = plan_parts(specs, parts.values(), 9)
        assert not (again.create or again.apply or again.delete)
        before = objects


#: Of a binding nothing is listed.
LISTED = st.dictionaries(
    st.one_of(REFS, st.just(ObjectRef("apis.kcp.io", "apibindings", "", "x"))),
    st.sampled_from(("v1", "v2")),
    max_size=6,
)


@settings(max_examples=drawn(100))
@given(
    LISTED,
    LISTED,
    st.frozensets(REFS, max_size=3),
    st.frozensets(SETS, max_size=2),
    st.sampled_from((500, 800, 1 << 20)),
)
def test_a_list_made_of_the_one_before_is_that_of_all_its_objects(
    before: dict[ObjectRef, str],
    more: dict[ObjectRef, str],
    fewer: frozenset[ObjectRef],
    sets: frozenset[UpsyncSet],
    limit: int,
) -> None:
    """An object that stays, or is not listed anyway, may be among the changes."""
    asked = [{"subjects": ["x"]}]
    after = {ref: version for ref, version in {**before, **more}.items() if ref not in fewer}
    found = specs_of(before, sets, limit, asked)
    if len(found) > 1:
        return
    changes = {ref: after.get(ref, "") for ref in more.keys() | fewer}
    made, wanted = edited(found[0], changes, limit), specs_of(after, sets, limit, asked)
    if made is None:
        assert len(wanted) > 1 or len({*before.values(), *after.values()}) > 1
    else:
        assert [made] == wanted
