"""Wildcard requests for metadata without an identity: objects of definitions and of all exports that are bound."""

from __future__ import annotations

import uuid
from typing import Any, NamedTuple

import pytest

from harness.clients.api import MERGE, PARTIAL, PARTIAL_LIST, TABLE, Api, crd, define, workspace_under
from harness.clients.exports import bind, make_export, schema, unbind

PLURAL = "gauges"


class Scene(NamedTuple):
    """Three consumers that serve the resource under three identities, and masters' view of all clusters."""

    everywhere: Api
    path: str
    identities: tuple[str, str]
    #: A definition of its own, a binding to the first export, one to the second.
    own: Api
    first: Api
    second: Api

    @property
    def consumers(self) -> tuple[Api, ...]:
        return self.own, self.first, self.second

    def create(self, at: Api, name: str, **metadata: Any) -> None:
        group = self.path.split("/")[2]
        body = {"apiVersion": f"{group}/v1", "kind": "Gauge", "metadata": {"name": name, **metadata}}
        at.post(f"{self.path.rpartition('/')[0]}/namespaces/default/{PLURAL}", body)

    def one(self, name: str) -> str:
        return f"{self.path.rpartition('/')[0]}/namespaces/default/{PLURAL}/{name}"


@pytest.fixture(scope="module")
def scene(admin: Api, master: Api) -> Scene:
    group = f"g{uuid.uuid4().hex[:6]}.example.com"
    own, first, second = (admin.at(workspace_under(admin)) for _ in range(3))
    identities = []
    for consumer in (first, second):
        provider = admin.at(workspace_under(admin))
        made = make_export(provider, "gauges", schema(PLURAL, group))
        identities.append(made["status"]["identityHash"])
        bind(consumer, provider.cluster, "gauges")
    path = f"/apis/{group}/v1/{PLURAL}"
    everywhere = master.at("*")
    # Bound only, and without objects yet.
    assert everywhere.get(path, accept=PARTIAL_LIST).json["items"] == []
    define(own, crd(PLURAL, group))
    scene = Scene(everywhere, path, (identities[0], identities[1]), own, first, second)
    for number, consumer in enumerate(scene.consumers):
        for name in ("a", "b"):
            scene.create(consumer, f"{name}-{number}", labels={"number": str(number)})
    return scene


def names(items: list[dict[str, Any]]) -> list[str]:
    return [item["metadata"]["name"] for item in items]


ALL = {"a-0", "b-0", "a-1", "b-1", "a-2", "b-2"}


