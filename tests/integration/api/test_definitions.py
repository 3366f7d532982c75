"""CustomResourceDefinitions and what they define, after Kubernetes' conformance specs that need no nodes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness.clients.api import APPLY, CRDS, JSON_PATCH, PARTIAL, TABLE, Api, crd, define, eventually

Object = dict[str, Any]
GROUP = "shapes.example.com"
CIRCLES = f"/apis/{GROUP}/v1/namespaces/default/circles"
NAME = f"circles.{GROUP}"


def circle(name: str = "a", version: str = "v1", **content: Any) -> Object:
    return {"apiVersion": f"{GROUP}/{version}", "kind": "Circle", "metadata": {"name": name}, **content}


def with_schema(schema: Object, plural: str = "circles", **more: Any) -> Object:
    """A definition of one version with just this schema."""
    definition = crd(plural)
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **more}
    definition["spec"]["versions"] = [version]
    return definition


def conditions(api: Api, name: str = NAME) -> dict[str, Object]:
    status = api.get(f"{CRDS}/{name}").json.get("status") or {}
    return {each["type"]: each for each in status.get("conditions") or []}


# --- [sig-api-machinery] CustomResourceDefinition resources, Simple CustomResourceDefinition ---


def test_definitions_are_listed_and_deleted_by_label(api: Api) -> None:
    for plural in ("circles", "squares", "rings"):
        definition = crd(plural)
        definition["metadata"]["labels"] = {"round": str(plural != "squares").lower()}
        define(api, definition)
    listed = api.get(f"{CRDS}?labelSelector=round%3Dtrue").json
    assert [item["spec"]["names"]["plural"] for item in listed["items"]] == ["circles", "rings"]
    api.delete(f"{CRDS}?labelSelector=round%3Dtrue")
    eventually(lambda: [item["metadata"]["name"] for item in api.get(CRDS).json["items"]] == [f"squares.{GROUP}"])


def test_the_status_of_a_definition_is_read_updated_and_patched(api: Api) -> None:
    define(api, crd("circles"))
    found = api.get(f"{CRDS}/{NAME}/status").json
    assert found["kind"] == "CustomResourceDefinition"
    found["status"]["conditions"].append({"type": "StatusUpdate", "status": "True", "reason": "E2E", "message": "x"})
    updated = api.put(f"{CRDS}/{NAME}/status", found).json
    assert "StatusUpdate" in {each["type"] for each in updated["status"]["conditions"]}
    assert updated["metadata"]["generation"] == 1
    more = {"type": "StatusPatched", "status": "True", "reason": "E2E", "message": "y"}
    patch = {"status": {"conditions": [*updated["status"]["conditions"], more]}}
    patched = api.patch(f"{CRDS}/{NAME}/status", patch).json
    assert {"StatusUpdate", "StatusPatched", "Established"} <= {e["type"] for e in patched["status"]["conditions"]}


def test_definitions_are_in_the_discovery_documents(api: Api) -> None:
    group = next(each for each in api.get("/apis").json["groups"] if each["name"] == "apiextensions.k8s.io")
    assert {"groupVersion": "apiextensions.k8s.io/v1", "version": "v1"} in group["versions"]
    assert api.get("/apis/apiextensions.k8s.io").json["preferredVersion"]["version"] == "v1"
    resources = [each["name"] for each in api.get("/apis/apiextensions.k8s.io/v1").json["resources"]]
    assert {"customresourcedefinitions", "customresourcedefinitions/status"} <= set(resources)


def test_defaults_come_with_requests_and_from_storage(api: Api) -> None:
    text = {"type": "string"}
    schema: Object = {"type": "object", "properties": {"a": {**text, "default": "A"}, "b": text}}
    define(api, with_schema(schema))
    assert api.post(CIRCLES, circle()).json["a"] == "A"
    schema["properties"]["b"] = {**text, "default": "B"}
    replaced = [{"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema", "value": schema}]
    api.patch(f"{CRDS}/{NAME}", replaced, JSON_PATCH)
    # The default is applied on reads from storage: the object is older than the default.
    assert eventually(lambda: api.get(f"{CIRCLES}/a").json.get("b")) == "B"
    assert [item["b"] for item in api.get(CIRCLES).json["items"]] == ["B"]
    assert api.post(CIRCLES, circle("c")).json["b"] == "B"
    kept = api.patch(
        f"{CIRCLES}/a", [{"op": "remove", "path": "/a"}, {"op": "replace", "path": "/b", "value": "x"}], JSON_PATCH
    ).json
    assert (kept["a"], kept["b"]) == ("A", "x")


# --- CustomResourceDefinition Watch ---


def test_two_watches_by_label_see_each_their_own_objects(api: Api) -> None:
    define(api, crd("circles"))
    with (
        api.watch(f"{CIRCLES}?watch=1&labelSelector=watch%3Da") as first,
        api.watch(f"{CIRCLES}?watch=1&labelSelector=watch%3Db") as second,
    ):
        for name in ("a", "b"):
            body = circle(name)
            body["metadata"]["labels"] = {"watch": name}
            api.post(CIRCLES, body)
            api.patch(f"{CIRCLES}/{name}", {"spec": {"colour": "red"}})
            api.delete(f"{CIRCLES}/{name}")
        for name, events in (("a", first), ("b", second)):
            told = events.take(3)
            assert [event.type for event in told] == ["ADDED", "MODIFIED", "DELETED"]
            assert {event.name for event in told} == {name}


# --- CustomResourceFieldSelectors ---


def selectable(name: str, *paths: str, storage: bool = False) -> Object:
    properties = {
        "host": {"type": "string"},
        "port": {"type": "string"},
        "on": {"type": "boolean"},
        "size": {"type": "integer"},
    }
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}
    fields = [{"jsonPath": path} for path in paths]
    return {
        "name": name,
        "served": True,
        "storage": storage,
        "schema": {"openAPIV3Schema": schema},
        "selectableFields": fields,
    }


def two_versions() -> Object:
    definition = crd("circles")
    definition["spec"]["versions"] = [
        selectable("v1", ".spec.host", ".spec.on", storage=True),
        selectable("v2", ".spec.host", ".spec.port", ".spec.size"),
    ]
    return definition


def names(api: Api, version: str, selector: str) -> list[str]:
    path = CIRCLES.replace("/v1/", f"/{version}/")
    return [item["metadata"]["name"] for item in api.get(f"{path}?fieldSelector={selector}").json["items"]]


def test_each_version_selects_by_its_own_fields(api: Api) -> None:
    define(api, two_versions())
    api.post(CIRCLES, circle("a", spec={"host": "one", "port": "80", "on": True, "size": 3}))
    api.post(CIRCLES, circle("b", spec={"host": "one", "port": "81"}))
    api.post(CIRCLES, circle("c", spec={"host": "two", "port": "80"}))
    assert names(api, "v1", "spec.host%3Done") == ["a", "b"]
    assert names(api, "v2", "spec.host%3Done,spec.port%3D80") == ["a"]
    assert names(api, "v2", "spec.host!%3Done") == ["c"]
    assert names(api, "v1", "spec.on%3Dtrue") == ["a"]
    # A field that is absent counts as the empty string.
    assert names(api, "v1", "spec.on%3D") == ["b", "c"]
    assert names(api, "v2", "spec.size%3D3,metadata.name%3Da") == ["a"]
    for version, label in (("v1", "spec.port"), ("v2", "spec.on"), ("v1", "spec.nothing")):
        path = CIRCLES.replace("/v1/", f"/{version}/")
        assert api.get(f"{path}?fieldSelector={label}%3Dx", expect=400).message == f"field label not supported: {label}"
        assert api.get(f"{path}?watch=1&fieldSelector={label}%3Dx", expect=400).code == 400
    assert api.delete(f"{CIRCLES}?fieldSelector=spec.host%3Done").code == 200
    assert names(api, "v1", "metadata.namespace%3Ddefault") == ["c"]


def test_a_watch_sees_objects_enter_and_leave_its_fields(api: Api) -> None:
    define(api, two_versions())
    path = CIRCLES.replace("/v1/", "/v2/")
    with (
        api.watch(f"{CIRCLES}?watch=1&fieldSelector=spec.host%3Done") as first,
        api.watch(f"{path}?watch=1&fieldSelector=spec.host%3Done,spec.port%3D80") as second,
    ):
        api.post(CIRCLES, circle("a", spec={"host": "one", "port": "80"}))
        api.patch(f"{CIRCLES}/a", {"spec": {"port": "81"}})
        api.patch(f"{CIRCLES}/a", {"spec": {"host": "two"}})
        api.patch(f"{CIRCLES}/a", {"spec": {"host": "one", "port": "80"}})
        api.delete(f"{CIRCLES}/a")
        one, two = first.take(5), second.take(4)
    assert [event.type for event in one] == ["ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED"]
    assert [event.type for event in two] == ["ADDED", "DELETED", "ADDED", "DELETED"]
    assert {event.object["apiVersion"] for event in two} == {f"{GROUP}/v2"}
    # The event has the last selected state, at the revision at which the object stopped matching.
    assert (one[2].object["spec"]["host"], two[1].object["spec"]["port"]) == ("one", "80")
    assert one[1].revision < one[2].revision < one[3].revision


# --- FieldValidation ---


OPEN: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def test_without_a_schema_unknown_fields_are_fine(api: Api) -> None:
    define(api, with_schema(OPEN))
    body = circle(spec={"unknown": {"a": 1}})
    assert api.post(f"{CIRCLES}?fieldValidation=Strict", body).json["spec"] == {"unknown": {"a": 1}}
    applied = json.dumps(circle("b", spec={"unknown": 1})).encode()
    path = f"{CIRCLES}/b?fieldManager=m&fieldValidation=Strict"
    assert api.send("PATCH", path, applied, kind=APPLY, expect=201).json["spec"] == {"unknown": 1}


def test_extra_properties_of_a_schema_are_refused_when_strict(api: Api) -> None:
    define(api, crd("circles"))
    assert api.post(f"{CIRCLES}?fieldValidation=Strict", circle(spec={"colour": "red"})).code == 201
    bad = circle("b", spec={"colour": "red", "extra": 1})
    message = api.post(f"{CIRCLES}?fieldValidation=Strict", bad, expect=400).message
    assert 'strict decoding error: unknown field "spec.extra"' in message
    path = f"{CIRCLES}/b?fieldManager=m&fieldValidation=Strict"
    message = api.send("PATCH", path, json.dumps(bad).encode(), kind=APPLY).message
    assert message.endswith(".spec.extra: field not declared in schema")
    warned = api.post(CIRCLES, bad)
    assert 'unknown field "spec.extra"' in warned.warnings
    assert "extra" not in warned.json["spec"]


def test_duplicates_are_told_also_where_unknown_fields_are_preserved(api: Api) -> None:
    define(api, with_schema(OPEN))
    text = (
        f'{{"apiVersion":"{GROUP}/v1","kind":"Circle","metadata":{{"name":"a"}},'
        '"spec":{"foo":"1","foo":"2","unknown":1}}'
    ).encode()
    message = api.post(f"{CIRCLES}?fieldValidation=Strict", text, expect=400, kind="application/json").message
    assert message.endswith('strict decoding error: duplicate field "spec.foo"')
    applied = f"apiVersion: {GROUP}/v1\nkind: Circle\nmetadata:\n  name: a\nspec:\n  foo: one\n  foo: two\n".encode()
    path = f"{CIRCLES}/a?fieldManager=me&fieldValidation=Strict"
    message = api.send("PATCH", path, applied, kind=APPLY, expect=400).message
    assert 'line 7: key "foo" already set in map' in message, message


def test_unknown_metadata_is_told_at_the_root_and_in_embedded_objects(api: Api) -> None:
    template = {
        "type": "object",
        "x-kubernetes-embedded-resource": True,
        "properties": {"metadata": {"type": "object"}, "spec": {"type": "object"}},
    }
    spec = {"type": "object", "properties": {"template": template}}
    define(api, with_schema({"type": "object", "properties": {"spec": spec}}))
    body = circle(
        spec={"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "unknownSub": "y"}, "spec": {}}}
    )
    body["metadata"]["unknownMeta"] = "z"
    message = api.post(f"{CIRCLES}?fieldValidation=Strict", body, expect=400).message
    assert 'unknown field "metadata.unknownMeta"' in message
    assert 'unknown field "spec.template.metadata.unknownSub"' in message


# --- conditions, names, approval, versions ---


def test_conditions_say_which_generation_they_are_about(api: Api) -> None:
    define(api, crd("circles"))
    assert {each["observedGeneration"] for each in conditions(api).values()} == {1}
    api.patch(f"{CRDS}/{NAME}", {"spec": {"names": {"shortNames": ["ci"]}}})
    eventually(lambda: {each["observedGeneration"] for each in conditions(api).values()} == {2})
    status = api.get(f"{CRDS}/{NAME}").json["status"]
    assert (status["observedGeneration"], status["acceptedNames"]["shortNames"]) == (2, ["ci"])


def test_names_without_conflict_are_accepted_beside_one_that_has_one(api: Api) -> None:
    define(api, crd("circles"))
    other = crd("rings")
    other["spec"]["names"].update(shortNames=["circle", "circles", "ri"], kind="Circle", categories=["all"])
    api.post(CRDS, other)
    name = f"rings.{GROUP}"
    eventually(lambda: "NamesAccepted" in conditions(api, name))
    told = conditions(api, name)["NamesAccepted"]
    assert (told["status"], told["reason"], told["message"]) == ("False", "KindConflict", '"Circle" is already in use')
    assert api.get(f"{CRDS}/{name}").json["status"]["acceptedNames"] == {
        "plural": "rings",
        "singular": "ring",
        "kind": "",
        "listKind": "RingList",
        "categories": ["all"],
    }
    # A served definition keeps its accepted names when it requests a name in use.
    define(api, crd("squares"))
    api.patch(f"{CRDS}/squares.{GROUP}", {"spec": {"names": {"shortNames": ["circle"]}}})
    eventually(lambda: conditions(api, f"squares.{GROUP}")["NamesAccepted"]["status"] == "False")
    told = conditions(api, f"squares.{GROUP}")
    assert (told["NamesAccepted"]["reason"], told["Established"]["status"]) == ("ShortNamesConflict", "True")
    api.get(f"/apis/{GROUP}/v1/squares")


@pytest.mark.parametrize(
    ("annotation", "reason", "status"),
    [
        ("https://github.com/kubernetes/kubernetes/pull/78458", "ApprovedAnnotation", "True"),
        ("unapproved, experimental", "UnapprovedAnnotation", "False"),
    ],
)
def test_a_group_of_kubernetes_needs_an_approval(api: Api, annotation: str, reason: str, status: str) -> None:
    definition = crd("circles", "x.k8s.io")
    assert "api-approved.kubernetes.io" in api.post(CRDS, definition, expect=422).message
    definition["metadata"]["annotations"] = {"api-approved.kubernetes.io": annotation}
    define(api, definition)
    told = conditions(api, "circles.x.k8s.io")["KubernetesAPIApprovalPolicyConformant"]
    assert (told["status"], told["reason"]) == (status, reason)


def test_a_deprecated_version_warns_on_every_request_and_names_a_better_one(api: Api) -> None:
    definition = crd("circles")
    (first,) = definition["spec"]["versions"]
    own = {**first, "name": "v1alpha1", "storage": False, "deprecated": True, "deprecationWarning": "please leave"}
    old = {**first, "name": "v1beta1", "storage": False, "deprecated": True}
    definition["spec"]["versions"] = [first, old, own]
    define(api, definition)
    beta, alpha = (CIRCLES.replace("/v1/", f"/{name}/") for name in ("v1beta1", "v1alpha1"))
    text = f"{GROUP}/v1beta1 Circle is deprecated; use {GROUP}/v1 Circle"
    assert api.get(beta).warnings == [text]
    assert api.post(beta, circle(version="v1beta1")).warnings == [text]
    assert api.get(f"{beta}/a").warnings == [text]
    assert api.get(alpha).warnings == ["please leave"]
    assert api.get(CIRCLES).warnings == []


def test_two_versions_without_conversion_show_what_their_schemas_know(api: Api) -> None:
    definition = crd("circles")
    text = {"type": "string"}

    def version(name: str, storage: bool, **properties: Object) -> Object:
        return {
            "name": name,
            "served": True,
            "storage": storage,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
        }

    definition["spec"]["versions"] = [
        version("v1", True, a=text, b={**text, "default": "B1"}),
        version("v2", False, a=text, c={**text, "default": "C2"}),
    ]
    define(api, definition)
    there = CIRCLES.replace("/v1/", "/v2/")
    assert api.post(CIRCLES, circle(a="x")).json["b"] == "B1"
    found = api.get(f"{there}/a").json
    assert (found["a"], found["c"], "b" in found) == ("x", "C2", False)
    api.patch(f"{there}/a", {"a": "y"})
    assert api.get(f"{CIRCLES}/a").json["a"] == "y"


# --- scale ---


def test_scale_stands_wherever_the_paths_lead(api: Api) -> None:
    number, text = {"type": "integer"}, {"type": "string"}
    deep = {"type": "object", "properties": {"pool": {"type": "object", "properties": {"size": number}}}}
    schema = {
        "type": "object",
        "properties": {
            "spec": deep,
            "status": {
                "type": "object",
                "properties": {"now": {"type": "object", "properties": {"size": number}}, "selector": text},
            },
        },
    }
    scale = {
        "specReplicasPath": ".spec.pool.size",
        "statusReplicasPath": ".status.now.size",
        "labelSelectorPath": ".status.selector",
    }
    define(api, with_schema(schema, subresources={"status": {}, "scale": scale}))
    made = api.post(CIRCLES, circle(spec={"pool": {"size": 2}})).json
    found = api.get(f"{CIRCLES}/a/scale").json
    assert (found["apiVersion"], found["kind"]) == ("autoscaling/v1", "Scale")
    assert (found["spec"], found["status"]["replicas"]) == ({"replicas": 2}, 0)
    assert {name: found["metadata"][name] for name in ("name", "namespace", "uid", "resourceVersion")} == {
        name: made["metadata"][name] for name in ("name", "namespace", "uid", "resourceVersion")
    }
    api.patch(f"{CIRCLES}/a/status", {"status": {"now": {"size": 1}, "selector": "app=a"}})
    assert api.get(f"{CIRCLES}/a/scale").json["status"] == {"replicas": 1, "selector": "app=a"}
    stale = {**found, "spec": {"replicas": 7}}
    assert api.put(f"{CIRCLES}/a/scale", stale, expect=409).json["reason"] == "Conflict"
    del stale["metadata"]["resourceVersion"]
    assert api.put(f"{CIRCLES}/a/scale", stale).json["spec"]["replicas"] == 7
    assert api.get(f"{CIRCLES}/a").json["spec"]["pool"]["size"] == 7
    message = api.patch(f"{CIRCLES}/a/scale", {"spec": {"replicas": -1}}, expect=422).message
    assert "must be greater than or equal to 0" in message
    api.post(CIRCLES, circle("bare"))
    message = api.get(f"{CIRCLES}/bare/scale", expect=500).message
    assert message.endswith('the spec replicas field ".spec.pool.size" does not exist')
    assert api.patch(f"{CIRCLES}/bare/scale", {"spec": {"replicas": 4}}).json["spec"]["replicas"] == 4
    assert api.get(f"{CIRCLES}/bare").json["spec"] == {"pool": {"size": 4}}


# --- columns, metadata ---


def test_columns_of_every_type_and_priority_are_shown(api: Api) -> None:
    schema = {"type": "object", "properties": {"spec": OPEN}}
    columns = [
        {"name": name, "type": type_, "jsonPath": f".spec.{name.lower()}", **more}
        for name, type_, more in (
            ("Text", "string", {"description": "Some text."}),
            ("Count", "integer", {"format": "int32"}),
            ("Share", "number", {"format": "double", "priority": 1}),
            ("On", "boolean", {"priority": 2}),
            ("Since", "date", {}),
        )
    ]
    columns.append({"name": "Ready", "type": "string", "jsonPath": '.spec.conditions[?(@.type=="Ready")].status'})
    define(api, with_schema(schema, additionalPrinterColumns=columns))
    conditions = [{"type": "Ready", "status": "True"}]
    api.post(
        CIRCLES,
        circle(
            "a",
            spec={
                "text": "t",
                "count": 3,
                "share": 0.5,
                "on": False,
                "conditions": conditions,
                "since": "2001-01-01T00:00:00Z",
            },
        ),
    )
    api.post(CIRCLES, circle("b", spec={"text": {"x": 1}, "count": "many", "share": True, "on": "no", "since": "?"}))
    api.post(CIRCLES, circle("c"))
    table = api.get(CIRCLES, accept=TABLE).json
    assert [(c["name"], c["type"], c["format"], c["priority"]) for c in table["columnDefinitions"]] == [
        ("Name", "string", "name", 0),
        ("Text", "string", "", 0),
        ("Count", "integer", "int32", 0),
        ("Share", "number", "double", 1),
        ("On", "boolean", "", 2),
        ("Since", "date", "", 0),
        ("Ready", "string", "", 0),
    ]
    assert [c["description"] for c in table["columnDefinitions"][1:3]] == [
        "Some text.",
        "Custom resource definition column (in JSONPath format): .spec.count",
    ]
    first, second, third = (row["cells"] for row in table["rows"])
    assert first[:5] == ["a", "t", 3, 0.5, False]
    assert first[5].endswith("y")
    assert first[6] == "True"
    assert second == ["b", '{"x":1}', None, None, None, "<invalid>", None]
    assert third == ["c", None, None, None, None, None, None]


def test_table_and_metadata_watches_of_custom_objects(api: Api) -> None:
    define(api, crd("circles"))
    api.post(CIRCLES, circle("a", spec={"colour": "red"}))
    path = f"{CIRCLES}?watch=1"
    with api.watch(path, accept=TABLE) as tables, api.watch(path, accept=PARTIAL) as partial:
        table, metadata = tables.next().object, partial.next().object
        api.patch(f"{CIRCLES}/a", {"spec": {"colour": "blue"}})
        changed, then = tables.next().object, partial.next().object
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Colour"]
    assert (table["rows"][0]["cells"], changed["rows"][0]["cells"]) == (["a", "red"], ["a", "blue"])
    assert (metadata["kind"], metadata["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
    assert "spec" not in metadata
    assert then["metadata"]["generation"] == 2


# --- schemas at work ---


def replace_schema(api: Api, schema: Object) -> None:
    """Serve objects under another schema from now on."""
    path = "/spec/versions/0/schema/openAPIV3Schema"
    generation = api.get(f"{CRDS}/{NAME}").json["metadata"]["generation"]
    changed = api.patch(f"{CRDS}/{NAME}", [{"op": "replace", "path": path, "value": schema}], JSON_PATCH).json
    assert changed["metadata"]["generation"] == generation + 1


def test_what_became_invalid_may_stay_but_not_come_anew(api: Api) -> None:
    text: Object = {"type": "string"}
    items: Object = {
        "type": "array",
        "items": {"type": "object", "properties": {"name": text, "value": text}},
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    }
    items["items"]["required"] = ["name"]
    schema: Object = {"type": "object", "properties": {"a": text, "b": text, "items": items}}
    define(api, with_schema(schema))
    api.post(CIRCLES, circle(a="long enough", b="x", items=[{"name": "one", "value": "loud"}, {"name": "two"}]))
    schema["properties"]["a"] = {**text, "maxLength": 3}
    items["items"]["properties"]["value"] = {**text, "enum": ["quiet"]}
    replace_schema(api, schema)
    assert api.patch(f"{CIRCLES}/a", {"b": "y"}).json["a"] == "long enough"
    moved = api.patch(f"{CIRCLES}/a", {"items": [{"name": "two", "value": "quiet"}, {"name": "one", "value": "loud"}]})
    assert moved.json["items"][1]["value"] == "loud", "items correlate by their keys"
    refused = api.patch(f"{CIRCLES}/a", {"a": "also long"}, expect=422)
    assert refused.message.endswith("a: Too long: may not be more than 3 bytes")
    message = api.patch(f"{CIRCLES}/a", {"items": [{"name": "three", "value": "loud"}]}, expect=422).message
    assert 'items[0].value: Unsupported value: "loud": supported values: "quiet"' in message
    assert api.post(CIRCLES, circle("b", a="long enough"), expect=422).json["reason"] == "Invalid"


def test_null_stays_where_it_is_allowed_and_gives_way_to_defaults_elsewhere(api: Api) -> None:
    text: Object = {"type": "string"}
    properties = {"free": {**text, "nullable": True, "default": "d"}, "plain": text, "filled": {**text, "default": "d"}}
    define(api, with_schema({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}))
    made = api.post(CIRCLES, circle(spec={"free": None, "plain": None, "filled": None})).json
    assert made["spec"] == {"free": None, "filled": "d"}
    assert api.post(CIRCLES, circle("b", spec={})).json["spec"] == {"free": "d", "filled": "d"}


def test_lists_keep_their_promises(api: Api) -> None:
    number = {"type": "integer"}
    pairs = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["x", "y"],
        "items": {"type": "object", "required": ["x"], "properties": {"x": number, "y": {**number, "default": 0}}},
    }
    unique = {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}
    define(api, with_schema({"type": "object", "properties": {"pairs": pairs, "unique": unique}}))
    api.post(CIRCLES, circle(pairs=[{"x": 1}, {"x": 1, "y": 1}], unique=["a", "b"]))
    message = api.post(CIRCLES, circle("b", pairs=[{"x": 1}, {"x": 1, "y": 0}]), expect=422).message
    assert 'pairs[1]: Duplicate value: {"x":1,"y":0}' in message
    message = api.post(CIRCLES, circle("b", unique=["a", "b", "a"]), expect=422).message
    assert 'unique[2]: Duplicate value: "a"' in message


def test_embedded_objects_are_objects(api: Api) -> None:
    template = {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}
    define(api, with_schema({"type": "object", "properties": {"template": template}}))
    good = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "labels": {"a": "b"}}, "spec": {"c": 1}}
    made = api.post(CIRCLES, circle(template=good)).json
    assert made["template"] == good
    message = api.post(CIRCLES, circle("b", template={"spec": {}}), expect=422).message
    assert "template.apiVersion: Required value" in message
    assert "template.kind: Required value" in message
    bad = {**good, "metadata": {"name": "x", "labels": {"a b": "c"}}}
    assert "template.metadata.labels" in api.post(CIRCLES, circle("b", template=bad), expect=422).message


def test_an_integer_or_a_string_is_kept_as_it_was_sent(api: Api) -> None:
    define(api, with_schema({"type": "object", "properties": {"port": {"x-kubernetes-int-or-string": True}}}))
    assert api.post(CIRCLES, circle("a", port=80)).json["port"] == 80
    assert api.post(CIRCLES, circle("b", port="80%")).json["port"] == "80%"
    assert "port" in api.post(CIRCLES, circle("c", port=1.5), expect=422).message
