"""Get, list and paged list at every combination of resourceVersion, resourceVersionMatch and continue.

All cases read one state: `a` and `b` existed at revision `old`, then `b` was deleted and `c` created; `now` is the
latest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from harness.clients.api import Answer, Api, configmap, workspace_under
from harness.tiers import every

IN_N = "/api/v1/namespaces/n/configmaps"
LATEST, OLD = ["a", "c"], ["a", "b"]
FAR = 10**18

UNLESS = "resourceVersionMatch is forbidden unless resourceVersion is provided"
CONTINUED = "resourceVersionMatch is forbidden when continue is provided"
EXACT_ZERO = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
UNSUPPORTED = 'Unsupported value: "Newest": supported values: "Exact", "NotOlderThan", ""'
NOT_BOTH = "specifying resource version is not allowed when using continue"


class State(NamedTuple):
    """The workspace that is read, and its revisions."""

    api: Api
    old: int
    now: int

    def get(self, query: str, expect: int = 200, name: str = "") -> Answer:
        path = f"{IN_N}/{name}" if name else IN_N
        asked = query.format(old=self.old, now=self.now, far=FAR)
        return self.api.get(f"{path}?labelSelector=w&{asked}" if not name else f"{path}?{asked}", expect=expect)


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


def names(answer: Answer) -> list[str]:
    return [item["metadata"]["name"] for item in answer.json["items"]]


#: (resourceVersion, resourceVersionMatch) to what an unpaged and a paged list then hold.
READABLE = [
    ("", "", LATEST, LATEST),
    ("resourceVersion=", "", LATEST, LATEST),
    ("resourceVersion=0", "", LATEST, LATEST),
    ("resourceVersion=0", "NotOlderThan", LATEST, LATEST),
    ("resourceVersion={old}", "", LATEST, OLD),
    ("resourceVersion={old}", "NotOlderThan", LATEST, LATEST),
    ("resourceVersion={old}", "Exact", OLD, OLD),
    ("resourceVersion={now}", "", LATEST, LATEST),
    ("resourceVersion={now}", "NotOlderThan", LATEST, LATEST),
    ("resourceVersion={now}", "Exact", LATEST, LATEST),
]
REFUSED = [
    ("", "Exact", 422, UNLESS),
    ("", "NotOlderThan", 422, UNLESS),
    ("resourceVersion=", "Exact", 422, UNLESS),
    ("resourceVersion=", "NotOlderThan", 422, UNLESS),
    ("resourceVersion=0", "Exact", 422, EXACT_ZERO),
    ("", "Newest", 422, UNSUPPORTED),
    ("resourceVersion=0", "Newest", 422, UNSUPPORTED),
    ("resourceVersion={old}", "Newest", 422, UNSUPPORTED),
    ("resourceVersion={now}", "Newest", 422, UNSUPPORTED),
    ("resourceVersion={far}", "Newest", 422, UNSUPPORTED),
    *(
        (f"resourceVersion={text}", match, 400, "invalid resource version")
        for text in ("x", "-1", "1.5", "18446744073709551616", "%2B1")
        for match in ("", "NotOlderThan", "Exact")
    ),
]


@pytest.mark.parametrize(("revision", "match", "whole", "paged"), READABLE)
def test_a_revision_says_which_state_a_list_holds(
    state: State, revision: str, match: str, whole: list[str], paged: list[str]
) -> None:
    query = f"{revision}&resourceVersionMatch={match}"
    listed = state.get(query)
    assert names(listed) == whole
    assert int(listed.json["metadata"]["resourceVersion"]) == state.old if whole == OLD else True
    assert names(state.get(f"{query}&limit=10")) == paged
    first = state.get(f"{query}&limit=1")
    assert names(first) == paged[:1]
    second = state.get(f"limit=1&continue={first.json['metadata']['continue']}")
    assert names(second) == paged[1:]
    assert second.json["metadata"]["resourceVersion"] == first.json["metadata"]["resourceVersion"]
    if paged == OLD:
        assert int(first.json["metadata"]["resourceVersion"]) == state.old


@pytest.mark.parametrize("limit", ["", "&limit=1"])
@pytest.mark.parametrize(("revision", "match", "code", "message"), REFUSED)
def test_combinations_that_mean_nothing_are_refused(
    state: State, revision: str, match: str, code: int, message: str, limit: str
) -> None:
    status = state.get(f"{revision}&resourceVersionMatch={match}{limit}", code).json
    assert message in status["message"]
    assert status["reason"] == {400: "BadRequest", 422: "Invalid"}[code]
    if code == 422:
        assert status["details"]["kind"] == "ListOptions"
        assert status["details"]["group"] == "meta.k8s.io"
        assert {cause["field"] for cause in status["details"]["causes"]} == {"resourceVersionMatch"}


@pytest.mark.parametrize(
    "query",
    every(
        5,
        [
            "resourceVersion={far}&limit=1",
            "resourceVersion={far}",
            "resourceVersion={far}&resourceVersionMatch=NotOlderThan",
            "resourceVersion={far}&resourceVersionMatch=Exact",
            "resourceVersion={far}&limit=1&resourceVersionMatch=Exact",
        ],
    ),
)
def test_a_revision_that_never_comes_is_a_504_that_says_so(state: State, query: str) -> None:
    answer = state.get(query, 504)
    status = answer.json
    assert (status["reason"], status["details"]["retryAfterSeconds"]) == ("Timeout", 1)
    assert f"Too large resource version: {FAR}, current: " in status["message"]
    assert [cause["reason"] for cause in status["details"]["causes"]] == ["ResourceVersionTooLarge"]
    assert answer.header("retry-after") == "1"


def test_every_wrong_thing_about_a_list_is_told_at_once(state: State) -> None:
    status = state.get("resourceVersionMatch=Newest&sendInitialEvents=true&continue=x", 422).json
    assert [cause["message"] for cause in status["details"]["causes"]] == [
        f"Forbidden: {UNLESS}",
        f"Forbidden: {CONTINUED}",
        UNSUPPORTED,
        "Forbidden: sendInitialEvents is forbidden for list",
    ]


@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        ("resourceVersion=", 200, ""),
        ("resourceVersion=0", 200, ""),
        ("resourceVersion={old}", 400, NOT_BOTH),
        ("resourceVersion={far}", 400, NOT_BOTH),
        ("resourceVersionMatch=Exact&resourceVersion={old}", 422, CONTINUED),
        ("resourceVersionMatch=NotOlderThan&resourceVersion=0", 422, CONTINUED),
        ("resourceVersionMatch=NotOlderThan", 422, CONTINUED),
    ],
)
def test_a_token_goes_with_no_other_revision(state: State, more: str, code: int, message: str) -> None:
    token = state.get("limit=1").json["metadata"]["continue"]
    answer = state.get(f"limit=1&continue={token}&{more}", code)
    assert names(answer) == ["c"] if code == 200 else message in answer.message


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("", 200),
        ("resourceVersion=", 200),
        ("resourceVersion=0", 200),
        ("resourceVersion={old}", 200),
        ("resourceVersion={now}", 200),
        pytest.param("resourceVersion={far}", 504, marks=pytest.mark.long),
        ("resourceVersion=x", 400),
        ("resourceVersion={old}&resourceVersionMatch=Newest", 200),
    ],
)
def test_a_get_is_not_older_than_its_revision(state: State, query: str, code: int) -> None:
    found = state.get(query, code, name="c")
    if code == 200:
        assert int(found.json["metadata"]["resourceVersion"]) == state.now


def test_a_get_of_what_was_deleted_is_a_404_at_an_old_revision_too(state: State) -> None:
    assert state.get("resourceVersion={old}", 404, name="b").json["reason"] == "NotFound"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("limit=x", 'strconv.ParseInt: parsing "x": invalid syntax'),
        ("limit=", 'strconv.ParseInt: parsing "": invalid syntax'),
        ("limit=1e3", 'strconv.ParseInt: parsing "1e3": invalid syntax'),
        ("limit=9223372036854775808", 'strconv.ParseInt: parsing "9223372036854775808": value out of range'),
        ("timeoutSeconds=x", 'strconv.ParseInt: parsing "x": invalid syntax'),
    ],
)
def test_numbers_that_are_none_are_a_400(state: State, query: str, message: str) -> None:
    assert state.get(query, 400).message == message


@pytest.mark.parametrize(
    "query",
    [
        "limit=-1",
        "limit=0",
        "timeoutSeconds=0",
        "timeoutSeconds=-5",
        "allowWatchBookmarks=maybe",
        "unknown=1",
        "watch=false",
        "watch=0",
        "watch=False",
        "shardSelector=x",
        "limit=%2B10",
    ],
)
def test_what_upstream_ignores_is_ignored(state: State, query: str) -> None:
    listed = state.get(query)
    assert names(listed) == LATEST
    assert "continue" not in listed.json["metadata"]


def test_a_limit_and_a_selector_page_through_what_is_selected(state: State) -> None:
    api = state.api
    path = "/api/v1/namespaces/pages/configmaps"
    api.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "pages"}})
    for number in range(12):
        api.post(path, configmap(f"m-{number:02}", labels={"odd": str(number % 2)}))
    found: list[str] = []
    token = ""
    while True:
        listed = api.get(f"{path}?labelSelector=odd%3D1&limit=2&continue={token}")
        assert len(names(listed)) <= 2
        assert "remainingItemCount" not in listed.json["metadata"]
        found += names(listed)
        token = listed.json["metadata"].get("continue", "")
        if not token:
            break
    assert found == [f"m-{number:02}" for number in range(1, 12, 2)]


def test_what_remains_and_what_came_are_together_all(state: State) -> None:
    everything = len(state.api.get("/api/v1/configmaps").json["items"])
    came, token = 0, ""
    while True:
        listed = state.api.get(f"/api/v1/configmaps?limit=3&continue={token}").json
        came += len(listed["items"])
        remaining = listed["metadata"].get("remainingItemCount", 0)
        assert came + remaining == everything
        token = listed["metadata"].get("continue", "")
        if not token:
            assert "remainingItemCount" not in listed["metadata"]
            return


def test_a_collection_is_deleted_by_pages_and_selectors(state: State) -> None:
    api = state.api
    path = "/api/v1/namespaces/gone/configmaps"
    api.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gone"}})
    for number in range(7):
        api.post(path, configmap(f"m-{number}", labels={"kind": "m" if number % 2 else "n"}))
    first = api.delete(f"{path}?labelSelector=kind&limit=3")
    assert names(first) == ["m-0", "m-1", "m-2"]
    second = api.delete(f"{path}?labelSelector=kind&limit=2&continue={first.json['metadata']['continue']}")
    assert names(second) == ["m-3", "m-4"]
    assert names(api.get(f"{path}?labelSelector=kind")) == ["m-5", "m-6"]
    assert names(api.delete(f"{path}?labelSelector=kind%3Dm&dryRun=All")) == ["m-5"]
    last = api.delete(f"{path}?labelSelector=kind%3Dm")
    assert names(last) == ["m-5"]
    assert (last.json["kind"], "continue" in last.json["metadata"]) == ("ConfigMapList", False)
    assert names(api.get(f"{path}?labelSelector=kind")) == ["m-6"]
    api.send("DELETE", f"{path}?resourceVersionMatch=Exact", expect=422)
    api.send("DELETE", f"{path}?limit=x", expect=400)
    api.send("DELETE", f"{path}?continue=x", expect=400)
    assert names(api.get(f"{path}?labelSelector=kind")) == ["m-6"]
