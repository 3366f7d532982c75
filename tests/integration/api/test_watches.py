"""Watches: revisions, selectors, bookmarks, watch-lists, formats."""

from __future__ import annotations

import pytest

from harness.clients.api import PARTIAL_LIST, TABLE, Api, configmap, crd, define

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
WATCH = f"{CONFIGMAPS}?watch=true&labelSelector=w"
END = "k8s.io/initial-events-end"
FAR = 10**18


def create(api: Api, name: str, **data: str) -> int:
    """A labelled ConfigMap; its revision."""
    body = configmap(name, data, labels={"w": "yes"})
    return int(api.post(CONFIGMAPS, body).json["metadata"]["resourceVersion"])


def change(api: Api, name: str, **data: str) -> int:
    return int(api.patch(f"{CONFIGMAPS}/{name}", {"data": data}).json["metadata"]["resourceVersion"])


def latest(api: Api) -> str:
    return str(api.get(CONFIGMAPS).json["metadata"]["resourceVersion"])


@pytest.mark.parametrize("revision", ["", "&resourceVersion=0", "&resourceVersion="])
def test_without_a_revision_the_state_comes_first_and_then_what_happens(api: Api, revision: str) -> None:
    create(api, "a")
    create(api, "b")
    with api.watch(WATCH + revision) as events:
        assert [(e.type, e.name) for e in events.take(2)] == [("ADDED", "a"), ("ADDED", "b")]
        changed = change(api, "b", k="1")
        event = events.next()
        assert (event.type, event.name, event.revision) == ("MODIFIED", "b", changed)


def test_from_a_revision_come_the_changes_above_it(api: Api) -> None:
    first = create(api, "a")
    second, third = change(api, "a", k="1"), create(api, "b")
    api.delete(f"{CONFIGMAPS}/a")
    with api.watch(f"{WATCH}&resourceVersion={first}") as events:
        found = events.take(3)
    assert [(e.type, e.name) for e in found] == [("MODIFIED", "a"), ("ADDED", "b"), ("DELETED", "a")]
    assert [e.revision for e in found[:2]] == [second, third]


def test_more_changes_than_a_stream_may_hold_come_one_after_the_other(api: Api) -> None:
    """All changes exist when the watch begins; together they exceed the bound of unsent bytes."""
    since = create(api, "a")
    made = [change(api, "a", k="y" * 1_000_000, n=str(number)) for number in range(24)]
    with api.watch(f"{WATCH}&resourceVersion={since}") as events:
        assert [event.revision for event in events.take(24)] == made


def test_a_deletion_carries_its_own_revision_and_the_last_state(api: Api) -> None:
    create(api, "a")
    last = change(api, "a", k="1")
    with api.watch(f"{WATCH}&resourceVersion={last}") as events:
        api.delete(f"{CONFIGMAPS}/a")
        event = events.next()
    assert (event.type, event.object["data"]) == ("DELETED", {"k": "1"})
    assert event.revision > last
    assert event.revision <= int(latest(api))


def test_objects_that_enter_and_leave_a_selector_are_added_and_deleted(api: Api) -> None:
    since = latest(api)
    path = f"{CONFIGMAPS}?watch=1&resourceVersion={since}&labelSelector=colour%3Dred"
    with api.watch(path) as events:
        api.post(CONFIGMAPS, configmap("a", labels={"colour": "blue"}))
        api.patch(f"{CONFIGMAPS}/a", {"metadata": {"labels": {"colour": "red"}}})
        api.patch(f"{CONFIGMAPS}/a", {"data": {"k": "1"}})
        left = api.patch(f"{CONFIGMAPS}/a", {"metadata": {"labels": {"colour": "blue"}}}).json
        api.patch(f"{CONFIGMAPS}/a", {"metadata": {"labels": {"colour": "red"}}})
        found = events.take(4)
    assert [e.type for e in found] == ["ADDED", "MODIFIED", "DELETED", "ADDED"]
    assert found[2].revision == int(left["metadata"]["resourceVersion"])
    assert found[2].object["metadata"]["labels"] == {"colour": "red"}