def test_a_list_holds_the_objects_of_every_identity(scene: Scene) -> None:
    answer = scene.everywhere.get(scene.path, accept=PARTIAL_LIST)
    found = answer.json
    assert (found["kind"], found["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    assert set(names(found["items"])) == ALL
    assert {tuple(sorted(item)) for item in found["items"]} == {("apiVersion", "kind", "metadata")}
    clusters = [item["metadata"]["annotations"]["kcp.io/cluster"] for item in found["items"]]
    assert clusters == sorted(clusters)
    assert len(set(clusters)) == 3
    revisions = [int(item["metadata"]["resourceVersion"]) for item in found["items"]]
    assert int(found["metadata"]["resourceVersion"]) >= max(revisions)


@pytest.mark.parametrize("limit", [1, 2, 4, 6, 7])
def test_pages_hold_the_objects_of_one_revision_whatever_happens_meanwhile(scene: Scene, limit: int) -> None:
    scene.create(scene.second, "doomed")
    whole = scene.everywhere.get(scene.path, accept=PARTIAL_LIST).json
    pages: list[dict[str, Any]] = []
    token, revisions = "", set()
    while True:
        page = scene.everywhere.get(f"{scene.path}?limit={limit}&continue={token}", accept=PARTIAL_LIST).json
        assert len(page["items"]) <= limit
        pages.extend(page["items"])
        revisions.add(page["metadata"]["resourceVersion"])
        token = page["metadata"].get("continue", "")
        if not token:
            break
        if len(revisions) == 1 and "doomed" in names(scene.second.get(scene.path).json["items"]):
            scene.second.delete(scene.one("doomed"))
            scene.create(scene.first, f"late-{limit}")
    assert pages == whole["items"]
    assert len(revisions) == 1
    scene.second.send("DELETE", scene.one("doomed"))
    scene.first.send("DELETE", scene.one(f"late-{limit}"))


def test_selectors_and_namespaces_select_from_all(scene: Scene) -> None:
    def found(query: str, path: str = scene.path) -> list[str]:
        return names(scene.everywhere.get(f"{path}?{query}", accept=PARTIAL_LIST).json["items"])

    assert set(found("labelSelector=number!%3D1")) == {"a-0", "b-0", "a-2", "b-2"}
    assert found("fieldSelector=metadata.name%3Db-2") == ["b-2"]
    pages, token = [], ""
    while True:
        query = f"{scene.path}?labelSelector=number&limit=1&continue={token}"
        page = scene.everywhere.get(query, accept=PARTIAL_LIST).json
        pages.extend(names(page["items"]))
        token = page["metadata"].get("continue", "")
        if not token:
            break
    assert (len(pages), set(pages)) == (6, ALL)
    inside = scene.path.rpartition("/")[0]
    assert set(found("", f"{inside}/namespaces/default/{PLURAL}")) == ALL
    assert found("", f"{inside}/namespaces/other/{PLURAL}") == []


def test_a_watch_has_the_events_of_every_identity_in_order(scene: Scene) -> None:
    revision = scene.everywhere.get(scene.path, accept=PARTIAL_LIST).json["metadata"]["resourceVersion"]
    with scene.everywhere.watch(f"{scene.path}?watch=1&resourceVersion={revision}", accept=PARTIAL) as events:
        expected = []
        for number, consumer in enumerate(scene.consumers):
            scene.create(consumer, f"seen-{number}")
            consumer.patch(scene.one(f"seen-{number}"), {"metadata": {"labels": {"x": "y"}}}, MERGE)
            consumer.delete(scene.one(f"seen-{number}"))
            expected += [(type, f"seen-{number}") for type in ("ADDED", "MODIFIED", "DELETED")]
        found = events.take(len(expected))
        assert [(event.type, event.object["metadata"]["name"]) for event in found] == expected
        assert {event.object["kind"] for event in found} == {"PartialObjectMetadata"}
        revisions = [int(event.object["metadata"]["resourceVersion"]) for event in found]
        assert revisions == sorted(revisions)
        assert revisions[0] > int(revision)


def test_a_watch_begins_with_the_state_and_a_bookmark(scene: Scene) -> None:
    query = "watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
    with scene.everywhere.watch(f"{scene.path}?{query}", accept=PARTIAL) as events:
        found = events.take(len(ALL) + 1)
        assert {event.object["metadata"]["name"] for event in found[:-1]} == ALL
        assert (found[-1].type, found[-1].object["kind"]) == ("BOOKMARK", "PartialObjectMetadata")
        # An identity that appears later.
        fresh, provider = (scene.own.at(workspace_under(scene.own.at("root"))) for _ in range(2))
        make_export(provider, "gauges", schema(PLURAL, scene.path.split("/")[2]))
        bind(fresh, provider.cluster, "gauges")
        scene.create(fresh, "newcomer")
        assert events.next().object["metadata"]["name"] == "newcomer"
        unbind(fresh, "gauges")
        gone = events.until("DELETED")
        assert gone.object["metadata"]["name"] == "newcomer"


def test_whole_objects_and_single_identities_are_as_before(scene: Scene) -> None:
    for accept in ("application/json", TABLE):
        scene.everywhere.get(scene.path, expect=404, accept=accept)
    for number, identity in enumerate(scene.identities, 1):
        for accept in ("application/json", PARTIAL_LIST):
            found = scene.everywhere.get(f"{scene.path}:{identity}", accept=accept).json
            assert set(names(found["items"])) == {f"a-{number}", f"b-{number}"}
    for number, consumer in enumerate(scene.consumers):
        found = consumer.get(scene.path, accept=PARTIAL_LIST).json
        assert set(names(found["items"])) == {f"a-{number}", f"b-{number}"}
    group = scene.path.rpartition("/")[0]
    scene.everywhere.get(f"{group}/unheardof", expect=404, accept=PARTIAL_LIST)
    scene.everywhere.get(scene.path.replace("/v1/", "/v9/"), expect=404, accept=PARTIAL_LIST)
    scene.everywhere.get(scene.one("a-1"), expect=405, accept=PARTIAL)
    scene.everywhere.delete(scene.path, expect=405)


def test_others_than_masters_are_refused(scene: Scene, admin: Api) -> None:
    for api in (admin.at("*"), Api(admin.shard, "*", user="")):
        for query in ("", "?watch=1"):
            assert api.send("GET", scene.path + query, accept=PARTIAL_LIST).code in {401, 403}
