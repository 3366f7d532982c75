"""Summaries on the wire: what three edge clusters report of placed objects, in the workspace that placed them."""

from __future__ import annotations

import shutil
import signal

import pytest

from atoll.machinery.edge.associated_states import Observed, associated_state
from atoll.machinery.edge.names import ObjectRef
from harness.clients.api import Api, Object, eventually
from harness.servers.edge_service import GROUP, EdgeControllers, an_object
from integration.edge.mailbox_world import CONFIGS
from integration.edge.placed import LOCATIONS, PLACEMENTS, place
from integration.edge.summarized import (
    BOATS,
    COLLECTORS,
    DOMAIN,
    FLEET,
    HARBOURS,
    NAMES,
    SUMMARIES,
    Edge,
    boat,
    counts,
    edges,
    harbour,
    result,
    summaries,
    summary,
)

__all__ = ["edges", "harbour"]
#: Of a mailbox.
STATES = f"{GROUP}/namespaces/default/associatedstates"


def only(name: str, resource: str = "boats") -> Object:
    return {"apiGroup": DOMAIN, "resources": [resource], "objectNames": [name]}


def collector(name: str, **spec: object) -> Object:
    return an_object("StatusCollector", name, spec)


def test_a_placed_object_has_counts_without_a_collector(harbour: Api, edges: dict[str, Edge]) -> None:
    for each in edges.values():
        each.applied(revision="1")
    harbour.post(BOATS, boat("counted"))
    place(harbour, "counted", FLEET, only("counted"))
    eventually(lambda: counts(harbour, "counted") == (3, 0, 0, 0), "three destinations")
    edges["s-one"].report(f"{BOATS}/counted", {"replicas": 3})
    eventually(lambda: counts(harbour, "counted") == (3, 1, 0, 0), "one reported")
    edges["s-one"].applied()
    eventually(lambda: counts(harbour, "counted") == (3, 1, 1, 0), "it is up to date")
    row = {"group": DOMAIN, "resource": "boats", "namespace": "default", "name": "counted", "operation": "apply"}
    edges["s-two"].applied({**row, "reason": "Invalid", "message": "no room"})
    eventually(lambda: counts(harbour, "counted") == (3, 1, 1, 1), "one refuses it")
    found = summary(harbour, "counted")
    (broken,) = found["brokenObjects"]
    assert (broken["syncTargetName"], broken["reason"], broken["message"]) == ("s-two", "Invalid", "no room")
    assert (broken["kind"], broken["apiVersion"], broken["name"]) == ("Boat", f"{DOMAIN}/v1", "counted")
    placement = harbour.get(f"{PLACEMENTS}/counted").json["metadata"]
    uid = harbour.get(f"{BOATS}/counted").json["metadata"]["uid"]
    assert found["metadata"]["name"] == f"{uid}.{placement['uid']}"
    assert found["metadata"]["ownerReferences"][0]["uid"] == placement["uid"]
    table = harbour.get(SUMMARIES, accept="application/json;as=Table;g=meta.k8s.io;v=v1").json
    columns = [each["name"] for each in table["columnDefinitions"]]
    assert columns == ["Name", "Object", "Destinations", "Up-To-Date", "Broken", "Age"]
    edges["s-two"].applied()
    eventually(lambda: counts(harbour, "counted") == (3, 2, 2, 0), "it takes it now")
    harbour.patch(f"{BOATS}/counted", {"spec": {"replicas": 4}})
    edges["s-two"].applied(revision="1")
    eventually(lambda: counts(harbour, "counted") == (3, 1, 1, 0), "it has an older one")
    harbour.delete(f"{BOATS}/counted")
    eventually(lambda: summaries(harbour, "counted") == [], "its summary goes with it")
    harbour.delete(f"{PLACEMENTS}/counted")


