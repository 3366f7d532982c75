"""Workload objects become copies in mailboxes, with a list for the syncer, as placements and their workspace say."""

from __future__ import annotations

import re
import shutil
import signal

import pytest

from harness.clients.api import Api, Object, configmap, crd, define, eventually
from harness.servers.configured_nats import ConfiguredNats
from harness.servers.edge_service import GROUP, EdgeControllers
from integration.edge.mailbox_world import RBAC
from integration.edge.placed import (
    CONFIGMAPS,
    CONFIGMAPS_OF_ALL,
    LOCATIONS,
    PLACEMENTS,
    WORKSPACES,
    condition,
    data,
    inventory,
    is_projected,
    listed,
    mailboxes,
    new_workload,
    place,
    workload,
)

__all__ = ["inventory", "mailboxes", "workload"]


def role(api: Api, *rules: Object) -> None:
    """Set what the translator may do in a workspace."""
    stored = api.get(f"{RBAC}/clusterroles/edge-translator").json
    entrance = {"nonResourceURLs": ["/"], "verbs": ["access"]}
    api.put(f"{RBAC}/clusterroles/edge-translator", {**stored, "rules": [*rules, entrance]})


def rule(*resources: str) -> Object:
    return {"apiGroups": ["*"], "resources": list(resources), "verbs": ["get", "list", "patch"]}


def test_a_placement_sends_copies_and_then_their_list(workload: Api, mailboxes: dict[str, Api]) -> None:
    workload.post(
        CONFIGMAPS, configmap("a", {"k": "1"}, annotations={"kubectl.kubernetes.io/last-applied-configuration": "x"})
    )
    place(workload, "p", {"env": "one"}, CONFIGMAPS_OF_ALL)
    one = mailboxes["one"]
    eventually(lambda: data(one, f"{CONFIGMAPS}/a") == {"k": "1"}, "the copy")
    names = [{"namespace": "default", "names": ["a"]}]
    row = {"group": "", "resource": "configmaps", "apiVersion": "v1", "objectsByNamespace": names}
    eventually(lambda: listed(one) == {"namespaceScope": {}, "namespacedObjects": [row]}, "the list")
    copy = one.get(f"{CONFIGMAPS}/a").json["metadata"]
    cluster = workload.get(f"{CONFIGMAPS}/a").json["metadata"]["annotations"]["kcp.io/cluster"]
    assert copy["labels"] == {"edge.kubestellar.io/projected": "yes"}
    assert copy["annotations"]["edge.kubestellar.io/sources"] == cluster
    assert "kubectl.kubernetes.io/last-applied-configuration" not in copy["annotations"]
    eventually(lambda: is_projected(workload, "p"), "the condition")
    status = workload.get(f"{PLACEMENTS}/p").json["status"]
    assert (status["objectCount"], status["destinations"]["total"], status["destinations"]["silent"]) == (1, 1, 1)
    workload.patch(f"{CONFIGMAPS}/a", {"data": {"k": None, "n": "2"}})
    eventually(lambda: data(one, f"{CONFIGMAPS}/a") == {"n": "2"}, "what leaves a source leaves the copy")
    one.patch(f"{CONFIGMAPS}/a", {"data": {"n": "3"}})
    eventually(lambda: data(one, f"{CONFIGMAPS}/a") == {"n": "2"}, "an edit of a copy is reverted")
    one.delete(f"{CONFIGMAPS}/a")
    eventually(lambda: data(one, f"{CONFIGMAPS}/a") == {"n": "2"}, "a deleted copy is back")
    workload.post(CONFIGMAPS, configmap("b"))
    names[0]["names"] = ["a", "b"]
    eventually(lambda: listed(one)["namespacedObjects"] == [row], "the list has the new object")
    one.patch(f"{GROUP}/syncerconfigs/the-one", {"spec": {"clusterScope": [{**row, "objects": ["x"]}]}})
    eventually(
        lambda: listed(one) == {"namespaceScope": {}, "namespacedObjects": [row]}, "drift of the list is reverted"
    )
    workload.delete(f"{CONFIGMAPS}/b")
    eventually(lambda: data(one, f"{CONFIGMAPS}/b") is None, "a deleted source takes its copy along")
    workload.delete(f"{PLACEMENTS}/p")
    eventually(lambda: data(one, f"{CONFIGMAPS}/a") is None, "withdrawn")
    eventually(lambda: listed(one) == {"namespaceScope": {}}, "the list is empty")
    one.get("/api/v1/namespaces/default")


