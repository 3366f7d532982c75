"""Server-side apply: ownership of fields, conflicts, and removal of fields without an owner."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.patch.errors import ApplyConflict, InvalidApplyPatch, TypedPatchError, UndecodablePatch
from atoll.machinery.patch.managedfields.apply import apply_patch
from atoll.machinery.patch.managedfields.managers import Manager
from atoll.machinery.patch.managedfields.options import ApplyOptions, reset_fields
from atoll.machinery.patch.structuredmerge.topology import TypeSchema
from harness.data.patch_schemas import API_VERSION, SCHEMA, Live, thing


@pytest.fixture
def live() -> Live:
    return Live()


def items(*pairs: str) -> list[Object]:
    """`a=1` becomes {name: a, image: 1}; `a` has no image."""
    out = []
    for pair in pairs:
        name, _, image = pair.partition("=")
        out.append({"name": name, **({"image": image} if image else {})})
    return out


def test_the_first_apply_creates_and_owns_what_it_names(live: Live) -> None:
    obj = live.apply("a", thing({"replicas": 1, "map": {"k": "v"}, "struct": {"x": "1"}}, labels={"l": "1"}))
    assert obj["spec"] == {"replicas": 1, "map": {"k": "v"}, "struct": {"x": "1"}}
    assert live.entries == [
        {
            "manager": "a",
            "operation": "Apply",
            "apiVersion": API_VERSION,
            "time": "2026-01-01T00:00:01Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:labels": {"f:l": {}}},
                "f:spec": {"f:replicas": {}, "f:map": {"f:k": {}}, "f:struct": {"f:x": {}}},
            },
        }
    ]


# A spec, and the fields below f:spec that its apply owns.
OWNED: list[tuple[str, Object, Object]] = [
    (
        "items and their keys",
        {"items": [{"name": "a", "env": [{"name": "e"}]}]},
        {"f:items": {'k:{"name":"a"}': {".": {}, "f:name": {}, "f:env": {'k:{"name":"e"}': {".": {}, "f:name": {}}}}}},
    ),
    (
        "several keys, sorted",
        {"ports": [{"protocol": "UDP", "port": 1}]},
        {"f:ports": {'k:{"port":1,"protocol":"UDP"}': {".": {}, "f:port": {}, "f:protocol": {}}}},
    ),
    (
        "a key's default",
        {"ports": [{"port": 1}]},
        {"f:ports": {'k:{"port":1,"protocol":"TCP"}': {".": {}, "f:port": {}}}},
    ),
    ("set members", {"set": ["a", "b"]}, {"f:set": {'v:"a"': {}, 'v:"b"': {}}}),
    ("atomic lists", {"list": ["a"]}, {"f:list": {}}),
    ("atomic maps", {"atomicMap": {"a": "1"}}, {"f:atomicMap": {}}),
    ("atomic structs", {"selector": {"x": "1"}}, {"f:selector": {}}),
    ("entries of a map of structs", {"structs": {"k": {"x": "1"}}}, {"f:structs": {"f:k": {".": {}, "f:x": {}}}}),
    (
        "open maps, their lists atomic",
        {"open": {"m": {"k": 1}, "l": [1]}},
        {"f:open": {"f:m": {".": {}, "f:k": {}}, "f:l": {}}},
    ),
    ("empty maps", {"map": {}, "struct": {}}, {"f:map": {}, "f:struct": {}}),
    ("nulls", {"map": None, "text": None}, {"f:map": {}, "f:text": {}}),
    ("int or string", {"amount": "5%"}, {"f:amount": {}}),
    (
        "recursive types",
        {"tree": {"child": {"child": {"label": "x"}}}},
        {"f:tree": {"f:child": {"f:child": {"f:label": {}}}}},
    ),
    (
        "embedded objects",
        {"template": {"metadata": {"finalizers": ["a"]}, "kind": "X", "z": {"q": 1}}},
        {"f:template": {"f:metadata": {"f:finalizers": {'v:"a"': {}}}, "f:kind": {}, "f:z": {".": {}, "f:q": {}}}},
    ),
]


@pytest.mark.parametrize(("spec", "fields"), [case[1:] for case in OWNED], ids=[case[0] for case in OWNED])
def test_an_apply_owns_leaves_items_entries_and_empty_maps(live: Live, spec: Object, fields: Object) -> None:
    live.apply("a", thing(spec))
    assert live.fields("a")["f:spec"] == fields


def test_an_empty_list_that_merges_is_owned_by_nobody(live: Live) -> None:
    live.apply("a", thing({"set": [], "items": []}))
    assert live.managers() == []


def test_appliers_of_different_fields_do_not_meet(live: Live) -> None:
    live.apply("a", thing({"replicas": 1, "items": items("x=1")}))
    live.apply("b", thing({"text": "t", "items": items("y=1")}))
    assert live.spec == {"replicas": 1, "text": "t", "items": items("x=1", "y=1")}
    assert live.managers() == [("a", "Apply"), ("b", "Apply")]


def test_equal_values_are_shared_and_then_either_conflicts(live: Live) -> None:
    live.apply("a", thing({"replicas": 1}))
    live.apply("b", thing({"replicas": 1}))
    assert live.fields("a") == live.fields("b") == {"f:spec": {"f:replicas": {}}}
    with pytest.raises(ApplyConflict, match=r'conflict with "b": \.spec\.replicas'):
        live.apply("a", thing({"replicas": 2}))


def test_a_shared_field_stays_until_its_last_owner_lets_go(live: Live) -> None:
    live.apply("a", thing({"replicas": 1, "text": "t"}))
    live.apply("b", thing({"replicas": 1}))
    live.apply("a", thing({"text": "t"}))
    assert live.spec == {"replicas": 1, "text": "t"}
    live.apply("b", thing())
    assert live.spec == {"text": "t"}
    assert live.managers() == [("a", "Apply")]


def test_force_takes_the_field_from_its_owner(live: Live) -> None:
    live.apply("a", thing({"replicas": 1, "text": "t"}))
    live.apply("b", thing({"replicas": 2}), force=True)
    assert live.spec["replicas"] == 2
    assert live.fields("a") == {"f:spec": {"f:text": {}}}
    assert live.fields("b") == {"f:spec": {"f:replicas": {}}}
    live.apply("a", thing({"text": "t"}))
    assert live.spec["replicas"] == 2


def test_a_manager_that_lost_everything_is_gone(live: Live) -> None:
    live.apply("a", thing({"replicas": 1}))
    live.apply("b", thing({"replicas": 2}), force=True)
    assert live.managers() == [("b", "Apply")]


def test_a_refused_apply_changes_nothing(live: Live) -> None:
    live.apply("a", thing({"replicas": 1}))
    before = encode_json(live.obj)
    with pytest.raises(ApplyConflict):
        live.apply("b", thing({"replicas": 2, "text": "new"}))
    assert encode_json(live.obj) == before


def test_one_conflict_reads_as_kubernetes_says_it(live: Live) -> None:
    live.update("Python-urllib", thing({"text": "a"}))
    with pytest.raises(ApplyConflict) as caught:
        live.apply("kubectl", thing({"text": "b"}))
    status = caught.value.status()
    assert status["message"] == (
        f'Apply failed with 1 conflict: conflict with "Python-urllib" using {API_VERSION}: .spec.text'
    )
    assert (status["code"], status["reason"]) == (409, "Conflict")
    assert status["details"] == {
        "causes": [
            {
                "reason": "FieldManagerConflict",
                "message": f'conflict with "Python-urllib" using {API_VERSION}',
                "field": ".spec.text",
            }
        ]
    }


def test_many_conflicts_are_grouped_by_manager_and_sorted(live: Live) -> None:
    live.apply("z", thing({"replicas": 1, "ports": [{"port": 80, "protocol": "TCP", "target": "a"}]}))
    live.update("ctl", {**copy.deepcopy(live.obj or {}), "status": {"phase": "A"}}, subresource="status")
    live.edit("up", text="t", list=["a"])
    patch = thing({"replicas": 2, "ports": [{"port": 80, "target": "b"}], "text": "u", "list": ["b"]})
    with pytest.raises(ApplyConflict) as caught:
        live.apply("b", {**patch, "status": {"phase": "B"}})
    assert caught.value.message == (
        "Apply failed with 5 conflicts: "
        f'conflicts with "ctl" with subresource "status" using {API_VERSION}:\n- .status.phase\n'
        f'conflicts with "up" using {API_VERSION}:\n- .spec.list\n- .spec.text\n'
        'conflicts with "z":\n- .spec.replicas\n- .spec.ports[port=80,protocol="TCP"].target'
    )
    assert caught.value.details.causes[0].field == ".status.phase"


def test_only_another_value_conflicts_with_an_updater(live: Live) -> None:
    live.update("u", thing({"replicas": 1}))
    live.apply("a", thing({"replicas": 1}))
    assert live.fields("a") == {"f:spec": {"f:replicas": {}}}
    assert live.fields("u", "Update")["f:spec"] == {".": {}, "f:replicas": {}}


# The first spec that `a` applies, a change after it, the second spec that `a` applies, and the resulting spec.
REMOVALS: list[tuple[str, Object, Any, Object, Object]] = [
    ("a scalar", {"replicas": 1, "text": "t"}, None, {"text": "t"}, {"text": "t"}),
    ("a map entry", {"map": {"k": "1", "l": "2"}}, None, {"map": {"k": "1"}}, {"map": {"k": "1"}}),
    (
        "a nested field",
        {"struct": {"x": "1", "deep": {"z": "1"}}},
        None,
        {"struct": {"x": "1"}},
        {"struct": {"x": "1"}},
    ),
    ("a struct with all in it", {"struct": {"x": "1"}, "text": "t"}, None, {"text": "t"}, {"text": "t"}),
    ("an item", {"items": items("x=1", "y=2")}, None, {"items": items("y=2")}, {"items": items("y=2")}),
    ("a field of an item", {"items": items("x=1")}, None, {"items": items("x")}, {"items": items("x")}),
    ("a set member", {"set": ["a", "b"]}, None, {"set": ["b"]}, {"set": ["b"]}),
    (
        "an item by its default key",
        {"ports": [{"port": 1}, {"port": 2}]},
        None,
        {"ports": [{"port": 2, "protocol": "TCP"}]},
        {"ports": [{"port": 2, "protocol": "TCP"}]},
    ),
    ("an atomic list", {"list": ["a"], "text": "t"}, None, {"text": "t"}, {"text": "t"}),
    (
        "an open map's entry",
        {"open": {"a": {"b": 1, "c": 2}}},
        None,
        {"open": {"a": {"b": 1}}},
        {"open": {"a": {"b": 1}}},
    ),
    (
        "an item with what others defaulted in it",
        {"items": items("x=1", "y=2")},
        ("u", {"items": [{"name": "x", "image": "1", "args": ["d"]}, *items("y=2")]}),
        {"items": items("y=2")},
        {"items": items("y=2")},
    ),
    (
        "not what another owns",
        {"map": {"k": "1", "l": "2"}},
        ("b", {"map": {"l": "2"}}),
        {"map": {"k": "1"}},
        {"map": {"k": "1", "l": "2"}},
    ),
    (
        "not the struct another owns in",
        {"struct": {"x": "1"}},
        ("u", {"struct": {"x": "1", "y": "2"}}),
        {},
        {"struct": {"y": "2"}},
    ),
    (
        "not the item another applied too",
        {"items": items("x=1")},
        ("b", {"items": items("x")}),
        {},
        {"items": items("x")},
    ),
]


@pytest.mark.parametrize(
    ("first", "between", "then", "left"), [case[1:] for case in REMOVALS], ids=[case[0] for case in REMOVALS]
)
def test_what_is_applied_no_more_goes(live: Live, first: Object, between: Any, then: Object, left: Object) -> None:
    live.apply("a", thing(first))
    if between is not None:
        manager, spec = between
        if manager == "u":
            live.edit("u", **spec)
        else:
            live.apply(manager, thing(spec))
    live.apply("a", thing(then))
    assert live.spec == left


def test_fields_nobody_owns_stay(live: Live) -> None:
    live.apply("a", thing({"replicas": 1, "text": "t"}))
    assert live.obj is not None
    live.obj["spec"]["paused"] = True  # a default, which has no owner
    live.apply("a", thing({"text": "t"}))
    assert live.spec == {"text": "t", "paused": True}


def test_an_emptied_container_that_another_owns_stays_empty(live: Live) -> None:
    live.update("u", thing({"map": {}, "set": ["a"]}))
    live.apply("a", thing({"map": {"k": "1"}}))
    live.apply("a", thing({}))
    assert live.spec["map"] == {}


def test_applying_the_same_again_keeps_every_byte(live: Live) -> None:
    live.update("u", thing({"map": {"k": "1"}, "set": ["a"]}, annotations={"x": "y"}))
    patch = thing({"replicas": 1, "items": items("x=1"), "map": {"l": "2"}, "set": ["b"]})
    live.apply("a", patch)
    before = encode_json(live.obj)
    live.apply("a", patch)
    live.apply("a", copy.deepcopy(patch), force=True)
    assert encode_json(live.obj) == before


def test_an_apply_that_changes_only_ownership_moves_no_time(live: Live) -> None:
    live.apply("a", thing({"replicas": 1}))
    live.apply("b", thing({"replicas": 1}))
    assert live.entry("a")["time"] == "2026-01-01T00:00:01Z"
    assert "time" not in live.entry("b")


# Order of a keyed list: the live order, the applied order, the resulting order.
ORDERS: list[tuple[str, str, str]] = [
    ("abc", "ca", "bca"),
    ("ab", "xb", "axb"),
    ("ab", "bx", "abx"),
    ("abc", "xyz", "abcxyz"),
    ("abc", "cba", "cba"),
    ("", "ba", "ba"),
    ("abcd", "dxb", "acdxb"),
]


@pytest.mark.parametrize(("old", "patch", "new"), ORDERS)
def test_applied_items_keep_their_order_among_those_of_others(live: Live, old: str, patch: str, new: str) -> None:
    live.update("u", thing({"set": list(old), "items": items(*old)}))
    live.apply("a", thing({"set": list(patch), "items": items(*patch)}))
    assert "".join(live.spec["set"]) == new
    assert "".join(item["name"] for item in live.spec["items"]) == new


def test_duplicates_of_the_live_object_are_replaced_by_one_applied_item(live: Live) -> None:
    live.update("u", thing({"set": ["a", "a", "b", "b"]}))
    live.apply("a", thing({"set": ["a", "c"]}), force=True)
    assert live.spec["set"] == ["a", "b", "b", "c"]


def test_an_item_the_live_list_holds_twice_does_not_merge_but_is_replaced(live: Live) -> None:
    live.update("u", thing({"items": items("x=1", "x=2")}))
    live.apply("a", thing({"items": [{"name": "x", "args": ["a"]}]}), force=True)
    assert live.spec["items"] == [{"name": "x", "args": ["a"]}]


def test_an_applied_null_says_nothing_of_what_others_put_into_a_container(live: Live) -> None:
    live.update("u", thing({"map": {"k": "1"}, "items": items("x=1"), "text": "t"}))
    live.apply("a", thing({"map": None, "items": None}))
    assert live.spec == {"map": {"k": "1"}, "items": items("x=1"), "text": "t"}
    with pytest.raises(ApplyConflict, match=r"\.spec\.text$"):
        live.apply("a", thing({"text": None}))


UNTYPED: list[tuple[str, Object, str]] = [
    ("an unknown field", {"foo": 1}, ".spec.foo: field not declared in schema"),
    ("a string for a number", {"replicas": "1"}, ".spec.replicas: expected numeric (int or float), got string"),
    ("a flag for a number", {"replicas": True}, ".spec.replicas: expected numeric (int or float), got bool"),
    ("a number for a string", {"text": 1}, ".spec.text: expected string, got &value.valueUnstructured{Value:1}"),
    (
        "a map for a string",
        {"text": {"b": [None, "x", 1.5], "a": True}},
        ".spec.text: expected string, got &value.valueUnstructured{Value:map[string]interface {}"
        '{"a":true, "b":[]interface {}{interface {}(nil), "x", 1.5}}}',
    ),
    ("a string for a flag", {"paused": "yes"}, ".spec.paused: expected boolean, got &{yes}"),
    ("a list for a map", {"map": []}, ".spec.map: expected map, got &{[]}"),
    ("a map for a list", {"set": {}}, ".spec.set: expected list, got &{map[]}"),
    (
        "a map of nulls for a list",
        {"list": {"b": None, "a": [1, "x"]}},
        ".spec.list: expected list, got &{map[a:[1 x] b:<nil>]}",
    ),
    (
        "a number in an atomic list",
        {"list": ["a", 5]},
        ".spec.list[1]: expected string, got &value.valueUnstructured{Value:5}",
    ),
    ("an unknown field of an atomic map", {"selector": {"foo": 1}}, ".spec.selector.foo: field not declared in schema"),
    (
        "a list with an item that ends it",
        {"items": [{"image": "1"}, {"name": 5}]},
        ".spec.items: element 0: associative list with keys has an element that omits all key fields "
        '["name"] (and doesn\'t have default values for any key fields)',
    ),
    ("duplicate members", {"set": ["a", "a"]}, '.spec.set: duplicate entries for key [="a"]'),
    ("duplicate items", {"items": items("x=1", "x=2")}, '.spec.items: duplicate entries for key [name="x"]'),
    (
        "duplicates by default",
        {"ports": [{"port": 1}, {"port": 1, "protocol": "TCP"}]},
        '.spec.ports: duplicate entries for key [port=1,protocol="TCP"]',
    ),
    (
        "an item without key",
        {"items": [{"image": "1"}]},
        ".spec.items: element 0: associative list with keys has an element that omits all key fields "
        '["name"] '
        "(and doesn't have default values for any key fields)",
    ),
    (
        "a null item",
        {"items": [None]},
        ".spec.items: element 0: associative list with keys may not have a null element",
    ),
    (
        "a map in a set",
        {"set": [{}]},
        ".spec.set: element 0: associative list without keys has an element that's a map type",
    ),
    (
        "a field of an item",
        {"items": [{"name": "x", "foo": 1}]},
        '.spec.items[name="x"].foo: field not declared in schema',
    ),
]


@pytest.mark.parametrize(("spec", "text"), [case[1:] for case in UNTYPED], ids=[case[0] for case in UNTYPED])
def test_a_patch_that_cannot_be_typed_is_a_400_in_kubernetes_words(live: Live, spec: Object, text: str) -> None:
    with pytest.raises(TypedPatchError) as caught:
        live.apply("a", thing(spec))
    assert caught.value.message == (f"failed to create typed patch object (ns/n; example.io/v1, Kind=Thing): {text}")
    assert (caught.value.code, caught.value.reason) == (400, "BadRequest")


def test_several_problems_are_listed_and_core_kinds_have_an_empty_group() -> None:
    patch = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "a": 1, "b": 2}
    source = {"type": "object", "properties": {"data": {"type": "object"}}}
    with pytest.raises(TypedPatchError) as caught:
        apply_patch(None, patch, Manager("a", "Apply", "v1"), TypeSchema(source, {}), ApplyOptions(now="t"))
    assert caught.value.message == (
        "failed to create typed patch object (/c; /v1, Kind=ConfigMap): "
        "errors:\n  .a: field not declared in schema\n  .b: field not declared in schema"
    )


def test_another_version_and_managed_fields_in_the_patch_are_refused(live: Live) -> None:
    with pytest.raises(InvalidApplyPatch, match=r"Specified patch version: example\.io/v2, expected: example\.io/v1"):
        apply_patch(
            None,
            {**thing(), "apiVersion": "example.io/v2"},
            Manager("a", "Apply", API_VERSION),
            SCHEMA,
            ApplyOptions(now="t"),
        )
    emptied: tuple[list[Any], ...] = ([], [{}])
    for given in emptied:
        with pytest.raises(InvalidApplyPatch, match=r"metadata\.managedFields must be nil"):
            live.apply("a", thing(managedFields=given))
    with pytest.raises(InvalidApplyPatch):
        live.apply("a", {"apiVersion": API_VERSION, "kind": "Thing"})


def test_nesting_beyond_the_stack_is_a_400(live: Live) -> None:
    tree: Object = {}
    for _ in range(3000):
        tree = {"child": tree}
    with pytest.raises(UndecodablePatch):
        apply_patch(None, thing({"tree": tree}), Manager("a", "Apply", API_VERSION), SCHEMA, ApplyOptions(now="t"))


def test_an_object_nobody_tracked_belongs_to_before_first_apply(live: Live) -> None:
    live.obj = thing({"replicas": 1, "text": "t"})
    with pytest.raises(
        ApplyConflict, match=r'conflict with "before-first-apply" using example\.io/v1: \.spec\.replicas'
    ):
        live.apply("a", thing({"replicas": 2}))
    live.apply("a", thing({"replicas": 1}))
    assert live.fields("before-first-apply", "Update") == {"f:spec": {".": {}, "f:replicas": {}, "f:text": {}}}


def test_an_apply_of_nothing_owns_nothing(live: Live) -> None:
    live.apply("a", thing())
    assert live.obj == thing()


def test_status_is_ignored_on_the_main_endpoint_and_all_else_on_status(live: Live) -> None:
    main, status = reset_fields("", True), reset_fields("status", True)
    live.apply("a", {**thing({"replicas": 1}), "status": {"phase": "A"}}, reset=main)
    assert live.fields("a") == {"f:spec": {"f:replicas": {}}}
    live.apply(
        "c", {**thing({"replicas": 5}, labels={"l": "1"}), "status": {"phase": "B"}}, subresource="status", reset=status
    )
    entry = live.entry("c")
    assert (entry["subresource"], entry["fieldsV1"]) == ("status", {"f:status": {"f:phase": {}}})
    assert live.fields("a") == {"f:spec": {"f:replicas": {}}}
    assert reset_fields("", False).filter({"f:status": {}}) == {"f:status": {}}
    assert reset_fields("scale", True).filter({"f:spec": {}}) == {"f:spec": {}}


def test_status_conditions_of_two_appliers_live_side_by_side(live: Live) -> None:
    status = reset_fields("status", True)
    for name in ("Ready", "Synced"):
        patch = {**thing(), "status": {"conditions": [{"type": name, "status": "True"}]}}
        live.apply(name, patch, subresource="status", reset=status)
    assert live.obj is not None
    assert [c["type"] for c in live.obj["status"]["conditions"]] == ["Ready", "Synced"]
    live.apply("Ready", thing(), subresource="status", reset=status)
    assert [c["type"] for c in live.obj["status"]["conditions"]] == ["Synced"]


def test_one_manager_has_an_entry_for_each_subresource(live: Live) -> None:
    live.apply("a", thing({"replicas": 1}))
    live.apply("a", {**thing(), "status": {"phase": "A"}}, subresource="status", reset=reset_fields("status", True))
    assert [entry.get("subresource", "") for entry in live.entries] == ["", "status"]
    assert live.spec == {"replicas": 1}


def test_the_merged_result_has_metadata_of_its_own(live: Live) -> None:
    live.apply("a", thing({"replicas": 1}))
    before = copy.deepcopy(live.obj)
    again = apply_patch(
        live.obj, thing({"replicas": 1}), Manager("a", "Apply", API_VERSION), SCHEMA, ApplyOptions(now="t")
    )
    again["metadata"]["resourceVersion"] = "7"
    assert live.obj == before
