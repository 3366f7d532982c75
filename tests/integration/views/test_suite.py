"""The promises of every virtual workspace, the shard's own and a third party's: one suite for all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harness.clients.api import PARTIAL_LIST, TABLE, Api, Events, Object, eventually
from harness.clients.exports import PATIENCE_S
from harness.clients.put_back import check_put_back, check_read_only
from harness.servers import virtual_workspaces
from harness.servers.virtual_workspaces import OfSquads, OfThirdParty, Stand
from harness.tiers import only

WATCH_LIST = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


MAKERS: dict[str, Callable[[Api, OfThirdParty, OfSquads], Stand]] = {
    "lifecycle": lambda admin, third, squads: virtual_workspaces.Initializing(admin),
    "apiexport": lambda admin, third, squads: virtual_workspaces.Exported(admin),
    "apiresourceschema": lambda admin, third, squads: virtual_workspaces.BoundSchemas(admin),
    "edge view": lambda admin, third, squads: virtual_workspaces.Edged(admin),
    "mailbox": lambda admin, third, squads: virtual_workspaces.CameUp(admin),
    "replication": lambda admin, third, squads: virtual_workspaces.Replicated(admin),
    "third party": lambda admin, third, squads: virtual_workspaces.ThirdPartys(admin, third),
    "third party that is written": lambda admin, third, squads: virtual_workspaces.WrittenThirdPartys(admin, squads),
}


#: Those that the default run tries with all tests; it tries each with those that use `each_stand`.
WHOLE = {"apiexport", "third party that is written"}


@pytest.fixture(params=only(WHOLE, MAKERS))
def stand(request: pytest.FixtureRequest, third: OfThirdParty, squads: OfSquads) -> Stand:
    return MAKERS[request.param](third.admin, third, squads)


@pytest.fixture(params=MAKERS)
def each_stand(request: pytest.FixtureRequest, third: OfThirdParty, squads: OfSquads) -> Stand:
    return MAKERS[request.param](third.admin, third, squads)


def listed(stand: Stand, query: str = "") -> Object:
    return dict(stand.api.get(stand.path + query).json)


def names(stand: Stand, query: str = "") -> set[str]:
    return {stand.name_of(item) for item in listed(stand, query)["items"]}


def shows(stand: Stand, *wanted: str) -> None:
    eventually(lambda: names(stand) == set(wanted), f"{wanted} shown", PATIENCE_S)


def until(events: Events, right: Callable[[Any], bool]) -> Any:
    """The first event that matches; an object may change more than once before."""
    while not right(event := events.next()):
        pass
    return event


def test_lists_and_gets_what_there_is(each_stand: Stand) -> None:
    stand = each_stand
    shows(stand)
    stand.add("first")
    stand.add("second")
    shows(stand, "first", "second")
    found = listed(stand)
    assert found["kind"].endswith("List")
    assert found["metadata"]["resourceVersion"].isdigit()
    api, path = stand.one("first")
    one = api.get(path).json
    assert stand.name_of(one) == "first"
    in_list = next(item for item in found["items"] if stand.name_of(item) == "first")
    assert in_list["metadata"]["uid"] == one["metadata"]["uid"]
    missing, path = stand.one("missing")
    assert missing.get(path, expect=0).code in {403, 404}


def test_a_watch_tells_of_every_change_once_it_is_open(stand: Stand) -> None:
    revision = listed(stand)["metadata"]["resourceVersion"]
    with stand.api.watch(f"{stand.path}?watch=1&resourceVersion={revision}") as events:
        stand.add("first")
        added = events.next()
        assert (added.type, stand.name_of(added.object)) == ("ADDED", "first")
        stand.change("first")
        changed = until(events, lambda event: event.type == "MODIFIED" and stand.changed(event.object))
        assert changed.revision > added.revision
        stand.remove("first")
        gone = events.until("DELETED")
        assert stand.name_of(gone.object) == "first"
        assert gone.revision > changed.revision
    shows(stand)


def test_a_watch_tells_what_happened_since_a_list(stand: Stand) -> None:
    stand.add("first")
    shows(stand, "first")
    revision = listed(stand)["metadata"]["resourceVersion"]
    stand.remove("first")
    shows(stand)
    stand.add("second")
    shows(stand, "second")
    with stand.api.watch(f"{stand.path}?watch=1&resourceVersion={revision}") as events:
        assert stand.name_of(events.until("DELETED").object) == "first"
        assert stand.name_of(events.until("ADDED").object) == "second"


def test_a_watch_list_begins_with_the_state_and_says_when_it_ends(stand: Stand) -> None:
    stand.add("first")
    shows(stand, "first")
    with stand.api.watch(f"{stand.path}?{WATCH_LIST}") as events:
        assert stand.name_of(events.next().object) == "first"
        mark = events.next()
        assert mark.type == "BOOKMARK"
        assert mark.object["metadata"]["annotations"][INITIAL_EVENTS_END] == "true"
        stand.change("first")
        until(events, lambda event: event.type == "MODIFIED" and stand.changed(event.object))


def test_a_watch_list_of_nothing_says_so_at_once(stand: Stand) -> None:
    shows(stand)
    with stand.api.watch(f"{stand.path}?{WATCH_LIST}") as events:
        assert events.next().type == "BOOKMARK"
        stand.add("first")
        assert stand.name_of(events.until("ADDED").object) == "first"


def test_a_watch_ends_when_it_was_asked_to(stand: Stand) -> None:
    stand.add("first")
    shows(stand, "first")
    with stand.api.watch(f"{stand.path}?watch=1&timeoutSeconds=1") as events:
        assert [stand.name_of(event.object) for event in events.rest() if event.type == "ADDED"] == ["first"]


def test_labels_select_in_lists_and_watches(stand: Stand) -> None:
    for name in ("first", "second"):
        stand.add(name)
    shows(stand, "first", "second")
    query = "labelSelector=chosen%3Dyes"
    revision = listed(stand)["metadata"]["resourceVersion"]
    with stand.api.watch(f"{stand.path}?watch=1&{query}&resourceVersion={revision}") as events:
        stand.label("second")
        assert stand.name_of(events.until("ADDED").object) == "second"
    assert names(stand, f"?{query}") == {"second"}
    assert stand.api.get(f"{stand.path}?labelSelector=%21%21", expect=400).json["reason"] == "BadRequest"


def test_pages_make_up_the_list(stand: Stand) -> None:
    wanted = {"first", "second", "third"}
    for name in sorted(wanted):
        stand.add(name)
    shows(stand, *wanted)
    found: list[str] = []
    token = ""
    for _ in range(10):
        page = listed(stand, f"?limit=1&continue={token}")
        assert len(page["items"]) <= 1
        found.extend(stand.name_of(item) for item in page["items"])
        token = page["metadata"].get("continue", "")
        if not token:
            break
    assert (set(found), len(found)) == (wanted, 3)
    assert stand.api.get(f"{stand.path}?limit=1&continue=nonsense", expect=400).json["reason"] == "BadRequest"


def test_tables_and_metadata_come_as_asked(stand: Stand) -> None:
    stand.add("first")
    shows(stand, "first")
    table = stand.api.get(stand.path, accept=TABLE).json
    assert table["kind"] == "Table"
    assert len(table["rows"]) == 1
    assert table["columnDefinitions"][0]["name"] == "Name"
    partial = stand.api.get(stand.path, accept=PARTIAL_LIST).json
    assert partial["kind"] == "PartialObjectMetadataList"
    assert "spec" not in partial["items"][0]
    yaml = stand.api.get(stand.path, accept="application/yaml")
    assert yaml.header("content-type") == "application/yaml"


def test_discovery_and_openapi_tell_of_the_kind(stand: Stand) -> None:
    _, _, group, version, *_, plural = stand.path.split("/")
    resources = stand.api.get(f"/apis/{group}/{version}").json["resources"]
    mine = next(each for each in resources if each["name"] == plural)
    assert stand.verbs <= set(mine["verbs"])
    if stand.read_only:
        assert set(mine["verbs"]) == stand.verbs
    groups = [each["name"] for each in stand.api.get("/apis").json["groups"]]
    assert group in groups
    assert f"apis/{group}/{version}" in stand.api.get("/openapi/v3").json["paths"]
    document = stand.api.get(f"/openapi/v3/apis/{group}/{version}").json
    operations = [set(methods) for path, methods in document["paths"].items() if path.endswith(f"/{plural}")]
    assert operations
    assert all("get" in methods for methods in operations)
    assert not stand.read_only or not any("post" in methods for methods in operations)


def test_what_is_only_to_be_read_is_not_written(each_stand: Stand) -> None:
    stand = each_stand
    if not stand.read_only:
        pytest.skip("this view is for writing too")
    stand.add("first")
    shows(stand, "first")
    api, path = stand.one("first")
    before = api.get(path).json
    for method, url in (
        ("POST", path.rpartition("/")[0]),
        ("PUT", path),
        ("PATCH", path),
        ("DELETE", path),
        ("DELETE", path.rpartition("/")[0]),
    ):
        answer = api.send(method, url, {**before, "spec": {}}, kind="application/merge-patch+json")
        assert answer.code in {403, 405}, (method, url, answer.code)
    after = api.get(path).json
    assert (after["metadata"]["uid"], after.get("spec")) == (before["metadata"]["uid"], before.get("spec"))


def test_what_is_read_is_the_same_in_every_format_and_putting_it_back_changes_nothing(stand: Stand) -> None:
    stand.add("first")
    shows(stand, "first")
    api, path = stand.one("first")
    stand.change("first")
    eventually(lambda: stand.changed(api.get(path).json), "the change is shown", PATIENCE_S)
    (check_read_only if stand.read_only else check_put_back)(api, path)


def test_who_may_not_look_sees_nothing(each_stand: Stand) -> None:
    stand = each_stand
    stand.add("first")
    shows(stand, "first")
    for url in (stand.path, f"{stand.path}?watch=1", f"{stand.path}/first", f"{stand.path}?{WATCH_LIST}"):
        assert stand.stranger.get(url, expect=403).json["reason"] == "Forbidden"


def test_what_is_not_served_is_not_there(stand: Stand) -> None:
    group, version = stand.path.split("/")[2:4]
    for url in (f"/apis/{group}/{version}/nothings", "/apis/nothing.example.com/v1", "/nothing"):
        assert stand.api.get(url, expect=0).code in {403, 404}, url
