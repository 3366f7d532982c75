"""Custom resources in several versions, converted by a real HTTPS webhook."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.clients.api import (
    APPLY,
    CRDS,
    JSON_PATCH,
    PARTIAL_LIST,
    TABLE,
    Api,
    configmap,
    define,
    eventually,
    workspace_under,
)
from harness.clients.exports import accepted, bind, claim, cluster_of, make_export, schema, schema_of
from harness.clients.policies import Policies, rule
from harness.servers.shard_process import ShardProcess
from harness.servers.stand_ins.webhook import Odd, WebhookServer, converted

Object = dict[str, Any]
GROUP = "points.example.com"
V1 = f"/apis/{GROUP}/v1/namespaces/default/points"
V2 = f"/apis/{GROUP}/v2/namespaces/default/points"
FAILED = f"conversion webhook for {GROUP}/v1, Kind=Point"


def convert(obj: Object, api_version: str) -> Object:
    """v1 says `spec.at: "3,4"`, v2 says `spec.x: 3, spec.y: 4`."""
    spec = dict(obj.get("spec") or {})
    if api_version.endswith("/v2") and "at" in spec:
        x, y = spec.pop("at").split(",")
        spec.update(x=int(x), y=int(y))
    elif api_version.endswith("/v1") and "x" in spec:
        spec["at"] = f"{spec.pop('x')},{spec.pop('y', 0)}"
    return {**obj, "apiVersion": api_version, "spec": spec}


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardProcess]:
    directory: Path = tmp_path_factory.mktemp("converting")
    with ShardProcess(directory, "--egress-allow-cidr", "127.0.0.0/8") as running:
        yield running


@pytest.fixture(scope="module")
def admin(shard: ShardProcess) -> Iterator[Api]:
    api = Api(shard, "root")
    yield api
    api.close()


@pytest.fixture
def api(admin: Api) -> Iterator[Api]:
    here = admin.at(workspace_under(admin, type_="universal"))
    yield here
    here.close()


@pytest.fixture
def webhook() -> Iterator[WebhookServer]:
    with WebhookServer(lambda review: converted(review, convert)) as server:
        yield server


def version(name: str, *, storage: bool, **more: Any) -> Object:
    integer, text = {"type": "integer"}, {"type": "string"}
    spec: Object = {"colour": text, "replicas": integer, "size": {"type": "integer", "default": int(name[1:]) * 10}}
    spec.update({"at": text} if name == "v1" else {"x": integer, "y": integer})
    path = ".spec.at" if name == "v1" else ".spec.x"
    properties = {
        "spec": {"type": "object", "properties": spec},
        "status": {"type": "object", "properties": {"replicas": integer}},
    }
    return {
        "name": name,
        "served": True,
        "storage": storage,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
        },
        "selectableFields": [{"jsonPath": path}],
        "additionalPrinterColumns": [{"name": "Place", "type": "string", "jsonPath": path}],
        **more,
    }


def points(webhook: WebhookServer, *, storage: str = "v2", reviews: tuple[str, ...] = ("v1", "v1beta1")) -> Object:
    client = {"url": webhook.url, "caBundle": webhook.ca_bundle}
    names = {"plural": "points", "singular": "point", "kind": "Point", "listKind": "PointList"}
    spec = {
        "group": GROUP,
        "scope": "Namespaced",
        "names": names,
        "versions": [version(name, storage=name == storage) for name in ("v1", "v2")],
        "conversion": {
            "strategy": "Webhook",
            "webhook": {"clientConfig": client, "conversionReviewVersions": list(reviews)},
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"points.{GROUP}"},
        "spec": spec,
    }


def point(name: str, of: str = "v1", **spec: Any) -> Object:
    return {"apiVersion": f"{GROUP}/{of}", "kind": "Point", "metadata": {"name": name}, "spec": spec}


def restore(api: Api, storage: str) -> None:
    """Make another version the stored one, and wait until that takes effect."""
    path = f"{CRDS}/points.{GROUP}"
    versions = api.get(path).json["spec"]["versions"]
    changed = [{**each, "storage": each["name"] == storage} for each in versions]
    api.patch(path, {"spec": {"versions": changed}})
    eventually(lambda: storage in api.get(path).json["status"]["storedVersions"])


# --- reads and writes ---


def test_an_object_is_read_and_written_in_every_version(api: Api, webhook: WebhookServer) -> None:
    define(api, points(webhook))
    made = api.post(V1, point("a", at="3,4")).json
    assert made["apiVersion"] == f"{GROUP}/v1"
    # The default of the stored version was set at the write; both values are unchanged.
    assert made["spec"] == {"at": "3,4", "size": 10}
    there = api.get(f"{V2}/a").json
    assert there["spec"] == {"x": 3, "y": 4, "size": 10}
    assert there["metadata"]["uid"] == made["metadata"]["uid"]
    assert there["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    changed = api.put(f"{V1}/a", {**made, "spec": {**made["spec"], "at": "5,6"}}).json
    assert changed["spec"]["at"] == "5,6"
    assert changed["metadata"]["generation"] == 2
    assert api.get(f"{V2}/a").json["spec"]["x"] == 5
    assert api.patch(f"{V2}/a", {"spec": {"y": 9}}).json["spec"] == {"x": 5, "y": 9, "size": 10}
    assert api.get(f"{V1}/a").json["spec"]["at"] == "5,9"
    assert api.patch(f"{V1}/a", [{"op": "replace", "path": "/spec/at", "value": "1,1"}], JSON_PATCH).code == 200
    assert api.get(f"{V2}/a").json["spec"]["x"] == 1


def test_a_request_in_the_stored_version_asks_nobody(api: Api, webhook: WebhookServer) -> None:
    define(api, points(webhook))
    api.post(V2, point("a", "v2", x=1, y=2))
    api.patch(f"{V2}/a", {"spec": {"x": 2}})
    api.get(V2)
    api.delete(f"{V2}/a")
    assert webhook.calls == []


def test_the_question_is_a_conversion_review(api: Api, webhook: WebhookServer) -> None:
    define(api, points(webhook))
    api.post(V1, point("a", at="3,4"))
    first, second = webhook.calls
    assert first.path == "/convert?timeout=30s"
    assert first.headers["Host"] == f"127.0.0.1:{webhook.port}"
    assert (first.body["apiVersion"], first.body["kind"]) == ("apiextensions.k8s.io/v1", "ConversionReview")
    request = first.body["request"]
    assert request["desiredAPIVersion"] == f"{GROUP}/v2"
    assert request["uid"] != second.body["request"]["uid"]
    assert [obj["metadata"]["name"] for obj in request["objects"]] == ["a"]
    assert second.body["request"]["desiredAPIVersion"] == f"{GROUP}/v1"


def test_v1beta1_is_spoken_where_it_is_the_only_one(api: Api, webhook: WebhookServer) -> None:
    define(api, points(webhook, reviews=("v1beta1",)))
    api.post(V1, point("a", at="3,4"))
    assert {call.body["apiVersion"] for call in webhook.calls} == {"apiextensions.k8s.io/v1beta1"}


def test_a_list_is_one_question(api: Api, webhook: WebhookServer) -> None:
    define(api, points(webhook))
    for index in range(30):
        api.post(V2, point(f"p{index:02}", "v2", x=index, y=0))
    found = api.get(V1).json
    assert [item["spec"]["at"] for item in found["items"]] == [f"{index},0" for index in range(30)]
    assert {item["apiVersion"] for item in found["items"]} == {f"{GROUP}/v1"}
    assert len(webhook.calls) == 1
    assert [len(call.body["request"]["objects"]) for call in webhook.calls] == [30]
    pages = api.get(f"{V1}?limit=20").json
    assert len(pages["items"]) == 20
    rest = api.get(f"{V1}?limit=20&continue={pages['metadata']['continue']}").json
    assert [item["spec"]["at"] for item in rest["items"]] == [f"{index},0" for index in range(20, 30)]
    # The first list contained all of them.
    assert len(webhook.calls) == 1


def test_an_object_known_in_a_version_is_not_asked_for_again_until_it_changes(api: Api, webhook: WebhookServer) -> None:
    define(api, points(webhook))
    api.post(V2, point("a", "v2", x=1, y=2))
    for _ in range(3):
        api.get(f"{V1}/a")
    assert len(webhook.calls) == 1
    api.patch(f"{V2}/a", {"spec": {"x": 2}})
    assert api.get(f"{V1}/a").json["spec"]["at"] == "2,2"
    assert len(webhook.calls) == 2


def test_field_selectors_and_tables_see_the_version_asked_for(api: Api, webhook: WebhookServer) -> None:
    define(api, points(webhook))
    api.post(V1, point("a", at="3,4"))
    api.post(V2, point("b", "v2", x=5, y=6))
    assert [item["metadata"]["name"] for item in api.get(f"{V1}?fieldSelector=spec.at%3D5%5C,6").json["items"]] == ["b"]
    assert [item["metadata"]["name"] for item in api.get(f"{V2}?fieldSelector=spec.x%3D3").json["items"]] == ["a"]
    assert "field label not supported: spec.x" in api.get(f"{V1}?fieldSelector=spec.x%3D3", expect=400).message
    rows = api.get(V1, accept=TABLE).json["rows"]
    assert [row["cells"] for row in rows] == [["a", "3,4"], ["b", "5,6"]]
    assert [row["cells"] for row in api.get(V2, accept=TABLE).json["rows"]] == [["a", "3"], ["b", "5"]]
    items = api.get(V1, accept=PARTIAL_LIST).json["items"]
    assert [item["metadata"]["name"] for item in items] == ["a", "b"]


def test_dry_run_is_converted_and_stores_nothing(api: Api, webhook: WebhookServer) -> None:
    define(api, points(webhook))
    shown = api.post(f"{V1}?dryRun=All", point("a", at="3,4")).json
    assert shown["spec"] == {"at": "3,4", "size": 10}
    assert "resourceVersion" not in shown["metadata"]
    assert len(webhook.calls) == 2
    api.get(f"{V1}/a", expect=404)
    api.post(V1, point("a", at="3,4"))
    assert api.patch(f"{V1}/a?dryRun=All", {"spec": {"at": "7,7"}}).json["spec"]["at"] == "7,7"
    assert api.get(f"{V1}/a").json["spec"]["at"] == "3,4"


def test_status_and_scale_go_through_any_version(api: Api, webhook: WebhookServer) -> None:
    define(api, points(webhook))
    api.post(V1, point("a", at="3,4", replicas=2))
    assert api.get(f"{V1}/a/scale").json["spec"]["replicas"] == 2
    scaled = api.patch(f"{V1}/a/scale", {"spec": {"replicas": 5}}).json
    assert scaled["spec"]["replicas"] == 5
    assert api.get(f"{V2}/a").json["spec"]["replicas"] == 5
    api.patch(f"{V1}/a/status", {"status": {"replicas": 4}})
    found = api.get(f"{V2}/a").json
    assert (found["status"], found["spec"]["x"]) == ({"replicas": 4}, 3)


def test_deletes_answer_in_the_version_asked_for(api: Api, webhook: WebhookServer) -> None:
    define(api, points(webhook))
    held = point("a", at="3,4")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    api.post(V1, held)
    marked = api.delete(f"{V1}/a").json
    assert (marked["spec"]["at"], bool(marked["metadata"]["deletionTimestamp"])) == ("3,4", True)
    gone = api.patch(f"{V1}/a", {"metadata": {"finalizers": None}}).json
    assert gone["spec"]["at"] == "3,4"
    api.get(f"{V1}/a", expect=404)
    for name in ("b", "c"):
        api.post(V2, point(name, "v2", x=1, y=1))
    deleted = api.delete(V1).json
    assert [(item["metadata"]["name"], item["spec"]["at"]) for item in deleted["items"]] == [("b", "1,1"), ("c", "1,1")]
    assert api.get(V2).json["items"] == []


# --- the stored version changes ---


def test_objects_of_an_earlier_stored_version_are_converted_and_moved_by_a_write(
    api: Api, webhook: WebhookServer
) -> None:
    define(api, points(webhook, storage="v1"))
    old = api.post(V1, point("a", at="3,4")).json
    restore(api, "v2")
    assert eventually(lambda: api.get(f"{V2}/a", expect=0)).json["spec"] == {"x": 3, "y": 4, "size": 10}
    before = len(webhook.calls)
    same = api.get(f"{V1}/a").json
    assert same == old
    assert len(webhook.calls) == before, "it lies in v1 still"
    # A write without changes rewrites the object in the new stored version, as storage migrations do.
    moved = api.put(f"{V2}/a", api.get(f"{V2}/a").json).json
    assert moved["metadata"]["resourceVersion"] != old["metadata"]["resourceVersion"]
    assert moved["metadata"]["generation"] == 1
    assert api.put(f"{V2}/a", moved).json["metadata"]["resourceVersion"] == moved["metadata"]["resourceVersion"]
    assert api.get(f"{V1}/a").json["spec"]["at"] == "3,4"


def test_a_list_of_objects_in_several_stored_versions_is_of_one_version(api: Api, webhook: WebhookServer) -> None:
    """[sig-api-machinery] CustomResourceConversionWebhook should convert a non homogeneous list."""
    define(api, points(webhook, storage="v1"))
    api.post(V1, point("a", at="3,4"))
    restore(api, "v2")
    api.post(V2, point("b", "v2", x=5, y=6))
    webhook.calls.clear()
    first, second = api.get(V1).json["items"], api.get(V2).json["items"]
    assert [(item["apiVersion"], item["spec"]["at"]) for item in first] == [
        (f"{GROUP}/v1", "3,4"),
        (f"{GROUP}/v1", "5,6"),
    ]
    assert [(item["apiVersion"], item["spec"]["x"]) for item in second] == [(f"{GROUP}/v2", 3), (f"{GROUP}/v2", 5)]
    sent = [[obj["metadata"]["name"] for obj in call.body["request"]["objects"]] for call in webhook.calls]
    assert sent == [["b"], ["a"]], "what is in its version already is not sent"


def test_a_stored_version_stays_until_status_says_it_is_migrated(api: Api, webhook: WebhookServer) -> None:
    define(api, points(webhook, storage="v1"))
    path = f"{CRDS}/points.{GROUP}"
    restore(api, "v2")
    crd = api.get(path).json
    assert crd["status"]["storedVersions"] == ["v1", "v2"]
    only = [each for each in crd["spec"]["versions"] if each["name"] == "v2"]
    message = api.patch(path, {"spec": {"versions": only}}, expect=422).message
    assert 'status.storedVersions[0]: Invalid value: "v1": missing from spec.versions' in message
    api.patch(f"{path}/status", {"status": {"storedVersions": ["v2"]}})
    api.patch(path, {"spec": {"versions": only}})
    eventually(lambda: api.get(V1, expect=0).code == 404)


def test_the_collector_drops_owners_of_objects_stored_in_an_earlier_version(api: Api, webhook: WebhookServer) -> None:
    define(api, points(webhook, storage="v1"))
    configmaps = "/api/v1/namespaces/default/configmaps"
    body = point("a", at="3,4")
    body["metadata"]["ownerReferences"] = []
    for name in ("stays", "goes"):
        made = api.post(configmaps, configmap(name)).json
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": made["metadata"]["uid"]}
        body["metadata"]["ownerReferences"].append(reference)
    api.post(V1, body)
    restore(api, "v2")
    api.delete(f"{configmaps}/goes")
    eventually(lambda: len(api.get(f"{V2}/a").json["metadata"]["ownerReferences"]) == 1)
    assert api.get(f"{V2}/a").json["spec"] == {"x": 3, "y": 4, "size": 10}
    assert api.get(f"{V1}/a").json["spec"]["at"] == "3,4"


# --- field ownership ---


def test_owners_keep_their_fields_over_versions(api: Api, webhook: WebhookServer) -> None:
    define(api, points(webhook))
    first = json.dumps({**point("a", at="3,4"), "spec": {"at": "3,4"}}).encode()
    api.send("PATCH", f"{V1}/a?fieldManager=one", first, kind=APPLY, expect=201)
    # Another manager changes in v2 what the first owns in v1.
    other = {"apiVersion": f"{GROUP}/v2", "kind": "Point", "metadata": {"name": "a"}, "spec": {"x": 8}}
    body = json.dumps(other).encode()
    message = api.send("PATCH", f"{V2}/a?fieldManager=two", body, kind=APPLY, expect=409).message
    assert message == 'Apply failed with 1 conflict: conflict with "one": .spec.at'
    forced = api.send("PATCH", f"{V2}/a?fieldManager=two&force=true", body, kind=APPLY, expect=200).json
    entries = forced["metadata"]["managedFields"]
    owned = {entry["manager"]: (entry["apiVersion"], entry["fieldsV1"]) for entry in entries}
    assert owned["two"] == (f"{GROUP}/v2", {"f:spec": {"f:x": {}}})
    assert "one" not in owned, "all it owned was taken"
    again = api.send("PATCH", f"{V2}/a?fieldManager=two", body, kind=APPLY, expect=200).json
    assert again["metadata"]["resourceVersion"] == forced["metadata"]["resourceVersion"]


def test_an_update_in_one_version_takes_fields_owned_in_another(api: Api, webhook: WebhookServer) -> None:
    define(api, points(webhook))
    api.send("POST", f"{V1}?fieldManager=one", point("a", at="3,4", colour="red"), expect=201)
    found = api.send("PATCH", f"{V2}/a?fieldManager=two", {"spec": {"x": 9}}, kind="application/merge-patch+json").json
    owned = {
        entry["manager"]: (entry["apiVersion"], entry["fieldsV1"]["f:spec"])
        for entry in found["metadata"]["managedFields"]
    }
    assert owned["one"] == (f"{GROUP}/v1", {".": {}, "f:colour": {}, "f:size": {}})
    assert owned["two"] == (f"{GROUP}/v2", {"f:x": {}})


# --- watches ---


def test_a_watch_speaks_its_version_from_the_first_event_on(api: Api, webhook: WebhookServer) -> None:
    define(api, points(webhook))
    api.post(V2, point("a", "v2", x=1, y=2))
    path = f"{V1}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    with api.watch(path) as events:
        assert (first := events.next()).type == "ADDED"
        assert (first.object["apiVersion"], first.object["spec"]["at"]) == (f"{GROUP}/v1", "1,2")
        mark = events.next()
        assert mark.type == "BOOKMARK"
        assert mark.object["apiVersion"] == f"{GROUP}/v1"
        api.post(V2, point("b", "v2", x=3, y=4))
        api.patch(f"{V2}/b", {"spec": {"x": 5}})
        api.delete(f"{V2}/b")
        told = events.take(3)
    assert [event.type for event in told] == ["ADDED", "MODIFIED", "DELETED"]
    assert [event.object["spec"]["at"] for event in told] == ["3,4", "5,4", "5,4"]
    assert told[2].revision > told[1].revision


def test_watchers_of_one_change_share_one_question(api: Api, webhook: WebhookServer) -> None:
    define(api, points(webhook))
    start = api.get(V2).json["metadata"]["resourceVersion"]
    path = f"{V1}?watch=1&resourceVersion={start}"
    with api.watch(path) as one, api.watch(path) as two, api.watch(path) as three:
        api.post(V2, point("a", "v2", x=1, y=2))
        assert {each.next().object["spec"]["at"] for each in (one, two, three)} == {"1,2"}
    assert len(webhook.calls) == 1


def test_selectable_fields_of_the_version_decide_what_enters_and_leaves(api: Api, webhook: WebhookServer) -> None:
    define(api, points(webhook))
    with api.watch(f"{V1}?watch=1&fieldSelector=spec.at%3D1%5C,1") as events:
        api.post(V2, point("a", "v2", x=1, y=1))
        api.patch(f"{V2}/a", {"spec": {"colour": "red"}})
        api.patch(f"{V2}/a", {"spec": {"y": 2}})
        api.patch(f"{V2}/a", {"spec": {"y": 1}})
        told = events.take(4)
    assert [event.type for event in told] == ["ADDED", "MODIFIED", "DELETED", "ADDED"]
    # Kubernetes sends the last selected state, at the revision at which the object stopped matching.
    assert told[2].object["spec"]["at"] == "1,1"
    assert told[1].revision < told[2].revision < told[3].revision


def test_table_and_metadata_watches_are_converted(api: Api, webhook: WebhookServer) -> None:
    define(api, points(webhook))
    start = api.get(V2).json["metadata"]["resourceVersion"]
    with api.watch(f"{V1}?watch=1&resourceVersion={start}", accept=TABLE) as tables:
        api.post(V2, point("a", "v2", x=1, y=2))
        first = tables.next().object
        api.patch(f"{V2}/a", {"spec": {"y": 7}})
        second = tables.next().object
    assert [column["name"] for column in first["columnDefinitions"]] == ["Name", "Place"]
    assert second["columnDefinitions"] == []
    assert [table["rows"][0]["cells"] for table in (first, second)] == [["a", "1,2"], ["a", "1,7"]]


def test_a_watch_ends_when_conversion_changes(api: Api, webhook: WebhookServer) -> None:
    define(api, points(webhook))
    with api.watch(f"{V1}?watch=1&timeoutSeconds=60") as events:
        path = "/spec/conversion/webhook/conversionReviewVersions"
        api.patch(f"{CRDS}/points.{GROUP}", [{"op": "replace", "path": path, "value": ["v1beta1"]}], JSON_PATCH)
        assert events.rest() == []


# --- failures ---


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda answer: answer["response"].update(uid="x"), 'failed: expected response.uid="'),
        (lambda answer: answer["response"]["result"].update(status="Failure", message="no luck"), "failed: no luck"),
        (lambda answer: answer["response"].update(convertedObjects=[]), "returned 0 objects, expected 1"),
        (
            lambda answer: answer["response"]["convertedObjects"][0].update(apiVersion="points.example.com/v9"),
            "returned invalid converted object at index 0: invalid groupVersion "
            "(expected points.example.com/v1, received points.example.com/v9)",
        ),
        (
            lambda answer: answer["response"]["convertedObjects"][0]["metadata"].update(name="z"),
            "returned invalid converted object at index 0: must have the same name: a != z",
        ),
        (
            lambda answer: answer["response"]["convertedObjects"][0]["metadata"].update(uid="z"),
            "must have the same UID",
        ),
        (lambda answer: answer.update(kind="Odd"), "failed: expected webhook response of"),
        (lambda answer: answer.pop("response"), "failed: no response provided"),
        (
            lambda answer: answer["response"]["convertedObjects"][0]["metadata"].update(labels={"a b": "c"}),
            "returned invalid metadata in object at index 0: metadata.labels",
        ),
    ],
)
def test_a_wrong_answer_is_an_error_of_the_request(api: Api, webhook: WebhookServer, spoil: Any, text: str) -> None:
    define(api, points(webhook))
    api.post(V2, point("a", "v2", x=1, y=2))

    def answer(review: Object) -> Object:
        found = converted(review, convert)
        spoil(found)
        return found

    webhook.answer = answer
    refused = api.get(f"{V1}/a", expect=500)
    assert refused.message.startswith(FAILED)
    assert text in refused.message
    assert "reason" not in refused.json
    assert api.get(V1, expect=500).message.startswith(FAILED)
    with api.watch(f"{V1}?watch=1") as events:
        (error,) = events.rest()
    assert (error.type, error.object["code"]) == ("ERROR", 500)
    assert error.object["message"].startswith(FAILED)
    # An object that cannot be converted is not stored; the stored version is still served.
    api.post(V1, point("b", at="1,1"), expect=500)
    assert [item["metadata"]["name"] for item in api.get(V2).json["items"]] == ["a"]
    webhook.answer = lambda review: converted(review, convert)
    assert api.get(f"{V1}/a").json["spec"]["at"] == "1,2"


def test_only_labels_and_annotations_of_metadata_may_change(api: Api, webhook: WebhookServer) -> None:
    define(api, points(webhook))

    def relabel(obj: Object, api_version: str) -> Object:
        found = convert(obj, api_version)
        metadata = {key: found["metadata"].get(key) for key in ("name", "namespace", "uid")}
        metadata.update(
            labels={"converted": "yes"},
            annotations={"kcp.io/cluster": "elsewhere", "note": "1"},
            finalizers=["example.com/evil"],
            ownerReferences=[],
            resourceVersion="1",
        )
        return {**found, "metadata": metadata}

    webhook.answer = lambda review: converted(review, relabel)
    made = api.post(V2, point("a", "v2", x=1, y=2)).json["metadata"]
    seen = api.get(f"{V1}/a").json["metadata"]
    assert seen["labels"] == {"converted": "yes"}
    assert seen["annotations"] == {**made["annotations"], "note": "1"}
    assert "finalizers" not in seen
    assert seen["resourceVersion"] == made["resourceVersion"]
    assert seen["creationTimestamp"] == made["creationTimestamp"]


def test_labels_that_conversion_adds_are_selected_by(api: Api, webhook: WebhookServer) -> None:
    def relabel(obj: Object, api_version: str) -> Object:
        found = convert(obj, api_version)
        labels = {"converted": "yes"} if api_version.endswith("v1") else {}
        return {**found, "metadata": {**found["metadata"], "labels": labels}}

    webhook.answer = lambda review: converted(review, relabel)
    define(api, points(webhook))
    with api.watch(f"{V1}?watch=1&labelSelector=converted%3Dyes") as events:
        api.post(V2, point("a", "v2", x=1, y=2))
        assert (events.next().object["spec"]["at"]) == "1,2"
    assert [item["metadata"]["name"] for item in api.get(f"{V1}?labelSelector=converted").json["items"]] == ["a"]
    assert api.get(f"{V2}?labelSelector=converted").json["items"] == []


def test_a_dead_webhook_blocks_neither_the_stored_version_nor_deletion(api: Api, webhook: WebhookServer) -> None:
    define(api, points(webhook))
    held = point("a", "v2", x=1, y=2)
    held["metadata"]["finalizers"] = ["example.com/hold"]
    api.post(V2, held)
    api.post(V2, point("b", "v2", x=1, y=2))
    webhook.answer = lambda review: Odd(503, {}, b"out for lunch")
    message = api.get(f"{V1}/a", expect=500).message
    assert message == f'{FAILED} failed: Post "{webhook.url}?timeout=30s": the server responded with status 503'
    assert api.get(f"{V2}/a").json["spec"]["x"] == 1
    assert api.delete(f"{V1}/b").json["status"] == "Success"
    assert api.delete(f"{V1}/a").json["status"] == "Success"
    assert api.get(f"{V2}/a").json["metadata"]["deletionTimestamp"]
    api.patch(f"{V2}/a", {"metadata": {"finalizers": None}})
    assert api.get(V2).json["items"] == []


def test_a_definition_goes_though_its_webhook_is_dead(api: Api, webhook: WebhookServer) -> None:
    define(api, points(webhook, storage="v1"))
    held = point("a", at="3,4")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    api.post(V1, held)
    api.post(V1, point("b", at="1,1"))
    restore(api, "v2")
    webhook.answer = lambda review: Odd(503)
    api.delete(f"{CRDS}/points.{GROUP}")
    eventually(lambda: bool(api.get(f"{V1}/a").json["metadata"].get("deletionTimestamp")))
    eventually(lambda: api.get(f"{V1}/b", expect=0).code == 404)
    webhook.answer = lambda review: converted(review, convert)
    api.patch(f"{V1}/a", {"metadata": {"finalizers": None}})
    eventually(lambda: api.get(f"{CRDS}/points.{GROUP}", expect=0).code == 404)


def test_wildcard_metadata_asks_nobodys_webhook(api: Api, shard: ShardProcess, webhook: WebhookServer) -> None:
    def other_cluster(value: Any) -> Any:
        # No other test's definition may be the one that is found.
        return json.loads(json.dumps(value).replace(GROUP, "wild.example.com"))

    define(api, other_cluster(points(webhook)))
    api.post(other_cluster(V2), other_cluster(point("a", "v2", x=1, y=2)))
    master = Api(shard, "*", "shard-admin")
    found = master.get("/apis/wild.example.com/v1/points", accept=PARTIAL_LIST).json
    assert [item["metadata"]["name"] for item in found["items"]] == ["a"]
    assert webhook.calls == []
    master.close()


def test_a_redirect_is_not_followed(api: Api, webhook: WebhookServer) -> None:
    define(api, points(webhook))
    api.post(V2, point("a", "v2", x=1, y=2))
    webhook.answer = lambda review: Odd(307, {"Location": webhook.url})
    assert "the server responded with status 307" in api.get(f"{V1}/a", expect=500).message
    assert len(webhook.calls) == 1


def test_a_service_reference_is_stored_with_a_warning_and_fails_clearly(api: Api, webhook: WebhookServer) -> None:
    definition = points(webhook)
    definition["spec"]["conversion"]["webhook"]["clientConfig"] = {"service": {"namespace": "default", "name": "x"}}
    assert any("services cannot be reached" in text for text in api.post(CRDS, definition).warnings)
    eventually(lambda: api.get(V2, expect=0).code == 200)
    api.post(V2, point("a", "v2", x=1, y=2))
    message = api.get(f"{V1}/a", expect=500).message
    assert message.startswith(f"{FAILED} failed: service references cannot be resolved here")


def test_a_certificate_of_another_authority_is_not_trusted(api: Api, webhook: WebhookServer) -> None:
    with WebhookServer(lambda review: converted(review, convert)) as other:
        definition = points(webhook)
        definition["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"] = other.ca_bundle
        define_with_stored(api, definition)
        assert "certificate" in api.get(f"{V1}/a", expect=500).message
    assert webhook.calls == []


def define_with_stored(api: Api, definition: Object) -> None:
    """Create a definition and one object in its stored version."""
    api.post(CRDS, definition)
    eventually(lambda: api.get(V2, expect=0).code == 200)
    api.post(V2, point("a", "v2", x=1, y=2))


def test_the_shard_itself_is_never_called(api: Api, shard: ShardProcess, webhook: WebhookServer) -> None:
    definition = points(webhook)
    client = definition["spec"]["conversion"]["webhook"]["clientConfig"]
    client["url"] = f"{shard.url}/api"
    define_with_stored(api, definition)
    assert "127.0.0.1 is an address of this server" in api.get(f"{V1}/a", expect=500).message


def test_a_bound_api_is_converted_by_the_webhook_of_its_schema(admin: Api, api: Api, webhook: WebhookServer) -> None:
    """The provider names the webhook; consumers neither see nor choose it."""
    made = schema_of(points(webhook))
    made["spec"]["conversion"] = points(webhook)["spec"]["conversion"]
    consumer = admin.at(workspace_under(admin, type_="universal"))
    make_export(api, "points", made)
    bind(consumer, cluster_of(api), "points")
    consumer.post(V1, point("a", at="3,4"))
    there = consumer.get(f"{V2}/a").json
    assert there["spec"] == {"x": 3, "y": 4, "size": 10}
    consumer.patch(f"{V2}/a", {"spec": {"y": 9}})
    assert [each["spec"]["at"] for each in consumer.get(V1).json["items"]] == ["3,9"]
    with consumer.watch(f"{V1}?watch=1") as events:
        assert events.until("ADDED").object["spec"]["at"] == "3,9"
    webhook.answer = lambda review: Odd(500)
    consumer.post(V2, point("b", "v2", x=1, y=2))
    assert consumer.get(f"{V1}/b", expect=500).message.startswith(FAILED)
    consumer.close()


# --- admission that asks about another version ---


def guarded(api: Api, operation: str) -> None:
    """Refuse writes of points at 3,4, which only v1 says; objects are stored and requested in v2."""
    rules = [rule("points", group=GROUP, version="v1", operations=[operation])]
    seen = "object" if operation == "UPDATE" else "oldObject"
    Policies(api).deny("p", {"expression": f"{seen}.spec.at != '3,4'", "message": "it is held"}, rules=rules)
    body = point("probe", "v2", x=3, y=4)
    api.post(V2, body)

    def refused() -> bool:
        if operation == "UPDATE":
            return api.patch(f"{V2}/probe?dryRun=All", {"metadata": {"labels": {"a": "b"}}}, expect=0).code == 422
        return api.send("DELETE", f"{V2}/probe?dryRun=All").code == 422

    eventually(refused, "the policy is in force")


def test_a_collection_is_deleted_as_a_policy_of_another_version_says(api: Api, webhook: WebhookServer) -> None:
    define(api, points(webhook))
    guarded(api, "DELETE")
    for name in ("a", "b"):
        api.post(V2, point(name, "v2", x=1, y=1))
    answer = api.delete(f"{V2}?fieldSelector=metadata.name!=probe")
    assert [item["metadata"]["name"] for item in answer.json["items"]] == ["a", "b"]
    assert "it is held" in api.delete(V2, expect=422).message
    assert [item["metadata"]["name"] for item in api.get(V2).json["items"]] == ["probe"]


def test_controllers_delete_as_a_policy_of_another_version_says(api: Api, webhook: WebhookServer) -> None:
    define(api, points(webhook))
    guarded(api, "DELETE")
    owner = api.post("/api/v1/namespaces/default/configmaps", configmap("owner")).json["metadata"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["uid"]}
    owned = point("owned", "v2", x=1, y=1)
    owned["metadata"]["ownerReferences"] = [reference]
    api.post(V2, owned)
    api.delete("/api/v1/namespaces/default/configmaps/owner")
    eventually(lambda: api.get(f"{V2}/owned", expect=0).code == 404, "the collector deleted it")
    space = "/api/v1/namespaces/team"
    api.post("/api/v1/namespaces", {"metadata": {"name": "team"}})
    for name, x in (("stays", 3), ("goes", 1)):
        api.post(V2.replace("default", "team"), point(name, "v2", x=x, y=4))
    api.delete(space)

    def named() -> bool:
        conditions = api.get(space).json["status"].get("conditions", [])
        return any("it is held" in each["message"] for each in conditions)

    eventually(named, "the condition says why it stays")
    assert api.get(f"{V2.replace('default', 'team')}/goes", expect=404).code == 404


def test_a_claim_labels_objects_that_a_policy_of_another_version_judges(
    admin: Api, api: Api, webhook: WebhookServer
) -> None:
    consumer, other = (admin.at(workspace_under(admin, type_="universal")) for _ in range(2))
    made = schema_of(points(webhook))
    made["spec"]["conversion"] = points(webhook)["spec"]["conversion"]
    identity = make_export(api, "points", made)["status"]["identityHash"]
    bind(consumer, cluster_of(api), "points")
    guarded(consumer, "UPDATE")
    consumer.post(V2, point("a", "v2", x=1, y=1))
    claimed = claim("points", GROUP, identity=identity)
    make_export(other, "shapes", schema("circles"), claims=[claimed])
    bind(consumer, cluster_of(other), "shapes", [accepted(claimed)])

    def labelled() -> bool:
        return "claimed.internal.apis.kcp.io" in str(consumer.get(f"{V2}/a").json["metadata"].get("labels"))

    eventually(labelled, "the claim's label")
    assert "claimed.internal" not in str(consumer.get(f"{V2}/probe").json["metadata"].get("labels"))
    consumer.close()
    other.close()
