"""Server-side apply across migrations: from client-side apply, between versions of a kind, after a schema change."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from atoll.machinery.meta.objects import Object
from atoll.machinery.patch.errors import ApplyConflict
from atoll.machinery.patch.json_patch import apply_json_patch
from atoll.machinery.patch.managedfields.apply import apply_patch
from atoll.machinery.patch.managedfields.last_applied import LAST_APPLIED
from atoll.machinery.patch.managedfields.managers import Manager
from atoll.machinery.patch.managedfields.options import ApplyOptions, TrackOptions
from atoll.machinery.patch.managedfields.update import track_update
from atoll.machinery.patch.structuredmerge.topology import TypeSchema
from harness.data.patch_schemas import API_VERSION, Live, keyed, thing

CSA = "kubectl-client-side-apply"


@pytest.fixture
def live() -> Live:
    return Live()


def client_side_applied(spec: Object) -> Object:
    """Return the object that `kubectl apply` creates: it contains itself in an annotation."""
    text = json.dumps({**thing(spec), "metadata": {**thing()["metadata"], "annotations": {}}})
    return thing(spec, annotations={LAST_APPLIED: text})


def test_kubectl_may_take_over_what_client_side_apply_wrote_and_refreshes_its_annotation(live: Live) -> None:
    live.update(CSA, client_side_applied({"replicas": 1, "text": "t"}))
    live.apply("kubectl", thing({"replicas": 2, "text": "t"}))
    assert live.obj is not None
    assert live.spec == {"replicas": 2, "text": "t"}
    assert json.loads(live.obj["metadata"]["annotations"][LAST_APPLIED]) == thing({"replicas": 2, "text": "t"})
    assert live.fields("kubectl") == {"f:spec": {"f:replicas": {}, "f:text": {}}}
    assert live.fields(CSA, "Update")["f:spec"] == {".": {}, "f:text": {}}


def test_a_field_another_changed_since_still_conflicts_and_only_that(live: Live) -> None:
    live.update(CSA, client_side_applied({"replicas": 1, "text": "t"}))
    live.edit("hpa", replicas=5)
    with pytest.raises(ApplyConflict) as caught:
        live.apply("kubectl", thing({"replicas": 2, "text": "u"}))
    assert [cause.field for cause in caught.value.details.causes] == [".spec.replicas"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"apiVersion":"example.io/v0","spec":{"replicas":1}}', "[" * 90_000])
def test_an_annotation_that_says_nothing_of_this_version_waives_nothing(live: Live, text: str) -> None:
    live.update(CSA, thing({"replicas": 1}, annotations={LAST_APPLIED: text}))
    with pytest.raises(ApplyConflict):
        live.apply("kubectl", thing({"replicas": 2}))


def test_other_managers_than_kubectl_conflict_and_leave_the_annotation(live: Live) -> None:
    live.update(CSA, client_side_applied({"replicas": 1}))
    with pytest.raises(ApplyConflict):
        live.apply("flux", thing({"replicas": 2}))
    obj = live.apply("flux", thing({"replicas": 2}), force=True)
    assert json.loads(obj["metadata"]["annotations"][LAST_APPLIED])["spec"] == {"replicas": 1}


def test_an_annotation_too_large_to_refresh_is_dropped(live: Live) -> None:
    live.update(CSA, client_side_applied({"replicas": 1}))
    obj = live.apply("kubectl", thing({"replicas": 1, "text": "x" * 262_144}))
    assert LAST_APPLIED not in obj["metadata"]["annotations"]


def test_an_applied_annotation_does_not_nest_in_itself(live: Live) -> None:
    live.update(CSA, client_side_applied({"replicas": 1}))
    obj = live.apply("kubectl", {**client_side_applied({"replicas": 1})}, force=True)
    assert LAST_APPLIED not in obj["metadata"]["annotations"][LAST_APPLIED]


def test_the_upgrade_kubectl_does_by_json_patch_is_taken_literally(live: Live) -> None:
    live.update(CSA, client_side_applied({"replicas": 1, "map": {"k": "1"}}))
    live.apply("kubectl", thing({"replicas": 1, "map": {"k": "1"}}))
    assert live.obj is not None
    # kubectl joins its two entries into one Apply entry and sends that in place of the list.
    joined = copy.deepcopy(live.fields(CSA, "Update"))
    joined["f:metadata"]["f:annotations"].pop(f"f:{LAST_APPLIED}")
    entries = [{**live.entry("kubectl"), "fieldsV1": joined}]
    patch = [
        {"op": "replace", "path": "/metadata/managedFields", "value": entries},
        {"op": "add", "path": "/metadata/resourceVersion", "value": "7"},
    ]
    live.update("kubectl", apply_json_patch(live.obj, patch))
    assert live.managers() == [("kubectl", "Apply")]
    assert live.fields("kubectl")["f:spec"] == {".": {}, "f:map": {".": {}, "f:k": {}}, "f:replicas": {}}
    live.apply("kubectl", thing({"replicas": 1}))
    assert live.spec == {"replicas": 1}


# Two versions of one kind: v1 calls `text` what v2 calls `title`.
def _schema(name: str) -> TypeSchema:
    spec = {"type": "object", "properties": {name: {"type": "string"}, "n": {"type": "integer"}}}
    return TypeSchema({"type": "object", "properties": {"spec": spec}}, {})


V1, V2 = _schema("text"), _schema("title")


def _convert(obj: Object, api_version: str) -> Object:
    spec = dict(obj.get("spec") or {})
    old, new = ("text", "title") if api_version == "g/v2" else ("title", "text")
    if old in spec:
        spec[new] = spec.pop(old)
    return {**obj, "apiVersion": api_version, "spec": spec}


def _schemas(api_version: str) -> TypeSchema | None:
    return {"g/v1": V1, "g/v2": V2}.get(api_version)


def _obj(version: str, **spec: Any) -> Object:
    return {"apiVersion": version, "kind": "T", "metadata": {"name": "n"}, "spec": spec}


def _apply(live: Object | None, patch: Object, name: str, *, force: bool = False) -> Object:
    version = patch["apiVersion"]
    seen = _convert(live, version) if live is not None and live["apiVersion"] != version else live
    options = ApplyOptions(now="t", force=force, convert=_convert, schemas=_schemas)
    schema = _schemas(version)
    assert schema is not None
    return apply_patch(seen, patch, Manager(name, "Apply", version), schema, options)


def _owned(obj: Object) -> dict[tuple[str, str], Object]:
    return {(e["manager"], e["apiVersion"]): e["fieldsV1"] for e in obj["metadata"].get("managedFields", [])}


def test_a_conflict_is_found_across_versions(live: Live) -> None:
    obj = _apply(None, _obj("g/v1", text="a"), "a")
    with pytest.raises(ApplyConflict, match=r'conflict with "a": \.spec\.text'):
        _apply(obj, _obj("g/v2", title="b"), "b")
    obj = _apply(obj, _obj("g/v2", title="b"), "b", force=True)
    assert _owned(obj) == {("b", "g/v2"): {"f:spec": {"f:title": {}}}}


def test_an_applier_that_moves_to_another_version_keeps_one_entry_and_prunes_in_the_old_one(live: Live) -> None:
    obj = _apply(None, _obj("g/v1", text="a", n=1), "a")
    obj = _apply(obj, _obj("g/v2", n=1), "a")
    assert obj["spec"] == {"n": 1}
    assert _owned(obj) == {("a", "g/v2"): {"f:spec": {"f:n": {}}}}


def test_moving_to_another_version_keeps_what_is_still_applied(live: Live) -> None:
    obj = _apply(None, _obj("g/v1", text="a", n=1), "a")
    obj = _apply(obj, _obj("g/v2", title="a"), "a")
    assert obj["spec"] == {"title": "a"}


def test_what_another_owns_in_another_version_is_not_pruned(live: Live) -> None:
    obj = _apply(None, _obj("g/v1", text="a", n=1), "a")
    obj = _apply(obj, _obj("g/v2", title="a"), "b")
    obj = _apply(obj, _obj("g/v1", n=1), "a")
    assert obj["spec"] == {"text": "a", "n": 1}


def test_an_update_in_one_version_takes_fields_recorded_in_another(live: Live) -> None:
    obj = _apply(None, _obj("g/v1", text="a", n=1), "a")
    seen = _convert(obj, "g/v2")
    new = copy.deepcopy(seen)
    new["spec"]["title"] = "b"
    options = TrackOptions(convert=_convert, schemas=_schemas)
    track_update(seen, new, Manager("u", "Update", "g/v2"), V2, "t", options)
    assert _owned(new) == {("a", "g/v1"): {"f:spec": {"f:n": {}}}, ("u", "g/v2"): {"f:spec": {"f:title": {}}}}


def test_entries_of_a_version_that_is_gone_are_dropped_and_keep_their_values(live: Live) -> None:
    obj = _apply(None, _obj("g/v1", text="a"), "a")
    obj["metadata"]["managedFields"][0]["apiVersion"] = "g/v0"
    obj = _apply(obj, _obj("g/v1", n=1), "a")
    assert obj["spec"] == {"text": "a", "n": 1}
    assert _owned(obj) == {("a", "g/v1"): {"f:spec": {"f:n": {}}}}
    obj["metadata"]["managedFields"][0]["apiVersion"] = "g/v0"
    new = copy.deepcopy(obj)
    new["spec"]["n"] = 2
    track_update(obj, new, Manager("u", "Update", "g/v1"), V1, "t", TrackOptions(schemas=_schemas))
    assert _owned(new) == {("u", "g/v1"): {"f:spec": {"f:n": {}}}}


def test_a_list_that_became_atomic_is_owned_whole(live: Live) -> None:
    item = {"type": "object", "properties": {"name": {"type": "string"}, "v": {"type": "string"}}}
    lists = {"granular": keyed(item, "name"), "atomic": {"type": "array", "items": item}}
    schemas = {
        name: TypeSchema(
            {
                "type": "object",
                "properties": {"spec": {"type": "object", "properties": {"l": source, "n": {"type": "integer"}}}},
            },
            {},
        )
        for name, source in lists.items()
    }
    who = Manager("a", "Apply", "g/v1")
    patch = _obj("g/v1", l=[{"name": "x", "v": "1"}])
    obj = apply_patch(None, patch, who, schemas["granular"], ApplyOptions(now="t"))
    other = Manager("b", "Apply", "g/v1")
    with pytest.raises(ApplyConflict, match=r'conflict with "a": \.spec\.l$'):
        apply_patch(obj, _obj("g/v1", l=[]), other, schemas["atomic"], ApplyOptions(now="t"))
    obj = apply_patch(obj, _obj("g/v1", n=1), other, schemas["atomic"], ApplyOptions(now="t"))
    assert _owned(obj)[("a", "g/v1")] == {"f:spec": {"f:l": {}}}


def test_an_unserved_api_version_of_the_request_is_not_asked_for(live: Live) -> None:
    options = ApplyOptions(now="t", schemas=lambda version: None)
    obj = apply_patch(None, _obj("g/v1", text="a"), Manager("a", "Apply", "g/v1"), V1, options)
    assert _owned(obj) == {("a", "g/v1"): {"f:spec": {"f:text": {}}}}
    assert API_VERSION not in str(obj)
