"""Laws of server-side apply: force, release of fields and order, after any earlier writes."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from atoll.machinery.patch.errors import ApplyConflict
from atoll.machinery.patch.fieldset import contains, from_paths
from atoll.machinery.patch.managedfields.managers import decode
from atoll.machinery.patch.managedfields.scale import to_parent, to_scale
from atoll.machinery.patch.structuredmerge.fieldset_builder import SchemaMismatch, to_set, typed_set
from atoll.machinery.patch.structuredmerge.validation import validation_errors
from harness.data.patch_schemas import API_VERSION, SCHEMA, Live, thing
from harness.seeds import drawn

_words = st.sampled_from("pqr")
_struct = st.fixed_dictionaries({}, optional={"x": _words, "y": _words})
_maps = st.dictionaries(_words, _words, max_size=3)
_items = st.dictionaries(_words, st.fixed_dictionaries({}, optional={"image": _words}), max_size=3).map(
    lambda found: [{"name": name, **rest} for name, rest in found.items()]
)
_specs = st.fixed_dictionaries(
    {},
    optional={
        "replicas": st.integers(0, 2),
        "text": _words,
        "struct": _struct,
        "map": _maps,
        "items": _items,
        "set": st.lists(_words, unique=True, max_size=3),
        "list": st.lists(_words, max_size=2),
    },
)
_managers = st.sampled_from(["a", "b", "kubectl"])
_steps = st.lists(st.tuples(st.sampled_from(["apply", "force", "update"]), _managers, _specs), max_size=5)


def _run(live: Live, steps: Any) -> Live:
    for operation, manager, spec in steps:
        if operation == "update":
            live.update(manager, thing(spec))
            continue
        try:
            live.apply(manager, thing(spec), force=operation == "force")
        except ApplyConflict as conflict:
            assert conflict.details.causes
    return live


@settings(max_examples=drawn(100), deadline=None)
@given(_steps, _managers, _specs)
def test_force_never_conflicts_and_then_nobody_stands_in_the_way(steps: Any, manager: str, spec: Any) -> None:
    live = _run(Live(), steps)
    live.apply(manager, thing(spec), force=True)
    live.apply(manager, thing(spec))


@settings(max_examples=drawn(100), deadline=None)
@given(_steps, _specs)
def test_what_conflicts_is_what_force_takes_from_others(steps: Any, spec: Any) -> None:
    live = _run(Live(), steps)
    # Fields without a recorded owner belong to the manager `before-first-apply`, who is recorded only afterwards.
    assume(live.obj is None or live.entries)
    before = {(e["manager"], e["operation"]): e["fieldsV1"] for e in live.entries} if live.obj is not None else {}
    try:
        copy.deepcopy(live).apply("z", thing(spec))
        refused = False
    except ApplyConflict:
        refused = True
    live.apply("z", thing(spec), force=True)
    left = {(e["manager"], e["operation"]): e["fieldsV1"] for e in live.entries if e["manager"] != "z"}
    assert refused == any(left.get(who) != fields for who, fields in before.items())


@settings(max_examples=drawn(100), deadline=None)
@given(_specs, _maps, st.sampled_from("pqr"))
def test_what_only_one_applied_goes_when_it_lets_go_of_it(others: Any, mine: Any, name: str) -> None:
    live = Live()
    live.update("u", thing({"paused": True, **{key: value for key, value in others.items() if key != "map"}}))
    live.apply("a", thing({"map": {**mine, name: "v"}}))
    live.apply("a", thing({"map": {key: value for key, value in mine.items() if key != name}}))
    assert name not in live.spec.get("map", {})
    assert live.spec["paused"] is True


@settings(max_examples=drawn(100), deadline=None)
@given(_maps, st.sampled_from("pqr"))
def test_what_another_applied_as_well_stays_when_one_lets_go_of_it(mine: Any, name: str) -> None:
    live = Live()
    live.apply("a", thing({"map": {**mine, name: "v"}}))
    live.apply("b", thing({"map": {name: "v"}}))
    live.apply("a", thing({"map": {key: value for key, value in mine.items() if key != name}}))
    assert live.spec["map"][name] == "v"


_by_letter = st.dictionaries(st.sampled_from("abcdefgh"), _words, max_size=5)


@settings(max_examples=drawn(100), deadline=None)
@given(_by_letter)
def test_appliers_of_different_fields_do_not_care_who_comes_first(fields: Any) -> None:
    def half(names: str) -> Any:
        mine = {name: value for name, value in fields.items() if name in names}
        return thing({"map": mine, "items": [{"name": name, "image": value} for name, value in mine.items()]})

    first, second = Live(), Live()
    for live, order in ((first, "ab"), (second, "ba")):
        for who in order:
            live.apply(who, half("abcd" if who == "a" else "efgh"))
    assert first.spec["map"] == second.spec["map"]
    assert sorted(map(str, first.spec["items"])) == sorted(map(str, second.spec["items"]))
    for who in "ab":
        assert first.fields(who) == second.fields(who)


_anything = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | _words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_words | st.just("name"), inner, max_size=3),
    max_leaves=6,
)
_fields = st.sampled_from(
    [
        "replicas",
        "paused",
        "text",
        "struct",
        "selector",
        "map",
        "structs",
        "atomicMap",
        "list",
        "set",
        "items",
        "ports",
        "open",
        "amount",
        "tree",
        "template",
        "nonsense",
    ]
)


@settings(max_examples=drawn(300), deadline=None)
@given(st.dictionaries(_fields, _anything, max_size=3))
def test_a_patch_is_typed_exactly_when_nothing_is_wrong_with_it(spec: Any) -> None:
    obj, root = thing(spec), SCHEMA.root
    wrong = validation_errors(obj, root)
    try:
        assert typed_set(obj, root) == to_set(obj, root)
        assert not wrong
    except SchemaMismatch:
        assert wrong


_paths = {API_VERSION: ("f:spec", "f:replicas"), "example.io/v0": ("f:spec", "f:size")}


@settings(max_examples=drawn(100), deadline=None)
@given(_steps)
def test_showing_owners_on_a_scale_and_back_changes_nothing(steps: Any) -> None:
    live = _run(Live(), [("apply", "anchor", {"replicas": 1}), *steps])
    shown = to_scale(live.entries, _paths)
    assert to_parent(live.entries, shown, _paths, API_VERSION) == live.entries
    owning = [who for who, entry in decode(live.entries).items() if contains(entry.fields, _paths[API_VERSION])]
    assert len(shown) == len(owning)


@settings(max_examples=drawn(100), deadline=None)
@given(_steps)
def test_a_new_owner_on_the_scale_takes_the_replicas_and_nothing_else(steps: Any) -> None:
    live = _run(Live(), [("apply", "anchor", {"replicas": 1, "text": "t"}), *steps])
    taker = {
        "manager": "scaler",
        "operation": "Update",
        "apiVersion": "autoscaling/v1",
        "subresource": "scale",
        "time": "2026-01-01T00:01:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:replicas": {}}},
    }
    after = decode(to_parent(live.entries, [taker], _paths, API_VERSION))
    mine = after.pop(("scaler", "Update", API_VERSION, "scale"))
    assert (mine.fields, mine.time) == (from_paths([_paths[API_VERSION]]), "2026-01-01T00:01:00Z")
    for identity, entry in decode(live.entries).items():
        kept = after.get(identity)
        assert kept is None or not contains(kept.fields, _paths[API_VERSION])
        assert kept is not None or "f:text" not in entry.fields.get("f:spec", {})