def test_a_field_selector_makes_a_watch_of_one_object(api: Api) -> None:
    with api.watch(f"{CONFIGMAPS}?watch=1&fieldSelector=metadata.name%3Db") as events:
        create(api, "a")
        create(api, "b")
        assert events.next().name == "b"


def test_all_namespaces_are_watched_together(api: Api) -> None:
    api.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}})
    with api.watch("/api/v1/configmaps?watch=1&labelSelector=w") as events:
        create(api, "a")
        api.post("/api/v1/namespaces/n/configmaps", configmap("b", labels={"w": ""}))
        found = events.take(2)
    assert [(e.object["metadata"]["namespace"], e.name) for e in found] == [("default", "a"), ("n", "b")]


def test_a_watch_ends_cleanly_after_its_time(api: Api) -> None:
    create(api, "a")
    with api.watch(f"{WATCH}&timeoutSeconds=1") as events:
        assert [(e.type, e.name) for e in events.rest()] == [("ADDED", "a")]


@pytest.mark.long
def test_a_bookmark_comes_only_to_who_asked_and_carries_a_revision(api: Api) -> None:
    since = create(api, "a")
    api.post(CONFIGMAPS, configmap("unseen"))
    with api.watch(f"{WATCH}&resourceVersion={since}&timeoutSeconds=3&allowWatchBookmarks=true") as events:
        (event,) = events.rest()
    assert (event.type, event.object["kind"], event.object["apiVersion"]) == ("BOOKMARK", "ConfigMap", "v1")
    assert event.revision > since
    assert END not in (event.object["metadata"].get("annotations") or {})
    with api.watch(f"{WATCH}&resourceVersion={since}&timeoutSeconds=1") as events:
        assert events.rest() == []


@pytest.mark.parametrize("revision", ["", "&resourceVersion=0", "&resourceVersion=1"])
def test_a_watch_list_ends_its_state_with_one_annotated_bookmark(api: Api, revision: str) -> None:
    made = [create(api, "a"), create(api, "b")]
    path = f"{WATCH}{revision}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    with api.watch(path) as events:
        assert [(e.type, e.name) for e in events.take(2)] == [("ADDED", "a"), ("ADDED", "b")]
        mark = events.next()
        assert mark.type == "BOOKMARK"
        assert mark.object["metadata"]["annotations"] == {END: "true"}
        assert (mark.object["apiVersion"], mark.object["kind"]) == ("v1", "ConfigMap")
        assert mark.revision >= max(made)
        exact = api.get(f"{CONFIGMAPS}?labelSelector=w&resourceVersion={mark.revision}&resourceVersionMatch=Exact")
        assert [item["metadata"]["name"] for item in exact.json["items"]] == ["a", "b"]
        create(api, "c")
        assert (event := events.next()).type == "ADDED"
        assert event.name == "c"


def test_a_watch_list_of_nothing_is_its_bookmark(api: Api) -> None:
    path = f"{WATCH}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    with api.watch(path) as events:
        assert events.next().type == "BOOKMARK"


def test_initial_events_can_be_declined(api: Api) -> None:
    create(api, "a")
    path = f"{WATCH}&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"
    with api.watch(path) as events:
        create(api, "b")
        assert events.next().name == "b"


