"""Watch and watch-list at every combination of resourceVersion, resourceVersionMatch and sendInitialEvents.

All cases start from one state: `a` and `b` existed at revision `old`, then `b` was deleted and `c` created (`now`).
Each watch has a timeout of one second, so the events received are all events.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from harness.clients.api import PARTIAL, TABLE, Answer, Api, Event, configmap, crd, define, workspace_under
from harness.tiers import every

IN_N = "/api/v1/namespaces/n/configmaps"
END = "k8s.io/initial-events-end"
FAR = 10**18
STATE = ["ADDED a", "ADDED c"]
SINCE_OLD = ["DELETED b", "ADDED c"]
REQUIRES = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
UNLESS = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
CONTINUED = "resourceVersionMatch is forbidden when continue is provided"
UNSUPPORTED = 'Unsupported value: "{}": supported values: "NotOlderThan"'
WATCHES = 300


class State(NamedTuple):
    """The workspace that is watched, and its revisions."""

    api: Api
    old: int
    now: int

    def path(self, query: str) -> str:
        return f"{IN_N}?watch=1&labelSelector=w&{query.format(old=self.old, now=self.now, far=FAR)}"

    def events(self, query: str, accept: str = "") -> list[Event]:
        with self.api.watch(f"{self.path(query)}&timeoutSeconds=-1", accept) as events:
            return list(events.rest())


@pytest.fixture(scope="module")
def state(admin: Api) -> Iterator[State]:
    api = admin.at(workspace_under(admin, type_="universal"))
    api.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}})
    for name in "ab":
        made = api.post(IN_N, configmap(name, labels={"w": ""})).json
    api.delete(f"{IN_N}/b")
    now = api.post(IN_N, configmap("c", labels={"w": ""})).json
    yield State(api, int(made["metadata"]["resourceVersion"]), int(now["metadata"]["resourceVersion"]))
    api.close()


def received(events: list[Event]) -> list[str]:
    """The events in short form; `END` marks the end of the initial ones."""
    return [
        "END" if END in (e.object["metadata"].get("annotations") or {}) else f"{e.type} {e.name}".strip()
        for e in events
    ]


LIST = "resourceVersionMatch=NotOlderThan&sendInitialEvents=true"
NO_LIST = "resourceVersionMatch=NotOlderThan&sendInitialEvents=false"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", STATE),
        ("resourceVersion=", STATE),
        ("resourceVersion=0", STATE),
        ("resourceVersion={old}", SINCE_OLD),
        ("resourceVersion={now}", []),
        (LIST, STATE),
        (f"resourceVersion=0&{LIST}", STATE),
        (f"resourceVersion={{old}}&{LIST}", STATE),
        (f"resourceVersion={{now}}&{LIST}", STATE),
        (NO_LIST, []),
        (f"resourceVersion=0&{NO_LIST}", []),
        (f"resourceVersion={{old}}&{NO_LIST}", SINCE_OLD),
        (f"resourceVersion={{now}}&{NO_LIST}", []),
        ("limit=1", STATE),
        ("limit=1&continue=nonsense", STATE),
    ],
)
def test_a_revision_says_where_a_watch_starts_and_bookmarks_only_mark(
    state: State, query: str, expected: list[str]
) -> None:
    assert received(state.events(query)) == expected
    legacy_or_list = expected is STATE
    marked = state.events(f"{query}&allowWatchBookmarks=true")
    assert received(marked) == [*expected, *(["END"] if legacy_or_list else [])]
    if legacy_or_list:
        end = marked[-1]
        assert (end.type, end.object["metadata"]["annotations"]) == ("BOOKMARK", {END: "true"})
        assert end.revision >= max(event.revision for event in marked)
        assert set(end.object) == {"kind", "apiVersion", "metadata"}


@pytest.mark.parametrize(
    "query",
    every(3, ["resourceVersion={far}", f"resourceVersion={{far}}&{LIST}", f"resourceVersion={{far}}&{NO_LIST}"]),
)
def test_a_revision_that_never_comes_is_one_error_event(state: State, query: str) -> None:
    (event,) = state.events(f"{query}&allowWatchBookmarks=true")
    status = event.object
    assert (event.type, status["code"], status["reason"]) == ("ERROR", 504, "Timeout")
    assert f"Too large resource version: {FAR}, current: " in status["message"]
    assert [cause["reason"] for cause in status["details"]["causes"]] == ["ResourceVersionTooLarge"]


@pytest.mark.parametrize(
    ("query", "messages"),
    [
        *(
            (f"{revision}&{query}", messages)
            for revision in ("", "resourceVersion=0", "resourceVersion={old}")
            for query, messages in (
                ("sendInitialEvents=true", [REQUIRES]),
                ("sendInitialEvents=false", [REQUIRES]),
                ("resourceVersionMatch=NotOlderThan", [UNLESS]),
                ("resourceVersionMatch=Exact", [UNLESS, UNSUPPORTED.format("Exact")]),
                ("resourceVersionMatch=Exact&sendInitialEvents=true", [REQUIRES, UNSUPPORTED.format("Exact")]),
                ("resourceVersionMatch=Newest&sendInitialEvents=true", [REQUIRES, UNSUPPORTED.format("Newest")]),
                (f"{LIST}&continue=x", [CONTINUED]),
                ("resourceVersionMatch=NotOlderThan&continue=x", [UNLESS, CONTINUED]),
            )
        )
    ],
)
def test_combinations_that_mean_nothing_are_refused_before_the_stream(
    state: State, query: str, messages: list[str]
) -> None:
    status = state.api.get(state.path(query), expect=422).json
    assert (status["reason"], status["details"]["kind"]) == ("Invalid", "ListOptions")
    found = [cause["message"].removeprefix("Forbidden: ") for cause in status["details"]["causes"]]
    assert found == messages


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("timeoutSeconds=x", 'strconv.ParseInt: parsing "x": invalid syntax'),
        ("timeoutSeconds=", 'strconv.ParseInt: parsing "": invalid syntax'),
        ("timeoutSeconds=1.5", 'strconv.ParseInt: parsing "1.5": invalid syntax'),
        ("timeoutSeconds=9223372036854775808", 'strconv.ParseInt: parsing "9223372036854775808": value out of range'),
        ("limit=x", 'strconv.ParseInt: parsing "x": invalid syntax'),
        ("resourceVersion=x", "invalid resource version"),
        ("resourceVersion=-1", "invalid resource version"),
        ("fieldSelector=spec.x%3D1", "spec.x"),
    ],
)
def test_what_cannot_be_read_is_a_400_before_the_stream(state: State, query: str, message: str) -> None:
    assert message in state.api.get(f"{IN_N}?watch=1&{query}", expect=400).message


def test_a_watch_of_no_time_ends_at_once(state: State) -> None:
    with state.api.watch(f"{state.path('')}&timeoutSeconds=-5") as events:
        assert received(events.rest()) == STATE


@pytest.mark.parametrize(
    ("value", "watches"),
    [
        ("true", True),
        ("1", True),
        ("abc", True),
        ("", True),
        ("TRUE", True),
        ("no", True),
        ("false", False),
        ("0", False),
        ("False", False),
        ("FALSE", False),
    ],
)
def test_whatever_is_not_false_is_a_watch(state: State, value: str, watches: bool) -> None:
    path = f"{IN_N}?labelSelector=w&timeoutSeconds=-1&watch={value}"
    body = state.api.get(path).body
    assert (b'"type":"ADDED"' in body) is watches
    assert (b'"items"' in body) is not watches


def test_booleans_are_true_unless_they_say_false(state: State) -> None:
    assert received(state.events("allowWatchBookmarks=maybe"))[-1] == "END"
    assert received(state.events("allowWatchBookmarks=False")) == STATE
    assert received(state.events("resourceVersionMatch=NotOlderThan&sendInitialEvents=0")) == []


def test_the_old_watch_prefix_watches_a_collection_and_one_object(state: State) -> None:
    in_old = IN_N.replace("/api/v1/", "/api/v1/watch/")
    with state.api.watch(f"{in_old}?labelSelector=w&timeoutSeconds=1") as events:
        assert received(events.rest()) == STATE
    with state.api.watch(f"{in_old}/c?timeoutSeconds=1") as events:
        assert received(events.rest()) == ["ADDED c"]


@pytest.mark.long
def test_a_bookmark_comes_before_the_end_and_a_watch_goes_on_from_it(api: Api) -> None:
    made = api.post("/api/v1/namespaces/default/configmaps", configmap("a", labels={"w": ""})).json
    path = f"/api/v1/namespaces/default/configmaps?watch=1&resourceVersion={made['metadata']['resourceVersion']}"
    api.post("/api/v1/namespaces/default/configmaps", configmap("unseen"))
    with api.watch(f"{path}&labelSelector=w&allowWatchBookmarks=1&timeoutSeconds=3") as events:
        mark = events.next()
        assert (mark.type, mark.object["metadata"].get("annotations")) == ("BOOKMARK", None)
        assert mark.revision > int(made["metadata"]["resourceVersion"])
        assert events.rest() == []
    api.post("/api/v1/namespaces/default/configmaps", configmap("b", labels={"w": ""}))
    again = f"/api/v1/namespaces/default/configmaps?watch=1&labelSelector=w&resourceVersion={mark.revision}"
    with api.watch(f"{again}&timeoutSeconds=1") as events:
        assert received(events.rest()) == ["ADDED b"]


def test_scoped_watches_see_every_transition_and_nothing_else(api: Api) -> None:
    path = "/api/v1/namespaces/default/secrets"
    since = api.get(path).json["metadata"]["resourceVersion"]
    with ExitStack() as stack:

        def watch(selector: str) -> Any:
            return stack.enter_context(api.watch(f"{path}?watch=1&resourceVersion={since}&{selector}"))

        red, typed, named = (
            watch("labelSelector=c%3Dred"),
            watch("fieldSelector=type%3Dx.io/t"),
            watch("fieldSelector=metadata.name%3Ds,type!%3Dx.io/other"),
        )
        for name, colour in (("noise", "blue"), ("s", "blue")):
            api.post(
                path,
                {
                    "apiVersion": "v1",
                    "kind": "Secret",
                    "type": "x.io/t",
                    "metadata": {"name": name, "labels": {"c": colour}},
                },
            )
        for colour in ("red", "red", "blue"):
            api.patch(f"{path}/s", {"metadata": {"labels": {"c": colour}}, "stringData": {"k": colour}})
        api.delete(f"{path}/s")
        api.post(
            path,
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "type": "x.io/other",
                "metadata": {"name": "s", "labels": {"c": "red"}},
            },
        )
        assert received(red.take(3)) == ["ADDED s", "DELETED s", "ADDED s"]
        assert received(typed.take(5)) == ["ADDED noise", "ADDED s", "MODIFIED s", "MODIFIED s", "DELETED s"]
        assert received(named.take(4)) == ["ADDED s", "MODIFIED s", "MODIFIED s", "DELETED s"]


@pytest.mark.parametrize(("accept", "kind"), [(TABLE, "Table"), (PARTIAL, "PartialObjectMetadata")])
def test_tables_and_metadata_see_transitions_deletions_and_marks_in_their_form(
    api: Api, accept: str, kind: str
) -> None:
    define(api, crd("circles"))
    path = "/apis/shapes.example.com/v1/namespaces/default/circles"
    body = {"apiVersion": "shapes.example.com/v1", "kind": "Circle", "spec": {"colour": "red"}}
    with api.watch(f"{path}?watch=1&{LIST}&allowWatchBookmarks=1&labelSelector=l", accept) as events:
        found = [events.next()]
        api.post(path, {**body, "metadata": {"name": "a", "labels": {"l": ""}}})
        api.patch(f"{path}/a", {"metadata": {"labels": {"l": None}}})
        api.patch(f"{path}/a", {"metadata": {"labels": {"l": "1"}}})
        api.delete(f"{path}/a")
        found += events.take(4)
    assert [event.type for event in found] == ["BOOKMARK", "ADDED", "DELETED", "ADDED", "DELETED"]
    assert {(e.object["kind"], e.object["apiVersion"]) for e in found} == {(kind, "meta.k8s.io/v1")}
    if kind == "Table":
        assert [bool(event.object["columnDefinitions"]) for event in found] == [True, False, False, False, False]
        assert found[0].object["rows"][0]["object"]["metadata"]["annotations"] == {END: "true"}
        assert [event.object["rows"][0]["cells"] for event in found[1:]] == [["a", "red"]] * 4
    else:
        assert found[0].object["metadata"]["annotations"] == {END: "true"}
        assert not any("spec" in event.object for event in found)
    revisions = [int(e.object["metadata"]["resourceVersion"]) for e in found]
    assert revisions == sorted(set(revisions))


@pytest.mark.long
def test_one_client_holds_hundreds_of_watches_of_http_1(state: State) -> None:
    api = state.api
    path = "/api/v1/namespaces/default/configmaps"
    since = api.get(path).json["metadata"]["resourceVersion"]
    open_watches: list[tuple[http.client.HTTPSConnection, http.client.HTTPResponse]] = []
    try:
        for number in range(WATCHES):
            connection = api.open()
            selector = f"labelSelector=many,n%3D{number % 3}" if number % 2 else "labelSelector=many"
            target = f"{api.prefix}{path}?watch=1&resourceVersion={since}&{selector}"
            connection.request("GET", target, headers=api.headers())
            open_watches.append((connection, connection.getresponse()))
        for number in range(3):
            api.post(path, configmap(f"many-{number}", labels={"many": "", "n": str(number)}))
        for number, (_, response) in enumerate(open_watches):
            expected = [f"many-{number % 3}"] if number % 2 else ["many-0", "many-1", "many-2"]
            found = [json.loads(response.readline())["object"]["metadata"]["name"] for _ in expected]
            assert found == expected
    finally:
        for connection, _ in open_watches:
            connection.close()


def test_head_answers_a_list_without_its_body(state: State) -> None:
    answer: Answer = state.api.send("HEAD", IN_N, expect=200)
    assert (answer.body, answer.header("content-type")) == (b"", "application/json")