@pytest.mark.long
def test_collectors_make_tables_of_what_comes_back(harbour: Api, edges: dict[str, Edge]) -> None:
    harbour.post(BOATS, boat("sailing", labels={"class": "a"}))
    place(harbour, "sailing", FLEET, only("sailing"))
    target = [only("sailing")]
    by_size = [{"name": "size", "def": "returned.status.replicas > 2 ? 'large' : 'small'"}]
    fields = [
        {"name": "number", "type": "COUNT"},
        {"name": "sum", "type": "SUM", "subject": "returned.status.replicas"},
        {"name": "least", "type": "MIN", "subject": "returned.status.replicas - obj.spec.replicas"},
    ]
    harbour.post(COLLECTORS, collector("sizes", target=target, groupBy=by_size, combinedFields=fields))
    columns = [
        {"name": "where", "def": "inventory.name"},
        {"name": "replicas", "def": "returned.status.replicas"},
        {"name": "class", "def": "obj.metadata.labels.class"},
    ]
    harbour.post(COLLECTORS, collector("where", target=target, select=columns, edgePlacements=["sailing"]))
    harbour.post(COLLECTORS, collector("elsewhere", target=target, select=columns, edgePlacements=["other"]))
    for replicas, name in enumerate(NAMES, start=2):
        edges[name].report(f"{BOATS}/sailing", {"replicas": replicas})
    expected = [["s-one", "2", "a"], ["s-three", "4", "a"], ["s-two", "3", "a"]]
    eventually(lambda: result(harbour, "sailing", "where") == expected, "a row a destination, sorted")
    groups = [["large", "2", "7", "0"], ["small", "1", "2", "-1"]]
    eventually(lambda: result(harbour, "sailing", "sizes") == groups, "a row a group")
    assert [each["name"] for each in summary(harbour, "sailing")["results"]] == ["sizes", "where"]
    edges["s-one"].report(f"{BOATS}/sailing", {"replicas": 9})
    eventually(lambda: result(harbour, "sailing", "sizes") == [["large", "3", "16", "0"]], "another report")
    harbour.patch(f"{COLLECTORS}/where", {"spec": {"filter": "returned.status.replicas > 5", "select": columns[:1]}})
    eventually(lambda: result(harbour, "sailing", "where") == [["s-one"]], "another collector")
    harbour.delete(f"{COLLECTORS}/sizes")
    eventually(lambda: [each["name"] for each in summary(harbour, "sailing")["results"]] == ["where"], "one less")
    for name in ("where", "elsewhere"):
        harbour.delete(f"{COLLECTORS}/{name}")
    harbour.delete(f"{PLACEMENTS}/sailing")
    eventually(lambda: summaries(harbour, "sailing") == [], "its summary goes with the placement")


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"filter": "returned.", "select": [{"name": "a", "def": "1"}]}, "spec.filter"),
        ({"select": [{"name": "a", "def": "1 + 'x'"}]}, "spec.select[0].def"),
        ({"combinedFields": [{"name": "a", "type": "SUM"}]}, "spec.combinedFields[0].subject"),
        ({"groupBy": [{"name": "a", "def": "1"}]}, "spec.groupBy"),
        ({"select": [{"name": "a", "def": "1"}], "limit": 101}, "spec.limit"),
        ({"associated": [{"resource": "pods", "label": "a", "field": "$.b"}]}, "spec.associated[0]"),
        ({"associated": [{"resource": "pods", "field": "b"}]}, "spec.associated[0].field"),
        ({}, "spec"),
    ],
)
def test_a_collector_that_does_not_compile_is_refused(harbour: Api, spec: Object, field: str) -> None:
    answer = harbour.post(COLLECTORS, collector("wrong", **spec), expect=422).json
    assert answer["details"]["causes"][0]["field"] == field
    made = harbour.post(COLLECTORS, collector("right", select=[{"name": "a", "def": "1"}])).json
    change = {"spec": {"select": [{"name": "a", "def": "nothing(1)"}]}}
    assert harbour.patch(f"{COLLECTORS}/right", change, expect=422)
    assert made["spec"]["limit"] == 20
    harbour.delete(f"{COLLECTORS}/right")