def test_labels_of_namespaces_relabelled_objects_and_destinations_move_copies(
    workload: Api, mailboxes: dict[str, Api], inventory: Api
) -> None:
    one, two = mailboxes["one"], mailboxes["two"]
    space, here = "/api/v1/namespaces/shop", "/api/v1/namespaces/shop/configmaps"
    workload.post("/api/v1/namespaces", {"metadata": {"name": "shop"}})
    workload.post(here, configmap("a", {"k": "1"}, labels={"tier": "web"}))
    selected = {"namespaceSelectors": [{"matchLabels": {"sold": "yes"}}], **CONFIGMAPS_OF_ALL}
    place(workload, "shop", {"env": "one"}, selected)
    eventually(lambda: is_projected(workload, "shop"), "nothing is selected yet")
    assert data(one, f"{here}/a") is None
    workload.patch(space, {"metadata": {"labels": {"sold": "yes"}}})
    eventually(lambda: data(one, f"{here}/a") == {"k": "1"}, "a label of the Namespace")
    assert "sold" not in one.get(space).json["metadata"]["labels"]
    workload.patch(space, {"metadata": {"labels": {"sold": None}}})
    eventually(lambda: data(one, f"{here}/a") is None, "the label is gone")
    spec = {"downsync": [{**CONFIGMAPS_OF_ALL, "labelSelectors": [{"matchLabels": {"tier": "web"}}]}]}
    workload.patch(f"{PLACEMENTS}/shop", {"spec": spec})
    eventually(lambda: data(one, f"{here}/a") == {"k": "1"}, "another test selects it")
    workload.patch(f"{PLACEMENTS}/shop", {"spec": {"locationSelectors": [{"matchLabels": {"fleet": "all"}}]}})
    eventually(lambda: data(two, f"{here}/a") == {"k": "1"}, "a second destination")
    inventory.patch(f"{LOCATIONS}/one", {"metadata": {"labels": {"fleet": None}}})
    eventually(lambda: data(one, f"{here}/a") is None, "a destination that goes")
    assert data(two, f"{here}/a") == {"k": "1"}
    inventory.patch(f"{LOCATIONS}/one", {"metadata": {"labels": {"fleet": "all"}}})
    workload.patch(f"{here}/a", {"metadata": {"labels": {"tier": "db"}}})
    eventually(lambda: data(two, f"{here}/a") is None, "a label of the object")


def test_upsync_alone_is_a_list_and_a_change_of_it_takes_effect(workload: Api, mailboxes: dict[str, Api]) -> None:
    two = mailboxes["two"]
    ups = {"apiGroup": "x.example.com", "resources": ["gauges"], "namespaces": ["*"], "names": ["*"]}
    place(workload, "up", {"env": "two"}, upsync=[ups])
    eventually(lambda: listed(two) == {"namespaceScope": {}, "upsync": [ups]}, "the set alone")
    first = whole(two)
    workload.patch(f"{PLACEMENTS}/up", {"spec": {"upsync": [{**ups, "names": ["a"]}]}})
    eventually(lambda: listed(two)["upsync"][0]["names"] == ["a"], "a change of the set alone")
    assert whole(two) > first
    workload.delete(f"{PLACEMENTS}/up")
    eventually(lambda: listed(two) == {"namespaceScope": {}}, "the set is gone")


def whole(api: Api) -> int:
    found = api.get(f"{GROUP}/syncerconfigs/the-one").json["metadata"]["annotations"]
    return int(found["edge.kubestellar.io/whole"])


def test_definitions_go_along_and_owners_are_those_of_the_mailbox(workload: Api, mailboxes: dict[str, Api]) -> None:
    one = mailboxes["one"]
    define(workload, crd("boats", "harbour.example.com"))
    boats = "/apis/harbour.example.com/v1/namespaces/default/boats"
    head = {"apiVersion": "harbour.example.com/v1", "kind": "Boat"}
    owner = workload.post(
        boats, {**head, "metadata": {"name": "ship", "finalizers": ["harbour.example.com/anchor"]}}
    ).json
    reference = {**head, "name": "ship", "uid": owner["metadata"]["uid"]}
    metadata = {"name": "dinghy", "ownerReferences": [reference]}
    workload.post(boats, {**head, "metadata": metadata})
    place(workload, "harbour", {"env": "one"}, {"apiGroup": "harbour.example.com"})
    eventually(lambda: is_projected(workload, "harbour"), "all of it is there")
    ship = one.get(f"{boats}/ship").json["metadata"]
    assert ship["finalizers"] == ["harbour.example.com/anchor"]
    assert ship["uid"] != owner["metadata"]["uid"]

    def owners() -> list[str]:
        return [each["uid"] for each in one.get(f"{boats}/dinghy").json["metadata"].get("ownerReferences", ())]

    eventually(lambda: owners() == [ship["uid"]], "the owner is the copy")
    rows = listed(one)["clusterScope"]
    assert [(row["resource"], row["objects"]) for row in rows] == [
        ("customresourcedefinitions", ["boats.harbour.example.com"])
    ]
    workload.delete(f"{PLACEMENTS}/harbour")
    eventually(lambda: one.send("GET", boats).code == 404, "withdrawn with the definition, and no finalizer holds it")
    workload.patch(f"{boats}/ship", {"metadata": {"finalizers": None}})


