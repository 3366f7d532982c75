"""Get and list: revisions, selectors, pages, forms."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
import yaml

from atoll.machinery.apiserver.call import continuation
from harness.clients.api import PARTIAL, PARTIAL_LIST, TABLE, Api, configmap, crd, define, workspace_under
from harness.tiers import every

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
FAR = 10**18


@pytest.fixture
def five(api: Api) -> Api:
    """A namespace `n` with the ConfigMaps a to e, alternately of two colours."""
    api.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}})
    for index, name in enumerate("abcde"):
        api.post("/api/v1/namespaces/n/configmaps", configmap(name, labels={"colour": ("red", "blue")[index % 2]}))
    return api


IN_N = "/api/v1/namespaces/n/configmaps?labelSelector=colour"


def names(listed: dict[str, Any]) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]


def test_an_empty_list_is_a_list_with_a_revision(api: Api) -> None:
    listed = api.get("/api/v1/namespaces/default/secrets").json
    assert (listed["kind"], listed["apiVersion"], listed["items"]) == ("SecretList", "v1", [])
    assert int(listed["metadata"]["resourceVersion"]) > 0


def test_items_come_by_namespace_and_name(five: Api) -> None:
    five.post(CONFIGMAPS, configmap("z"))
    listed = five.get("/api/v1/configmaps").json["items"]
    keys = [(item["metadata"]["namespace"], item["metadata"]["name"]) for item in listed]
    assert keys == sorted(keys)
    assert ("n", "a") in keys
    assert ("default", "z") in keys


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("colour=red", "ace"),
        ("colour==red", "ace"),
        ("colour!=red", "bd"),
        ("colour in (red,blue)", "abcde"),
        ("colour notin (red)", "bd"),
        ("!colour", ""),
        ("colour", "abcde"),
        ("colour=red,colour!=blue", "ace"),
        ("", "abcde"),
    ],
)
def test_label_selectors_choose(five: Api, selector: str, expected: str) -> None:
    listed = five.get(f"/api/v1/namespaces/n/configmaps?labelSelector={quote(selector)}").json
    assert [name for name in names(listed) if name != "kube-root-ca.crt"] == list(expected)


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("metadata.name=b", ["b"]),
        ("metadata.name!=kube-root-ca.crt,metadata.name!=a", ["b", "c", "d", "e"]),
        ("metadata.namespace=n,metadata.name==c", ["c"]),
        ("metadata.name=nothing", []),
    ],
)
def test_field_selectors_choose(five: Api, selector: str, expected: list[str]) -> None:
    assert names(five.get(f"/api/v1/configmaps?fieldSelector={selector}&labelSelector=colour").json) == expected


def test_unknown_field_labels_and_bad_label_selectors_are_a_400(api: Api) -> None:
    assert "spec.nothing" in api.get(f"{CONFIGMAPS}?fieldSelector=spec.nothing=x", expect=400).message
    message = api.get(f"{CONFIGMAPS}?labelSelector=a%20b", expect=400).message
    assert message.startswith("unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt")


def test_a_secret_is_found_by_its_type_and_a_namespace_by_its_phase(api: Api) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "type": "example.com/t"}
    api.post("/api/v1/namespaces/default/secrets", secret)
    assert names(api.get("/api/v1/secrets?fieldSelector=type=example.com/t").json) == ["s"]
    assert names(api.get("/api/v1/namespaces?fieldSelector=status.phase=Active").json) == ["default", "kube-system"]


def test_selectable_fields_of_a_custom_kind_are_selectable(api: Api) -> None:
    definition = crd("circles")
    definition["spec"]["versions"][0]["selectableFields"] = [{"jsonPath": ".spec.colour"}]
    define(api, definition)
    path = "/apis/shapes.example.com/v1/namespaces/default/circles"
    for name, spec in (("a", {"colour": "red"}), ("b", {})):
        body = {"apiVersion": "shapes.example.com/v1", "kind": "Circle", "metadata": {"name": name}, "spec": spec}
        api.post(path, body)
    assert names(api.get(f"{path}?fieldSelector=spec.colour=red").json) == ["a"]
    assert names(api.get(f"{path}?fieldSelector=spec.colour=").json) == ["b"]
    assert api.get(f"{path}?fieldSelector=spec.size=7", expect=400).message == "field label not supported: spec.size"


# --- pages ---


def test_pages_are_of_one_moment_and_count_what_remains(five: Api) -> None:
    path = "/api/v1/namespaces/n/configmaps?limit=2"
    first = five.get(path).json
    assert names(first) == ["a", "b"]
    assert first["metadata"]["remainingItemCount"] == 4
    five.post("/api/v1/namespaces/n/configmaps", configmap("bb"))
    five.delete("/api/v1/namespaces/n/configmaps/d")
    five.patch("/api/v1/namespaces/n/configmaps/c", {"data": {"late": "1"}})
    second = five.get(f"{path}&continue={first['metadata']['continue']}").json
    assert names(second) == ["c", "d"]
    assert not second["items"][0].get("data")
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    assert second["metadata"]["remainingItemCount"] == 2
    last = five.get(f"{path}&continue={second['metadata']['continue']}").json
    assert names(last) == ["e", "kube-root-ca.crt"]
    assert not {"continue", "remainingItemCount"} & set(last["metadata"])


def test_pages_of_a_selection_do_not_count_what_remains(five: Api) -> None:
    first = five.get(f"{IN_N}&limit=3").json
    assert names(first) == ["a", "b", "c"]
    assert "remainingItemCount" not in first["metadata"]
    second = five.get(f"{IN_N}&limit=3&continue={first['metadata']['continue']}").json
    assert names(second) == ["d", "e"]
    assert "continue" not in second["metadata"]


def test_a_selection_that_ends_with_its_page_has_no_next_page(five: Api) -> None:
    listed = five.get("/api/v1/namespaces/n/configmaps?labelSelector=colour=red&limit=3").json
    assert (names(listed), listed["metadata"].get("continue")) == (["a", "c", "e"], None)


@pytest.mark.parametrize("query", ["?continue=nonsense", "?continue=bm9uc2Vuc2U", "?limit=1&continue=%F0%9F%8C%B4"])
def test_a_token_that_is_none_is_a_400(api: Api, query: str) -> None:
    message = api.get(f"{CONFIGMAPS}{query}", expect=400).message
    assert message.startswith("invalid continue token: continue key is not valid: ")


def test_a_token_of_another_list_is_a_400(five: Api) -> None:
    token = five.get("/api/v1/namespaces/n/configmaps?limit=1").json["metadata"]["continue"]
    other = five.at(workspace_under(five.at("root"), type_="universal"))
    for api, path in (
        (five, "/api/v1/namespaces/n/secrets?limit=1"),
        (five, "/api/v1/configmaps?limit=1"),
        (five, f"{IN_N}&limit=1"),
        (other, "/api/v1/namespaces/n/configmaps?limit=1"),
    ):
        assert api.get(f"{path}&continue={token}", expect=400).json["reason"] == "BadRequest"


def test_a_token_and_a_revision_do_not_go_together(five: Api) -> None:
    token = five.get("/api/v1/namespaces/n/configmaps?limit=1").json["metadata"]["continue"]
    answer = five.get(f"/api/v1/namespaces/n/configmaps?limit=1&continue={token}&resourceVersion=7", expect=400)
    assert answer.message == "specifying resource version is not allowed when using continue"


def test_an_old_token_is_a_410_with_one_that_goes_on_from_now(five: Api) -> None:
    path = "/api/v1/namespaces/n/configmaps?limit=2"
    token = five.get(path).json["metadata"]["continue"]
    raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    found = msgspec.msgpack.decode(raw, type=continuation.Continuation)
    aged = continuation.issue(found.revision, found.moment - 3600, found.fingerprint, found.after)
    status = five.get(f"{path}&continue={aged}", expect=410).json
    assert status["reason"] == "Expired"
    five.post("/api/v1/namespaces/n/configmaps", configmap("bb"))
    fresh = five.get(f"{path}&continue={status['metadata']['continue']}").json
    assert names(fresh) == ["bb", "c"]
    assert int(fresh["metadata"]["resourceVersion"]) > found.revision
    assert fresh["metadata"]["remainingItemCount"] == 3


# --- revisions ---


@pytest.mark.parametrize(
    ("query", "code", "message"),
    [
        ("resourceVersionMatch=Exact", 422, "resourceVersionMatch is forbidden unless resourceVersion is provided"),
        (
            "resourceVersionMatch=NotOlderThan",
            422,
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        ),
        ("resourceVersion=0&resourceVersionMatch=Exact", 422, 'is forbidden for resourceVersion "0"'),
        ("resourceVersion=5&resourceVersionMatch=Nonsense", 422, "Unsupported value"),
        ("sendInitialEvents=true", 422, "sendInitialEvents is forbidden for list"),
        ("resourceVersion=x", 400, "resource version"),
        ("resourceVersion=-1", 400, "resource version"),
        ("resourceVersion=1", 200, ""),
        ("resourceVersion=0", 200, ""),
        ("resourceVersion=", 200, ""),
        ("resourceVersion=1&resourceVersionMatch=NotOlderThan", 200, ""),
        ("resourceVersion=0&resourceVersionMatch=NotOlderThan", 200, ""),
        ("resourceVersion=0&limit=1", 200, ""),
        ("resourceVersion=1&limit=5&resourceVersionMatch=NotOlderThan", 200, ""),
    ],
)
def test_revision_options_of_a_list(api: Api, query: str, code: int, message: str) -> None:
    answer = api.get(f"{CONFIGMAPS}?{query}", expect=code)
    assert code == 200 or message in answer.message
    if code == 422:
        assert answer.message.startswith('ListOptions.meta.k8s.io "" is invalid')


def test_an_exact_revision_is_the_state_of_that_moment(api: Api) -> None:
    api.post(CONFIGMAPS, configmap("a", {"k": "1"}))
    then = api.get(CONFIGMAPS).json["metadata"]["resourceVersion"]
    api.patch(f"{CONFIGMAPS}/a", {"data": {"k": "2"}})
    api.post(CONFIGMAPS, configmap("b"))
    for query in (f"resourceVersion={then}&resourceVersionMatch=Exact", f"resourceVersion={then}&limit=100"):
        listed = api.get(f"{CONFIGMAPS}?{query}").json
        assert listed["metadata"]["resourceVersion"] == then
        assert names(listed) == ["a", "kube-root-ca.crt"]
        assert listed["items"][0]["data"] == {"k": "1"}
    newer = api.get(f"{CONFIGMAPS}?resourceVersion={then}").json
    assert names(newer) == ["a", "b", "kube-root-ca.crt"]


@pytest.mark.parametrize(
    "path", every(2, [f"{CONFIGMAPS}/a?resourceVersion={FAR}", f"{CONFIGMAPS}?resourceVersion={FAR}"])
)
def test_a_revision_that_does_not_come_is_a_504_with_its_cause(api: Api, path: str) -> None:
    answer = api.get(path, expect=504)
    status = answer.json
    assert status["message"].startswith(f"Timeout: Too large resource version: {FAR}, current: ")
    assert status["reason"] == "Timeout"
    assert status["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
    assert status["details"]["retryAfterSeconds"] == 1
    assert answer.header("retry-after") == "1"


def test_a_get_not_older_than_a_revision_of_the_past_is_the_latest(api: Api) -> None:
    first = api.post(CONFIGMAPS, configmap("a")).json["metadata"]["resourceVersion"]
    api.patch(f"{CONFIGMAPS}/a", {"data": {"k": "2"}})
    for version in ("", "0", first):
        assert api.get(f"{CONFIGMAPS}/a?resourceVersion={version}").json["data"] == {"k": "2"}


# --- forms ---


def test_a_table_has_columns_rows_and_partial_objects(api: Api) -> None:
    api.post(CONFIGMAPS, configmap("a", {"x": "1", "y": "2"}, labels={"l": "v"}))
    answer = api.get(f"{CONFIGMAPS}?labelSelector=l", accept=TABLE)
    assert answer.header("content-type") == "application/json"
    table = answer.json
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert set(table["columnDefinitions"][0]) == {"name", "type", "format", "description", "priority"}
    (row,) = table["rows"]
    assert row["cells"][:2] == ["a", 2]
    assert (row["object"]["kind"], row["object"]["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
    assert row["object"]["metadata"]["labels"] == {"l": "v"}
    assert "data" not in row["object"]
    assert int(table["metadata"]["resourceVersion"]) > 0


def test_what_a_table_row_includes_is_chosen(api: Api) -> None:
    api.post(CONFIGMAPS, configmap("a", {"x": "1"}))
    path = f"{CONFIGMAPS}/a?includeObject"
    assert api.get(f"{path}=Object", accept=TABLE).json["rows"][0]["object"]["data"] == {"x": "1"}
    assert api.get(f"{path}=None", accept=TABLE).json["rows"][0].get("object") is None
    message = api.get(f"{path}=Nonsense", accept=TABLE, expect=400).message
    assert message.startswith("Unable to convert to Table as requested")


def test_tables_come_in_pages_too(five: Api) -> None:
    first = five.get("/api/v1/namespaces/n/configmaps?limit=2", accept=TABLE).json
    assert [row["cells"][0] for row in first["rows"]] == ["a", "b"]
    assert (first["metadata"]["remainingItemCount"], bool(first["metadata"]["continue"])) == (4, True)


def test_metadata_alone_is_listed_and_read(api: Api) -> None:
    api.post(CONFIGMAPS, configmap("a", {"x": "1"}))
    listed = api.get(CONFIGMAPS, accept=PARTIAL_LIST).json
    assert (listed["kind"], listed["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    assert {(item["kind"], "data" in item) for item in listed["items"]} == {("PartialObjectMetadata", False)}
    one = api.get(f"{CONFIGMAPS}/a", accept=PARTIAL).json
    assert (one["kind"], one["metadata"]["name"], "data" in one) == ("PartialObjectMetadata", "a", False)


def test_one_object_is_no_list_and_a_list_is_not_one_object(api: Api) -> None:
    api.post(CONFIGMAPS, configmap("a"))
    message = api.get(CONFIGMAPS, accept=PARTIAL, expect=406).message
    assert message.startswith("you requested PartialObjectMetadata, but the requested object is a list")
    api.get(f"{CONFIGMAPS}/a", accept=PARTIAL_LIST, expect=406)


def test_a_review_has_no_table(api: Api) -> None:
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    body = {
        "kind": "SelfSubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "spec": {"resourceAttributes": {"verb": "get", "resource": "configmaps"}},
    }
    assert api.send("POST", path, body, accept=TABLE, expect=406).json["reason"] == "NotAcceptable"
    review = api.send("POST", path, body, accept=f"{TABLE},application/json", expect=201).json
    assert review["status"]["allowed"] is True


def test_a_custom_kind_has_its_own_columns(api: Api) -> None:
    define(api, crd("circles"))
    path = "/apis/shapes.example.com/v1/namespaces/default/circles"
    for name, spec in (("a", {"colour": "red"}), ("b", {})):
        body = {"apiVersion": "shapes.example.com/v1", "kind": "Circle", "metadata": {"name": name}, "spec": spec}
        api.post(path, body)
    table = api.get(path, accept=TABLE).json
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Colour"]
    assert [row["cells"] for row in table["rows"]] == [["a", "red"], ["b", None]]


def test_every_object_names_its_logical_cluster(api: Api) -> None:
    created = api.post(CONFIGMAPS, configmap("a", annotations={"kcp.io/cluster": "lies"})).json
    cluster = api.get("/apis/core.kcp.io/v1alpha1/logicalclusters/cluster").json["metadata"]["annotations"]
    assert created["metadata"]["annotations"] == {"kcp.io/cluster": cluster["kcp.io/cluster"]}


ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
EVENTS = "/api/v1/namespaces/default/events"
_HOSTILE = ',"kind":"ConfigMap","metadata":{"name":"x"}'


@pytest.fixture
def built_in(api: Api) -> Api:
    """Objects of built-in kinds with and without fields before apiVersion, before kind, and before metadata."""
    api.post(CONFIGMAPS, {**configmap("shape-a"), "data": {"a": _HOSTILE, "kind": "ConfigMap", "metadata": _HOSTILE}})
    api.post(CONFIGMAPS, {"metadata": {"name": "shape-b", "annotations": {"a": _HOSTILE}}})
    api.post(ROLES, {"metadata": {"name": "shape-c"}, "rules": []})
    selector = {"matchLabels": {"apiVersion": "v1"}}
    api.post(ROLES, {"metadata": {"name": "shape-d"}, "aggregationRule": {"clusterRoleSelectors": [selector]}})
    about = {"kind": "ConfigMap", "name": "shape-a", "namespace": "default", "apiVersion": "v1"}
    event = {"metadata": {"name": "shape-e"}, "involvedObject": about, "reason": "Made", "type": "Normal"}
    api.post(EVENTS, {**event, "action": "Test", "lastTimestamp": "2026-01-01T00:00:00Z"})
    return api


@pytest.mark.parametrize(
    "path",
    [
        CONFIGMAPS,
        "/api/v1/namespaces",
        "/api/v1/secrets?limit=1",
        "/api/v1/namespaces/default/serviceaccounts",
        ROLES,
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        EVENTS,
        "/apis/events.k8s.io/v1/namespaces/default/events",
        f"{CONFIGMAPS}?labelSelector=!none",
    ],
)
def test_items_of_built_in_kinds_have_neither_kind_nor_version_and_are_otherwise_what_a_get_returns(
    built_in: Api, path: str
) -> None:
    listed = built_in.get(path).json
    assert listed["items"] or "secrets" in path
    collection = path.partition("?")[0]
    for item in listed["items"]:
        assert "kind" not in item and "apiVersion" not in item
        one = built_in.get(f"{collection}/{item['metadata']['name']}").json
        assert {**item, "kind": one["kind"], "apiVersion": one["apiVersion"]} == one
        assert (one["kind"], one["apiVersion"]) == (listed["kind"].removesuffix("List"), listed["apiVersion"])


def test_items_of_built_in_kinds_in_other_forms(built_in: Api, master: Api) -> None:
    text = built_in.get(CONFIGMAPS, accept="application/yaml").body.decode()
    listed = yaml.safe_load(text)
    assert all("kind" not in item and "apiVersion" not in item for item in listed["items"])
    everywhere = master.at("*").get(CONFIGMAPS.replace("namespaces/default/", "")).json["items"]
    assert everywhere and not any("kind" in item for item in everywhere)
    partial = built_in.get(CONFIGMAPS, accept=PARTIAL_LIST).json["items"]
    assert {item["kind"] for item in partial} == {"PartialObjectMetadata"}
    rows = built_in.get(f"{CONFIGMAPS}?includeObject=Object", accept=TABLE).json["rows"]
    assert {row["object"]["kind"] for row in rows} == {"ConfigMap"}
    gone = built_in.delete(f"{CONFIGMAPS}?labelSelector=!none").json
    assert gone["kind"] == "ConfigMapList" and not any("kind" in item for item in gone["items"])


def test_items_of_custom_resources_have_kind_and_version(api: Api) -> None:
    define(api, crd("typeds", scope="Cluster"))
    path = "/apis/shapes.example.com/v1/typeds"
    api.post(path, {"apiVersion": "shapes.example.com/v1", "kind": "Typed", "metadata": {"name": "a"}})
    (item,) = api.get(path).json["items"]
    assert item == api.get(f"{path}/a").json