@pytest.mark.long
def test_what_fails_on_data_is_told_by_the_collector_and_its_cell_is_null(harbour: Api, edges: dict[str, Edge]) -> None:
    harbour.post(BOATS, boat("failing"))
    columns = [{"name": "where", "def": "inventory.name"}, {"name": "share", "def": "6 / returned.status.replicas"}]
    harbour.post(COLLECTORS, collector("shares", target=[only("failing")], select=columns))
    place(harbour, "failing", {"env": "s-one"}, only("failing"))
    edges["s-one"].report(f"{BOATS}/failing", {"replicas": 0})

    def status() -> Object:
        found: Object = harbour.get(f"{COLLECTORS}/shares").json.get("status") or {}
        return found

    eventually(lambda: status() == {"observedGeneration": 1, "errors": ["share: division by zero"]}, "the error")
    eventually(lambda: result(harbour, "failing", "shares") == [["s-one", None]], "no value")
    edges["s-one"].report(f"{BOATS}/failing", {"replicas": 3})
    eventually(lambda: status() == {"observedGeneration": 1, "errors": []}, "no error any more")
    eventually(lambda: result(harbour, "failing", "shares") == [["s-one", "2"]], "a value")
    harbour.delete(f"{COLLECTORS}/shares")
    harbour.delete(f"{PLACEMENTS}/failing")


def test_what_has_no_namespace_is_summarized_in_that_of_reports(harbour: Api, edges: dict[str, Edge]) -> None:
    harbour.post(HARBOURS, {"apiVersion": f"{DOMAIN}/v1", "kind": "Harbour", "metadata": {"name": "north"}})
    place(harbour, "north", {"env": "s-one"}, only("north", "harbours"))
    eventually(lambda: counts(harbour, "north", "kubestellar-report")[0] == 1, "the summary")
    harbour.delete(f"{PLACEMENTS}/north")
    eventually(lambda: summaries(harbour, "north", "kubestellar-report") == [], "it is gone")


@pytest.mark.long
def test_what_a_syncer_says_of_a_namespace_is_in_its_summary(harbour: Api, edges: dict[str, Edge]) -> None:
    harbour.post("/api/v1/namespaces", {"metadata": {"name": "quay"}})
    place(harbour, "quay", {"env": "s-one"}, {"apiGroup": "", "resources": ["namespaces"], "objectNames": ["quay"]})
    row = {"group": "", "resource": "namespaces", "name": "quay", "operation": "status", "reason": "Terminating"}
    edges["s-one"].applied({**row, "message": "the Namespace is being deleted"})
    eventually(lambda: counts(harbour, "quay", "kubestellar-report") == (1, 0, 0, 1), "it ends there")
    (broken,) = summary(harbour, "quay", "kubestellar-report")["brokenObjects"]
    assert (broken["kind"], broken["name"], broken["reason"]) == ("Namespace", "quay", "Terminating")
    edges["s-one"].applied()
    eventually(lambda: counts(harbour, "quay", "kubestellar-report") == (1, 1, 1, 0), "it is there again")
    harbour.delete(f"{PLACEMENTS}/quay")