@pytest.mark.parametrize(
    ("accept", "kind", "version"),
    [
        ("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "PartialObjectMetadata", "meta.k8s.io/v1"),
        (
            f"{PARTIAL_LIST},application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json",
            "PartialObjectMetadata",
            "meta.k8s.io/v1",
        ),
        (TABLE, "Table", "meta.k8s.io/v1"),
    ],
)
def test_watch_lists_are_in_the_form_asked_for_bookmark_included(
    api: Api, accept: str, kind: str, version: str
) -> None:
    create(api, "a", k="1")
    path = f"{WATCH}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    with api.watch(path, accept) as events:
        found = events.take(2)
    assert [(e.type, e.object["kind"], e.object["apiVersion"]) for e in found] == [
        ("ADDED", kind, version),
        ("BOOKMARK", kind, version),
    ]
    if kind == "Table":
        mark = found[1].object["rows"][0]["object"]
        assert mark["metadata"]["annotations"] == {END: "true"}
        assert mark["kind"] == "PartialObjectMetadata"
    else:
        assert "data" not in found[0].object
        assert found[1].object["metadata"]["annotations"] == {END: "true"}


def test_the_first_event_of_a_table_watch_has_the_columns_and_no_other(api: Api) -> None:
    with api.watch(f"{CONFIGMAPS}?watch=1&resourceVersion={latest(api)}", TABLE) as events:
        create(api, "a")
        create(api, "b")
        first, second = events.take(2)
    assert [column["name"] for column in first.object["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert not second.object.get("columnDefinitions")
    assert second.object["rows"][0]["cells"][0] == "b"


def test_custom_kinds_are_watched_in_the_version_asked_for(api: Api) -> None:
    definition = crd("circles")
    version = definition["spec"]["versions"][0]
    definition["spec"]["versions"] = [version, {**version, "name": "v2", "storage": False}]
    define(api, definition)
    body = {"apiVersion": "shapes.example.com/v1", "kind": "Circle", "metadata": {"name": "a"}}
    path = "/apis/shapes.example.com/v2/namespaces/default/circles?watch=1"
    with api.watch(f"{path}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true") as e:
        assert e.next().object["apiVersion"] == "shapes.example.com/v2"
        api.post("/apis/shapes.example.com/v1/namespaces/default/circles", body)
        assert e.next().object["apiVersion"] == "shapes.example.com/v2"
        api.delete("/apis/shapes.example.com/v1/namespaces/default/circles/a")
        assert (event := e.next()).type == "DELETED"
        assert event.object["apiVersion"] == "shapes.example.com/v2"


@pytest.mark.parametrize(
    ("query", "code", "message"),
    [
        ("sendInitialEvents=true", 422, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
        ("sendInitialEvents=true&resourceVersionMatch=Exact", 422, "sendInitialEvents requires setting"),
        (
            "resourceVersionMatch=NotOlderThan",
            422,
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ),
        ("resourceVersion=x", 400, "resource version"),
        ("timeoutSeconds=x", 400, ""),
        ("labelSelector=a%20b", 400, "unable to parse requirement"),
        ("fieldSelector=spec.x%3D1", 400, "spec.x"),
    ],
)
def test_bad_options_are_told_before_the_stream_begins(api: Api, query: str, code: int, message: str) -> None:
    assert message in api.get(f"{CONFIGMAPS}?watch=1&{query}", expect=code).message


@pytest.mark.long
def test_a_revision_of_the_far_future_is_an_error_event(api: Api) -> None:
    with api.watch(f"{WATCH}&resourceVersion={FAR}") as events:
        (event,) = events.rest()
    assert (event.type, event.object["code"], event.object["reason"]) == ("ERROR", 504, "Timeout")
    assert event.object["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


def test_a_revision_that_comes_soon_is_waited_for(api: Api) -> None:
    soon = int(latest(api)) + 1
    with api.watch(f"{WATCH}&resourceVersion={soon}") as events:
        create(api, "a")
        create(api, "b")
        assert events.next().name in {"a", "b"}


def test_a_no_op_write_sends_nothing(api: Api) -> None:
    first = create(api, "a", k="1")
    with api.watch(f"{WATCH}&resourceVersion={first}") as events:
        assert change(api, "a", k="1") == first
        again = api.get(f"{CONFIGMAPS}/a").json
        assert int(api.put(f"{CONFIGMAPS}/a", again).json["metadata"]["resourceVersion"]) == first
        changed = change(api, "a", k="2")
        assert events.next().revision == changed


def test_a_watch_on_a_kind_whose_definition_goes_is_closed(api: Api) -> None:
    define(api, crd("circles"))
    path = "/apis/shapes.example.com/v1/namespaces/default/circles?watch=1"
    body = {"apiVersion": "shapes.example.com/v1", "kind": "Circle", "metadata": {"name": "a"}}
    api.post("/apis/shapes.example.com/v1/namespaces/default/circles", body)
    with api.watch(path) as events:
        api.delete("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/circles.shapes.example.com")
        found = [(e.type, e.object["metadata"]["name"]) for e in events.rest()]
    assert found[0] == ("ADDED", "a")
    assert found[-1] == ("DELETED", "a")