def test_what_may_not_be_read_is_named_and_not_copied_and_the_rest_is(workload: Api, mailboxes: dict[str, Api]) -> None:
    one, secrets = mailboxes["one"], "/api/v1/namespaces/default/secrets"
    workload.post(CONFIGMAPS, configmap("seen", {"k": "1"}))
    workload.post(secrets, {"metadata": {"name": "key"}, "stringData": {"k": "v"}})
    place(workload, "narrow", {"env": "one"}, {"apiGroup": "", "resources": ["configmaps", "secrets"]})
    eventually(lambda: data(one, f"{secrets}/key") == {"k": "dg=="}, "a Secret")
    role(workload, rule("configmaps", "namespaces", "customresourcedefinitions", "apibindings"))
    eventually(lambda: data(one, f"{secrets}/key") is None, "what may not be read is withdrawn")
    text = "the account of the placement translator may not list secrets"
    wanted = {"type": "Projected", "status": "False", "severity": "Warning", "reason": "Forbidden", "message": text}
    eventually(lambda: condition(workload, "narrow") == wanted, "the condition names it")
    workload.patch(f"{CONFIGMAPS}/seen", {"data": {"k": "2"}})
    eventually(lambda: data(one, f"{CONFIGMAPS}/seen") == {"k": "2"}, "the rest goes on")
    events = workload.get("/api/v1/namespaces/default/events").json["items"]
    assert [each["message"] for each in events if each["reason"] == "Forbidden"] == [text]
    role(workload, rule("*"))
    eventually(lambda: data(one, f"{secrets}/key") == {"k": "dg=="}, "it may be read again")
    eventually(lambda: is_projected(workload, "narrow"), "the condition")
    workload.delete(f"{RBAC}/clusterrolebindings/edge-translator")
    eventually(lambda: data(one, f"{CONFIGMAPS}/seen") is None, "a workspace that lets nobody in sends nothing")
    eventually(lambda: condition(workload, "narrow").get("message", "").endswith("translator in"), "the condition")


@pytest.mark.long
def test_what_a_mailbox_refuses_is_named_within_seconds_and_holds_nothing_up(
    workload: Api, mailboxes: dict[str, Api], controllers: EdgeControllers
) -> None:
    two, policies = mailboxes["two"], "/apis/admissionregistration.k8s.io/v1"
    matched = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["configmaps"],
    }
    spec = {
        "matchConstraints": {"resourceRules": [matched]},
        "validations": [{"expression": "object.metadata.name != 'bad'", "message": "no bad ones"}],
    }
    two.post(f"{policies}/validatingadmissionpolicies", {"metadata": {"name": "no-bad"}, "spec": spec})
    binding = {"policyName": "no-bad", "validationActions": ["Deny"]}
    two.post(f"{policies}/validatingadmissionpolicybindings", {"metadata": {"name": "no-bad"}, "spec": binding})
    for name in ("bad", "good"):
        workload.post(CONFIGMAPS, configmap(name, {"k": "1"}))
    place(workload, "some", {"env": "two"}, CONFIGMAPS_OF_ALL)
    eventually(lambda: data(two, f"{CONFIGMAPS}/good") == {"k": "1"}, "the rest is copied")
    eventually(lambda: condition(workload, "some").get("reason") == "ObjectsRefused", "the condition")
    assert condition(workload, "some")["message"].startswith("configmaps default/bad: ")
    assert "no bad ones" in condition(workload, "some")["message"]
    assert workload.get(f"{PLACEMENTS}/some").json["status"]["destinations"]["failing"] == 1
    metrics = controllers.metrics()
    assert re.search(r'^atoll_edge_copy_errors_total\{reason="Invalid"\} [1-9]', metrics, re.MULTILINE), metrics
    assert re.search(r'^atoll_edge_copy_writes_total\{operation="apply"\} [1-9]', metrics, re.MULTILINE)
    assert re.search(r"^atoll_edge_copies_failing [1-9]", metrics, re.MULTILINE)
    assert listed(two)["namespacedObjects"][0]["objectsByNamespace"] == [{"namespace": "default", "names": ["good"]}]
    two.delete(f"{policies}/validatingadmissionpolicybindings/no-bad")
    eventually(lambda: data(two, f"{CONFIGMAPS}/bad") == {"k": "1"}, "it is tried again")
    eventually(lambda: is_projected(workload, "some"), "the condition")