@pytest.mark.long
def test_what_comes_up_is_summarized_by_set(harbour: Api, edges: dict[str, Edge]) -> None:
    logs = {"apiGroup": "", "resources": ["configmaps"], "namespaces": ["logs"], "names": ["*"]}
    place(harbour, "logs", FLEET, upsync=[logs])
    by_edge = [{"name": "where", "def": "inventory.name"}]
    number = [{"name": "lines", "type": "SUM", "subject": "obj.data.lines"}]
    target = [{"apiGroup": "", "resources": ["configmaps"]}]
    harbour.post(COLLECTORS, collector("lines", target=target, groupBy=by_edge, combinedFields=number))

    def found() -> Object:
        every: list[Object] = harbour.get(SUMMARIES).json["items"]
        return next((each for each in every if each["subject"] == "upsync configmaps"), {})

    eventually(lambda: (found().get("counts") or {}).get("destinations") == 3, "the set has a summary")
    for index, name in enumerate(NAMES[:2]):
        admin = edges[name].world.admin
        admin.post("/api/v1/namespaces", {"metadata": {"name": "logs"}})
        for line in range(index + 1):
            marks = {"edge.kubestellar.io/upsynced": f"ConfigMap/logs/log-{line}"}
            body = {"metadata": {"name": f"log-{line}", "annotations": marks}, "data": {"lines": "5"}}
            admin.post("/api/v1/namespaces/logs/configmaps", body)
    # One of somebody else.
    edges["s-one"].world.admin.post("/api/v1/namespaces/logs/configmaps", {"metadata": {"name": "own"}, "data": {}})

    def rows() -> list[list[object]]:
        tables = found().get("results") or [{"rows": []}]
        return [[each.get("string") or each.get("float") for each in row["columns"]] for row in tables[0]["rows"]]

    eventually(lambda: rows() == [["s-one", "5"], ["s-two", "10"]], "a row an edge")
    assert found()["counts"] == {"destinations": 3, "reported": 3, "upToDate": 3, "broken": 0}
    edges["s-two"].world.admin.delete("/api/v1/namespaces/logs/configmaps/log-1")
    eventually(lambda: rows() == [["s-one", "5"], ["s-two", "5"]], "what goes leaves the summary")
    harbour.delete(f"{COLLECTORS}/lines")
    harbour.delete(f"{PLACEMENTS}/logs")
    eventually(lambda: found() == {}, "it goes with the placement")


@pytest.mark.long
def test_what_belongs_to_an_object_is_asked_of_syncers_and_summarized(harbour: Api, edges: dict[str, Edge]) -> None:
    harbour.post(BOATS, boat("manned"))
    fields = [{"name": "crew", "type": "SUM", "subject": "associated.pods.broken"}]
    rule = {"resource": "pods", "maxObjects": 2}
    asking = collector("crew", target=[only("manned")], associated=[rule], combinedFields=fields)
    harbour.post(COLLECTORS, asking)
    place(harbour, "manned", {"env": "s-one"}, only("manned"))
    syncer = edges["s-one"].world.syncer

    def queries() -> list[Object]:
        spec = syncer.get(f"{CONFIGS}/the-one").json["spec"]
        return [row for each in spec.get("associated") or () for row in each["objects"]]

    eventually(lambda: queries() == [rule], "the syncer is asked")
    edges["s-one"].report(f"{BOATS}/manned", {"replicas": 3})
    subject = ObjectRef(DOMAIN, "boats", "default", "manned")
    pods = [Observed(ObjectRef("", "pods", "default", f"p{each}"), f"u{each}", "Running", "Waiting") for each in "abc"]
    pods.append(Observed(ObjectRef("", "pods", "default", "well"), "u", "Running"))
    due = {each.ref: "2026-01-01T00:00:00Z" for each in pods if each.reason}
    state = associated_state(subject, pods, due, {("", "pods"): ("v1", "Pod")}, {("", "pods"): 2})
    written = syncer.post(STATES, state).json

    def listed() -> list[str]:
        return [each["name"] for each in summary(harbour, "manned").get("brokenObjects") or ()]

    eventually(lambda: listed() == ["pa", "pb"], "they are named")
    found = summary(harbour, "manned")
    assert found["brokenTruncated"] == 1
    assert found["counts"]["broken"] == 0, "the object itself is sound"
    assert [(each["phase"], each["reason"], each["count"]) for each in found["associated"]] == [
        ("Running", "", 1),
        ("Running", "Waiting", 3),
    ]
    eventually(lambda: result(harbour, "manned", "crew") == [["3"]], "expressions see the numbers")
    harbour.patch(f"{COLLECTORS}/crew", {"spec": {"edgePlacements": ["other"]}})
    eventually(lambda: queries() == [] and listed() == [], "it is about another placement")
    syncer.put(f"{STATES}/{written['metadata']['name']}", written, expect=403)
    harbour.patch(f"{COLLECTORS}/crew", {"spec": {"edgePlacements": None}})
    eventually(lambda: queries() == [rule] and listed() == ["pa", "pb"], "and about this one again")
    # A syncer may not write more of them than it is asked for, nor keep one from going.
    metadata = state["metadata"]
    for forged in (
        {**state, "metadata": {**metadata, "name": "another"}},
        associated_state(ObjectRef(DOMAIN, "boats", "default", "unlisted"), (), {}, {}, {}),
        associated_state(ObjectRef("", "configmaps", "default", "manned"), (), {}, {}, {}),
    ):
        assert syncer.post(STATES, forged, expect=403)
    held = {**written["metadata"], "finalizers": ["example.com/held"]}
    syncer.put(f"{STATES}/{metadata['name']}", {**written, "metadata": held}, expect=403)
    syncer.delete(f"{STATES}/{metadata['name']}")
    eventually(lambda: listed() == [], "it went")
    harbour.delete(f"{COLLECTORS}/crew")
    eventually(lambda: queries() == [], "nobody asks any more")
    harbour.delete(f"{PLACEMENTS}/manned")


