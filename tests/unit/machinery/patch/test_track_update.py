"""Field tracking of create, update and the patches other than apply."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.patch.managedfields.managers import Manager
from atoll.machinery.patch.managedfields.options import reset_fields
from atoll.machinery.patch.managedfields.update import keep_timestamps, track_update
from harness.data.patch_schemas import API_VERSION, SCHEMA, Live, thing


@pytest.fixture
def live() -> Live:
    return Live()


def entry(manager: Any, fields: Object, **extra: Any) -> Object:
    return {
        "manager": manager,
        "operation": "Update",
        "apiVersion": API_VERSION,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
        **extra,
    }


def test_the_creator_owns_everything_but_identity_and_what_the_server_writes(live: Live) -> None:
    new = thing(
        {
            "replicas": 1,
            "map": {"k": "v"},
            "set": ["m"],
            "items": [{"name": "x", "args": ["a"]}],
            "list": [],
            "selector": {"x": "1"},
            "text": None,
            "open": {"a": [1]},
        },
        uid="u",
        creationTimestamp="t",
        generation=1,
        resourceVersion="5",
        selfLink="s",
        labels={"l": "1"},
        generateName="g-",
    )
    live.update("kubectl-create", new)
    assert live.entries == [
        entry(
            "kubectl-create",
            {
                "f:metadata": {"f:labels": {".": {}, "f:l": {}}, "f:generateName": {}},
                "f:spec": {
                    ".": {},
                    "f:replicas": {},
                    "f:map": {".": {}, "f:k": {}},
                    "f:set": {".": {}, 'v:"m"': {}},
                    "f:items": {".": {}, 'k:{"name":"x"}': {".": {}, "f:name": {}, "f:args": {}}},
                    "f:list": {},
                    "f:selector": {},
                    "f:text": {},
                    "f:open": {".": {}, "f:a": {}},
                },
            },
            time="2026-01-01T00:00:01Z",
        )
    ]


def test_an_object_of_identity_alone_has_no_owner(live: Live) -> None:
    assert live.update("u", thing()) == thing()


def test_an_update_takes_what_it_changes_and_adds_from_everybody(live: Live) -> None:
    live.update("u", thing({"replicas": 1, "map": {"k": "1"}}))
    live.apply("a", thing({"map": {"k": "1", "l": "2"}}))
    live.edit("v", map={"k": "9", "l": "2", "n": "3"})
    assert live.fields("u", "Update")["f:spec"] == {".": {}, "f:replicas": {}, "f:map": {}}
    assert live.fields("a") == {"f:spec": {"f:map": {"f:l": {}}}}
    assert live.fields("v", "Update") == {"f:spec": {"f:map": {"f:k": {}, "f:n": {}}}}


def test_a_removed_field_has_no_owner_left(live: Live) -> None:
    live.update("u", thing({"replicas": 1, "items": [{"name": "x", "image": "1"}]}))
    live.apply("a", thing({"items": [{"name": "x", "image": "1"}]}))
    live.edit("v", items=[])
    assert live.managers() == [("u", "Update")]
    assert live.fields("u", "Update")["f:spec"] == {".": {}, "f:replicas": {}, "f:items": {}}


def test_an_update_that_changes_nothing_keeps_every_byte(live: Live) -> None:
    live.update("u", thing({"replicas": 1, "set": ["a", "b"]}))
    live.apply("a", thing({"text": "t"}))
    before = encode_json(live.obj)
    live.edit("v")
    live.edit("u")
    assert encode_json(live.obj) == before


def test_a_no_op_leaves_even_entries_of_a_version_that_is_gone(live: Live) -> None:
    live.update("u", thing({"replicas": 1}))
    before = encode_json(live.obj)
    assert live.obj is not None
    live.update("v", copy.deepcopy(live.obj), schemas=lambda version: None)
    assert encode_json(live.obj) == before
    live.entries[0]["apiVersion"] = "example.io/v0"
    live.update("v", copy.deepcopy(live.obj), schemas=lambda version: None)
    assert live.managers() == [("u", "Update")]


def test_null_in_place_of_an_empty_container_is_a_change_of_its_own(live: Live) -> None:
    live.update("u", thing({"map": {}, "text": "t"}))
    live.edit("v", map={}, text="t")
    live.update("v", thing({"map": None, "text": "t"}))
    assert live.fields("v", "Update") == {"f:spec": {"f:map": {}}}
    assert live.fields("u", "Update") == {"f:spec": {".": {}, "f:text": {}}}


def test_a_new_order_of_a_set_moves_no_ownership(live: Live) -> None:
    live.update("u", thing({"set": ["a", "b"]}))
    before = copy.deepcopy(live.entries)
    live.edit("v", set=["b", "a"])
    assert live.entries == before
    assert live.spec["set"] == ["b", "a"]


def test_a_flag_turned_into_a_number_is_a_change(live: Live) -> None:
    live.update("u", thing({"open": {"a": 1}}))
    live.edit("v", open={"a": True})
    assert live.fields("v", "Update") == {"f:spec": {"f:open": {"f:a": {}}}}


def test_times_move_only_for_the_manager_that_wrote(live: Live) -> None:
    live.update("u", thing({"replicas": 1, "text": "t"}))
    live.edit("v", replicas=2)
    live.edit("u", text=None)
    assert live.entry("u", "Update")["time"] == "2026-01-01T00:00:01Z"
    assert live.entry("v", "Update")["time"] == "2026-01-01T00:00:02Z"
    live.edit("u", text="new")
    assert live.entry("u", "Update")["time"] == "2026-01-01T00:00:04Z"


def test_duplicates_are_compared_as_a_whole(live: Live) -> None:
    live.update("u", thing({"set": ["a", "a", "b"]}))
    assert live.fields("u", "Update")["f:spec"]["f:set"] == {".": {}, 'v:"a"': {}, 'v:"b"': {}}
    live.edit("v", set=["a", "b"])
    assert live.fields("v", "Update") == {"f:spec": {"f:set": {'v:"a"': {}}}}


def test_a_list_whose_items_have_no_key_changes_as_a_whole(live: Live) -> None:
    live.update("u", thing({"items": [{"name": "x"}]}))
    live.edit("v", items=[{"image": "1"}])
    assert live.fields("v", "Update") == {"f:spec": {"f:items": {}}}


def test_a_value_of_another_kind_changes_as_a_whole(live: Live) -> None:
    live.update("u", thing({"open": {"a": {"b": 1}}, "map": {"k": "1"}}))
    live.edit("v", open={"a": [1]}, map="text")
    assert live.fields("v", "Update") == {"f:spec": {"f:open": {"f:a": {}}, "f:map": {}}}


def test_a_null_is_an_empty_container_to_one_that_holds_something(live: Live) -> None:
    live.update("u", thing({"map": {}, "struct": {"x": "1"}}))
    live.edit("v", map={"k": "1"}, struct={})
    assert live.fields("v", "Update") == {"f:spec": {"f:map": {"f:k": {}}}}


def test_absent_managed_fields_keep_the_live_ones_and_empty_ones_reset(live: Live) -> None:
    live.update("u", thing({"replicas": 1}))
    before = live.entries
    new = thing({"replicas": 1})
    live.update("v", new)
    assert live.entries == before
    emptied: tuple[list[Any], ...] = ([], [{}])
    for cleared in emptied:
        reset = Live()
        reset.obj = copy.deepcopy(live.obj)
        reset.update("v", thing({"replicas": 2}, managedFields=cleared))
        assert reset.obj == thing({"replicas": 2})
        reset.update("w", thing({"replicas": 3}))
        assert reset.entries == []


def test_managed_fields_a_client_writes_are_honoured_and_canonical(live: Live) -> None:
    live.update("u", thing({"replicas": 1, "items": [{"name": "x"}]}))
    given = [
        entry("z", {"f:spec": {".": {}, "f:replicas": {".": {}}}}, time="2025-01-01T00:00:00Z", junk=1),
        {**entry("y", {"f:spec": {"f:items": {'k:{ "name" : "x" }': {".": {}}}}}), "operation": "Apply"},
    ]
    live.update("v", thing({"replicas": 1, "items": [{"name": "x"}]}, managedFields=given))
    assert live.entries == [
        {**entry("y", {"f:spec": {"f:items": {'k:{"name":"x"}': {}}}}), "operation": "Apply"},
        entry("z", {"f:spec": {".": {}, "f:replicas": {}}}, time="2025-01-01T00:00:00Z"),
    ]


def test_managed_fields_sent_to_a_subresource_are_ignored(live: Live) -> None:
    live.update("u", thing({"replicas": 1}))
    before = live.entries
    live.update("v", thing({"replicas": 1}, managedFields=[]), subresource="status")
    assert live.entries == before


def test_managed_fields_of_a_created_object_count_for_what_it_does_not_hold(live: Live) -> None:
    given = [entry("old", {"f:spec": {"f:replicas": {}, "f:text": {}}})]
    live.update("u", thing({"replicas": 1}, managedFields=given))
    assert live.fields("old", "Update") == {"f:spec": {"f:text": {}}}
    assert live.fields("u", "Update") == {"f:spec": {".": {}, "f:replicas": {}}}


UNREADABLE: list[Any] = [
    5,
    "x",
    [5],
    [None],
    [entry("u", {}, operation="Merge")],
    [entry("u", {}, operation="")],
    [entry("u", {}, fieldsType="FieldsV2")],
    [entry("u", {}, fieldsType="")],
    [entry("u", {}, apiVersion="")],
    [entry("u", {"x:y": {}})],
    [entry("u", {"f:spec": 5})],
    [entry(5, {})],
    [entry("u", {"f:spec": {"f:text": {}}}), {"manager": "u"}],
]


@pytest.mark.parametrize("given", UNREADABLE, ids=str)
def test_managed_fields_that_cannot_be_read_count_as_none(live: Live, given: Any) -> None:
    live.update("u", thing({"replicas": 1}))
    before = live.entries
    live.update("u", thing({"replicas": 1}, managedFields=given))
    assert live.entries == before
    live.update("v", thing({"replicas": 2}, managedFields=given))
    assert live.fields("v", "Update") == {"f:spec": {"f:replicas": {}}}


@pytest.mark.parametrize("given", UNREADABLE, ids=str)
def test_an_object_created_with_managed_fields_that_cannot_be_read_is_its_creators(live: Live, given: Any) -> None:
    live.update("u", thing({"replicas": 1}, managedFields=given))
    assert live.managers() == [("u", "Update")]
    assert live.fields("u", "Update") == {"f:spec": {".": {}, "f:replicas": {}}}


def test_the_eleventh_updater_merges_the_oldest_two_into_ancient_changes(live: Live) -> None:
    live.update("m0", thing({"map": {}}))
    for number in range(1, 10):
        live.edit(f"m{number}", map={**live.spec["map"], f"k{number}": "v"})
    assert len(live.entries) == 10
    live.apply("applier", thing({"text": "t"}))
    live.edit("m10", map={**live.spec["map"], "k10": "v"})
    assert [e["manager"] for e in live.entries if e["operation"] == "Update"] == [
        "ancient-changes",
        *(f"m{number}" for number in range(2, 11)),
    ]
    assert live.fields("ancient-changes", "Update") == {"f:spec": {".": {}, "f:map": {".": {}, "f:k1": {}}}}
    assert live.entry("ancient-changes", "Update")["time"] == live.entries[1]["time"].replace("03Z", "02Z")
    live.edit("m11", map={**live.spec["map"], "k11": "v"})
    assert live.fields("ancient-changes", "Update")["f:spec"]["f:map"] == {".": {}, "f:k1": {}, "f:k2": {}}
    assert len(live.entries) == 11


def test_so_it_does_where_nobody_applied(live: Live) -> None:
    live.update("m0", thing({"map": {}}))
    for number in range(1, 10):
        live.edit(f"m{number}", map={**live.spec["map"], f"k{number}": "v"})
    assert len(live.entries) == 10
    live.edit("m10", map={**live.spec["map"], "k10": "v"})
    assert [each["manager"] for each in live.entries] == ["ancient-changes", *(f"m{number}" for number in range(2, 11))]


def test_a_scale_write_is_recorded_under_its_subresource(live: Live) -> None:
    live.update("u", thing({"replicas": 1, "text": "t"}))
    assert live.obj is not None
    new = copy.deepcopy(live.obj)
    new["spec"]["replicas"] = 3
    live.update("hpa", new, subresource="scale")
    found = live.entry("hpa", "Update")
    assert (found["subresource"], found["fieldsV1"]) == ("scale", {"f:spec": {"f:replicas": {}}})
    assert "f:replicas" not in live.fields("u", "Update")["f:spec"]


def test_a_status_write_owns_status_alone(live: Live) -> None:
    live.update("u", thing({"replicas": 1}))
    assert live.obj is not None
    new = {**copy.deepcopy(live.obj), "status": {"phase": "A"}}
    new["spec"]["replicas"] = 7
    live.update("ctl", new, subresource="status", reset=reset_fields("status", True))
    assert live.fields("ctl", "Update") == {"f:status": {".": {}, "f:phase": {}}}
    assert live.fields("u", "Update") == {"f:spec": {".": {}, "f:replicas": {}}}


def test_a_created_object_given_status_on_the_main_endpoint_does_not_own_it(live: Live) -> None:
    live.update("u", {**thing({"replicas": 1}), "status": {"phase": "A"}}, reset=reset_fields("", True))
    assert live.fields("u", "Update") == {"f:spec": {".": {}, "f:replicas": {}}}


def test_timestamps_fall_back_when_nothing_else_differs_in_the_end(live: Live) -> None:
    live.update("u", thing({"replicas": 1}))
    assert live.obj is not None
    new = copy.deepcopy(live.obj)
    new["metadata"]["managedFields"][0]["time"] = "2030-01-01T00:00:00Z"
    written = {replicas: copy.deepcopy(new) for replicas in ("2", "1.0")}
    keep_timestamps(live.obj, new)
    assert new == live.obj
    for replicas, other in written.items():
        other["spec"]["replicas"] = json.loads(replicas)
        keep_timestamps(live.obj, other)
        assert other["metadata"]["managedFields"][0]["time"] == "2030-01-01T00:00:00Z"


def test_only_metadata_of_the_new_object_is_written() -> None:
    new = thing({"replicas": 1})
    spec, metadata = new["spec"], new["metadata"]
    track_update(None, new, Manager("u", "Update", API_VERSION), SCHEMA, "t")
    assert new["spec"] is spec and new["metadata"] is metadata
    assert set(metadata) == {"name", "namespace", "managedFields"}