@pytest.mark.long
def test_what_an_edge_refuses_is_in_the_condition_of_the_placements_that_send_it(
    workload: Api, mailboxes: dict[str, Api]
) -> None:
    for name in ("a", "b"):
        workload.post(CONFIGMAPS, configmap(name))
        place(workload, name, {"env": "one"}, {**CONFIGMAPS_OF_ALL, "objectNames": [name]})
    for name in ("a", "b"):
        eventually(lambda: is_projected(workload, name), "it is in the mailbox")  # noqa: B023
    row: Object = {
        "group": "",
        "resource": "configmaps",
        "namespace": "default",
        "operation": "apply",
        "reason": "Invalid",
    }
    row |= {"message": "no", "count": 1}
    far = str(10**17)

    def report(*errors: Object, applied: str = far) -> None:
        status = {"status": {"appliedRevision": applied, "errors": list(errors)}}
        mailboxes["one"].patch(f"{GROUP}/syncerconfigs/the-one/status", status)

    def synced(name: str) -> tuple[str, str]:
        found = condition(workload, name, "Synced")
        return str(found.get("reason", "")), str(found.get("message", ""))

    report({**row, "name": "a"})
    eventually(lambda: synced("a") == ("ObjectsFailing", "one: configmaps default/a: no"), "its own error")
    assert synced("b")[0] != "ObjectsFailing"
    report({**row, "namespace": "", "name": ""})
    for name in ("a", "b"):
        eventually(lambda: synced(name) == ("ObjectsFailing", "one: configmaps: no"), "one of the kind")  # noqa: B023
    # With as many errors as are told, its own may be missing.
    report(*({**row, "name": f"x{number}"} for number in range(50)))
    eventually(lambda: synced("a") == ("DestinationsSilent", "one") or synced("a")[0] == "InProgress", "it is not sure")
    report(applied="0")


@pytest.mark.long
def test_the_state_of_an_only_copy_is_reported_for_as_long_as_it_is_wanted(
    controllers: EdgeControllers, workload: Api, mailboxes: dict[str, Api]
) -> None:
    one, count = mailboxes["one"], "kubestellar.io/executing-count"
    define(workload, crd("crews", "harbour.example.com"))
    crews, head = "/apis/harbour.example.com/v1/namespaces/default/crews", {"apiVersion": "harbour.example.com/v1"}
    workload.post(crews, {**head, "kind": "Crew", "metadata": {"name": "a"}})
    place(workload, "crew", {"env": "one"}, {"apiGroup": "harbour.example.com"})
    eventually(lambda: one.send("GET", f"{crews}/a").code == 200, "the copy")
    one.patch(f"{crews}/a/status", {"status": {"replicas": 3}})

    def reported() -> tuple[str | None, Object]:
        found = workload.get(f"{crews}/a").json
        return found["metadata"]["annotations"].get(count), found.get("status") or {}

    workload.patch(f"{PLACEMENTS}/crew", {"spec": {"wantSingletonReportedState": True}})
    eventually(lambda: reported() == ("1", {"replicas": 3}), "the wish alone")
    one.patch(f"{crews}/a/status", {"status": {"replicas": 4}})
    eventually(lambda: reported() == ("1", {"replicas": 4}), "a change at the edge")
    assert count not in one.get(f"{crews}/a").json["metadata"]["annotations"]
    workload.patch(f"{PLACEMENTS}/crew", {"spec": {"locationSelectors": [{"matchLabels": {"fleet": "all"}}]}})
    eventually(lambda: reported() == ("2", {}), "two copies have no one status")
    workload.patch(f"{PLACEMENTS}/crew", {"spec": {"locationSelectors": [{"matchLabels": {"env": "one"}}]}})
    eventually(lambda: reported() == ("1", {"replicas": 4}), "one again")
    controllers.stop(signal.SIGKILL)
    workload.delete(f"{PLACEMENTS}/crew")
    controllers.start()
    eventually(lambda: reported() == (None, {}), "nobody wants it")
    eventually(lambda: one.send("GET", f"{crews}/a").code == 404, "the copy is gone")