@pytest.mark.long
def test_a_summary_is_put_back_and_survives_a_restart_without_a_write(
    controllers: EdgeControllers, harbour: Api, edges: dict[str, Edge]
) -> None:
    harbour.post(BOATS, boat("steady"))
    harbour.post(BOATS, boat("gone"))
    place(harbour, "steady", FLEET, only("steady"))
    place(harbour, "gone", FLEET, only("gone"))
    for name in NAMES:
        edges[name].report(f"{BOATS}/steady", {"replicas": 3})
        edges[name].applied()
    eventually(lambda: counts(harbour, "steady") == (3, 3, 3, 0), "all reported")
    eventually(lambda: counts(harbour, "gone") == (3, 3, 3, 0), "the other too")
    metadata = summary(harbour, "steady")["metadata"]
    path = f"{SUMMARIES.replace('/statussummaries', '')}/namespaces/default/statussummaries/{metadata['name']}"
    harbour.patch(path, {"counts": {"destinations": 99}})
    eventually(lambda: counts(harbour, "steady") == (3, 3, 3, 0), "an edit is reverted")
    harbour.delete(path)
    eventually(lambda: counts(harbour, "steady") == (3, 3, 3, 0), "it is made again")
    revision = harbour.get(path).json["metadata"]["resourceVersion"]
    controllers.stop(signal.SIGKILL)
    harbour.delete(f"{BOATS}/gone")
    controllers.start()
    eventually(lambda: summaries(harbour, "gone") == [], "what went meanwhile")
    harbour.patch(f"{BOATS}/steady", {"metadata": {"labels": {"seen": "yes"}}})
    eventually(
        lambda: edges["s-one"].world.admin.get(f"{BOATS}/steady").json["metadata"]["labels"].get("seen"), "it works"
    )
    assert harbour.get(path).json["metadata"]["resourceVersion"] == revision
    controllers.stop(signal.SIGKILL)
    shutil.rmtree(controllers.directory / "edge" / "store")
    controllers.start()
    edges["s-one"].applied(revision="1")
    eventually(lambda: counts(harbour, "steady") == (3, 3, 2, 0), "without records copies in force are as they were")
    for name in ("steady", "gone"):
        harbour.delete(f"{PLACEMENTS}/{name}")


@pytest.mark.long
def test_a_destination_that_goes_leaves_the_summary(harbour: Api, edges: dict[str, Edge], root: Api) -> None:
    harbour.post(BOATS, boat("moving"))
    place(harbour, "moving", FLEET, only("moving"))
    eventually(lambda: counts(harbour, "moving")[0] == 3, "three")
    inventory = root.at("root:imw1")
    inventory.patch(f"{LOCATIONS}/s-three", {"metadata": {"labels": {"fleet": None}}})
    eventually(lambda: counts(harbour, "moving")[0] == 2, "two")
    inventory.patch(f"{LOCATIONS}/s-three", {"metadata": {"labels": FLEET}})
    eventually(lambda: counts(harbour, "moving")[0] == 3, "three again")
    harbour.delete(f"{PLACEMENTS}/moving")
    inventory.close()
