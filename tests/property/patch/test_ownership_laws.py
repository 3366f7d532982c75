"""Laws of field ownership that hold for any writes of managers in any order."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.machinery.meta.objects import encode_json
from atoll.machinery.patch.errors import ApplyConflict
from atoll.machinery.patch.fieldset import difference, intersection, parse, union
from atoll.machinery.patch.structuredmerge.comparison import NOTHING, compare, compare_owned
from atoll.machinery.patch.structuredmerge.fieldset_builder import created_set, to_set
from atoll.machinery.patch.structuredmerge.merge import merge, remove_items
from harness.data.patch_schemas import SCHEMA, Live, thing
from harness.seeds import drawn

_words = st.sampled_from("pqr")


def _optional(**fields: Any) -> Any:
    return st.fixed_dictionaries({}, optional=fields)


def _list_by(name: str, rest: Any) -> Any:
    return st.dictionaries(_words, rest, max_size=3).map(
        lambda found: [{name: key, **value} for key, value in found.items()]
    )


_struct = _optional(x=_words, y=_words, deep=_optional(z=_words))
specs = _optional(
    replicas=st.integers(0, 2),
    text=_words,
    struct=_struct,
    selector=_struct,
    map=st.dictionaries(_words, _words, max_size=2),
    structs=st.dictionaries(_words, _struct, max_size=2),
    list=st.lists(_words, max_size=2),
    set=st.lists(_words, unique=True, max_size=3),
    items=_list_by("name", _optional(image=_words, env=_list_by("name", _optional(value=_words)))),
    ports=st.dictionaries(st.sampled_from([(1, "TCP"), (1, "UDP"), (2, None)]), _optional(target=_words)).map(
        lambda found: [
            {"port": port, **({"protocol": protocol} if protocol else {}), **rest}
            for (port, protocol), rest in found.items()
        ]
    ),
    open=st.dictionaries(_words, st.integers(0, 1) | st.booleans() | _struct, max_size=2),
)
steps = st.lists(
    st.tuples(st.sampled_from(["apply", "force", "update"]), st.sampled_from(["a", "b", "kubectl"]), specs),
    min_size=1,
    max_size=6,
)


def _run(live: Live, taken: Any) -> None:
    for operation, manager, spec in taken:
        if operation == "update":
            live.update(manager, thing(spec))
        else:
            try:
                live.apply(manager, thing(spec), force=operation == "force")
            except ApplyConflict as conflict:
                assert conflict.details.causes


@settings(max_examples=drawn(150), deadline=None)
@given(steps, specs)
def test_applying_twice_is_applying_once_byte_for_byte(taken: Any, spec: Any) -> None:
    live = Live()
    _run(live, taken)
    live.apply("z", thing(spec), force=True)
    before = encode_json(live.obj)
    live.apply("z", thing(spec))
    assert encode_json(live.obj) == before


@settings(max_examples=drawn(150), deadline=None)
@given(steps, specs)
def test_a_forced_apply_gets_its_values_and_owns_just_those(taken: Any, spec: Any) -> None:
    live = Live()
    _run(live, taken)
    live.apply("z", thing(spec), force=True)
    obj = live.obj or {}
    root = SCHEMA.root
    mine = to_set(thing(spec), root)
    changed = compare(thing(spec), obj, root)
    assert intersection(mine, union(changed.modified, changed.removed)) == {}
    owned = [entry["fieldsV1"] for entry in live.entries if entry["manager"] == "z"]
    assert owned in ([], [difference(mine, {"f:apiVersion": {}, "f:kind": {}, "f:metadata": mine["f:metadata"]})])


@settings(max_examples=drawn(150), deadline=None)
@given(steps)
def test_recorded_sets_are_canonical_sorted_and_never_empty(taken: Any) -> None:
    live = Live()
    _run(live, taken)
    for entry in live.entries:
        assert entry["fieldsV1"] and parse(entry["fieldsV1"]) == entry["fieldsV1"]
    keys = [(entry["operation"], entry.get("time", "")) for entry in live.entries]
    assert keys == sorted(keys)


@settings(max_examples=drawn(150), deadline=None)
@given(steps)
def test_letting_go_of_everything_leaves_only_what_others_own_or_nobody_does(taken: Any) -> None:
    live = Live()
    live.apply("anchor", thing({"paused": True}))
    _run(live, [step for step in taken if step[0] != "update"])
    for manager in ("a", "b", "kubectl"):
        live.apply(manager, thing())
    assert live.managers() == [("anchor", "Apply")]
    # An empty list that merges has no owner, so no manager can release it.
    assert {name: value for name, value in live.spec.items() if value != []} == {"paused": True}


@settings(max_examples=drawn(150), deadline=None)
@given(specs, specs)
def test_comparison_tells_old_from_new(old: Any, new: Any) -> None:
    root = SCHEMA.root
    # Where anything may stand, what takes a map's place is told as one change and not as the map's reverse.
    a, b = ({**thing(spec), "spec": {**spec, "open": {}}} for spec in (old, new))
    there, back = compare(a, b, root), compare(b, a, root)
    assert there.added == back.removed and there.removed == back.added and there.modified == back.modified
    assert intersection(there.added, there.removed) == {}
    a, b = thing(old), thing(new)
    there = compare(a, b, root)
    assert compare(a, a, root) == compare(a, thing(dict(old)), root) == NOTHING
    # Laying the new over what is left of the old gives every field of the new.
    assert compare(merge(remove_items(a, there.removed, root), b, root), b, root) == NOTHING


@settings(max_examples=drawn(150), deadline=None)
@given(specs, st.dictionaries(_words, _words, max_size=2))
def test_a_creator_owns_what_a_comparison_with_nothing_finds_added(spec: Any, labels: Any) -> None:
    root = SCHEMA.root
    obj = thing(spec, labels=labels)
    nothing = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": {}}
    assert created_set(obj, root) == compare_owned(nothing, obj, root).added