def revisions(api: Api) -> dict[str, str]:
    """Revisions of all copies and lists in a mailbox, by path and name."""
    paths = ("/api/v1/configmaps", "/api/v1/namespaces", f"{GROUP}/syncerconfigs")
    items = [(path, each["metadata"]) for path in paths for each in api.get(path).json["items"]]
    return {f"{path} {each['name']}": each["resourceVersion"] for path, each in items}


@pytest.mark.long
@pytest.mark.parametrize("has_directory", [True, False], ids=["with its directory", "with an empty directory"])
def test_after_a_crash_nothing_is_written_twice_and_what_went_meanwhile_is_withdrawn(
    controllers: EdgeControllers, workload: Api, mailboxes: dict[str, Api], has_directory: bool
) -> None:
    one = mailboxes["one"]
    for name in ("stays", "goes"):
        workload.post(CONFIGMAPS, configmap(name, {"k": "1"}, labels={"crash": name}))
        labels = [{"matchLabels": {"crash": name}}]
        place(workload, name, {"env": "one"}, {**CONFIGMAPS_OF_ALL, "labelSelectors": labels})
    eventually(lambda: is_projected(workload, "stays") and is_projected(workload, "goes"), "the copies")
    before = revisions(one)
    controllers.stop(signal.SIGKILL)
    if not has_directory:
        shutil.rmtree(controllers.directory / "edge" / "store")
    controllers.start()
    workload.post(CONFIGMAPS, configmap("probe", {}, labels={"crash": "probe"}))
    labels = [{"matchLabels": {"crash": "probe"}}]
    place(workload, "probe", {"env": "two"}, {**CONFIGMAPS_OF_ALL, "labelSelectors": labels})
    eventually(lambda: is_projected(workload, "probe"), "it works")
    assert revisions(one) == before
    controllers.stop(signal.SIGKILL)
    if not has_directory:
        shutil.rmtree(controllers.directory / "edge" / "store")
    for name in ("goes", "probe"):
        workload.delete(f"{PLACEMENTS}/{name}")
    controllers.start()
    eventually(lambda: data(one, f"{CONFIGMAPS}/goes") is None, "withdrawn")
    # Nothing goes to this mailbox any more.
    eventually(lambda: data(mailboxes["two"], f"{CONFIGMAPS}/probe") is None, "withdrawn")
    assert data(one, f"{CONFIGMAPS}/stays") == {"k": "1"}


@pytest.mark.long
def test_copies_of_a_workspace_that_went_while_no_controller_ran_are_withdrawn(
    controllers: EdgeControllers, root: Api, mailboxes: dict[str, Api]
) -> None:
    one, gone = mailboxes["one"], new_workload(root)
    gone.post(CONFIGMAPS, configmap("orphan", {"k": "1"}))
    place(gone, "p", {"env": "one"}, CONFIGMAPS_OF_ALL)
    eventually(lambda: is_projected(gone, "p"), "the copy")
    controllers.stop()
    workspace = f"{WORKSPACES}/{gone.cluster.rpartition(':')[2]}"
    root.delete(workspace)
    eventually(lambda: root.send("GET", workspace).code == 404, "the workspace is gone")
    controllers.start()
    eventually(lambda: data(one, f"{CONFIGMAPS}/orphan") is None, "withdrawn")
    gone.close()


@pytest.mark.long
def test_what_changes_while_the_stream_is_down_is_copied_once_it_is_back(
    nats: ConfiguredNats, controllers: EdgeControllers, workload: Api, mailboxes: dict[str, Api]
) -> None:
    one = mailboxes["one"]
    workload.post(CONFIGMAPS, configmap("late", {"k": "1"}))
    place(workload, "p", {"env": "one"}, CONFIGMAPS_OF_ALL)
    eventually(lambda: data(one, f"{CONFIGMAPS}/late") == {"k": "1"}, "the copy")
    eventually(lambda: "[+]changes ok" in controllers.get("/readyz?verbose")[1], "changes are read")
    nats.stop()
    try:
        text = "[-]changes failed (not counted)"
        eventually(lambda: text in controllers.get("/readyz?verbose")[1], "it is reported")
        assert controllers.get("/readyz")[0] == 200, "and does not count"
        workload.patch(f"{CONFIGMAPS}/late", {"data": {"k": "2"}})
    finally:
        nats.start()
    eventually(lambda: data(one, f"{CONFIGMAPS}/late") == {"k": "2"}, "what was missed")
    eventually(lambda: "[+]changes ok" in controllers.get("/readyz?verbose")[1], "changes are read again")
