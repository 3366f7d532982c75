"""Mailboxes and destinations, as the controllers keep them: what appears, changes and goes with its cause."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from harness.clients.api import Api, Object, configmap, eventually
from harness.servers.edge_service import GROUP, EdgeControllers, an_object, location
from integration.edge.placed import is_whole

WORKSPACES = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
EXPORT = "/apis/apis.kcp.io/v1alpha2/apiexports/edge.kubestellar.io"
ENDPOINTS = "/apis/apis.kcp.io/v1alpha1/apiexportendpointslices/edge.kubestellar.io"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/edge:mailbox-controller"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
TARGETS, LOCATIONS, PLACEMENTS = (f"{GROUP}/{each}" for each in ("synctargets", "locations", "edgeplacements"))


@pytest.fixture
def inventory(root: Api) -> Iterator[Api]:
    """The workspace for inventories; what a test made in it is gone afterwards."""
    here = root.at("root:imw1")
    eventually(lambda: here.send("GET", TARGETS).code == 200, "the workspace is initialized")
    yield here
    for path in (TARGETS, LOCATIONS):
        here.delete(path)
    here.close()


@pytest.fixture
def workload(root: Api) -> Iterator[Api]:
    """The workspace for workloads; what a test made in it is gone afterwards."""
    here = root.at("root:wmw1")
    yield here
    here.delete(PLACEMENTS)
    here.close()


@pytest.fixture
def home(root: Api) -> Iterator[Api]:
    """The workspace of the service, in which mailboxes are."""
    here = root.at("root:espw")
    yield here
    here.close()


def target(api: Api, name: str, **spec: object) -> Object:
    """Create a SyncTarget with the label `id`; return it."""
    made: Object = api.post(TARGETS, an_object("SyncTarget", name, spec, id=name)).json
    return made


def mailbox_of(made: Object) -> str:
    return f"{made['metadata']['annotations']['kcp.io/cluster']}-mb-{made['metadata']['uid']}"


def is_ready(home: Api, name: str) -> bool:
    found = home.send("GET", f"{WORKSPACES}/{name}")
    return found.code == 200 and found.json["status"]["phase"] == "Ready"


def is_gone(home: Api, name: str) -> bool:
    return home.send("GET", f"{WORKSPACES}/{name}").code == 404


def place(api: Api, name: str, **labels: str) -> None:
    selected = [{"matchLabels": labels}]
    api.post(PLACEMENTS, an_object("EdgePlacement", name, {"locationSelectors": selected}))


def destinations(api: Api, name: str) -> list[tuple[str, str]] | None:
    """Locations and SyncTargets in the slice of a placement; None while there is none."""
    found = api.send("GET", f"{GROUP}/singleplacementslices/{name}")
    if found.code != 200:
        return None
    return [(each["locationName"], each["syncTargetName"]) for each in found.json["destinations"]]


def status(api: Api, name: str) -> Object:
    found: Object = api.get(f"{PLACEMENTS}/{name}").json.get("status", {})
    return found


def instances(inventory: Api, name: str) -> Object:
    found: Object = inventory.get(f"{LOCATIONS}/{name}").json.get("status", {})
    return found


def unresolved(found: Object) -> list[Object]:
    return [each for each in found.get("conditions", ()) if (each["type"], each["status"]) == ("Resolved", "False")]


def test_a_sync_target_has_a_mailbox_that_comes_back_and_goes_with_it(inventory: Api, home: Api, root: Api) -> None:
    made = target(inventory, "florin", cells={"foo": "bar"})
    name = mailbox_of(made)
    eventually(lambda: is_ready(home, name), "the mailbox")
    first = home.get(f"{WORKSPACES}/{name}").json
    annotations, kind = first["metadata"]["annotations"], {"name": "edge-mailbox", "path": "root:espw"}
    assert annotations["edge.kubestellar.io/sync-target-name"] == "florin"
    assert first["spec"]["type"] == kind
    inside = root.at(f"root:espw:{name}")
    eventually(lambda: is_whole(inside), "the-one is there")
    inside.delete(f"{GROUP}/syncerconfigs/the-one")
    eventually(lambda: is_whole(inside), "the-one is back")
    home.delete(f"{WORKSPACES}/{name}")

    def is_new() -> bool:
        found = home.send("GET", f"{WORKSPACES}/{name}")
        return found.code == 200 and found.json["spec"].get("cluster") not in {None, first["spec"]["cluster"]}

    eventually(is_new, "the mailbox comes back in a new logical cluster")
    eventually(lambda: is_whole(inside), "and is filled")
    inventory.delete(f"{TARGETS}/florin")
    again = target(inventory, "florin")
    eventually(lambda: is_gone(home, name), "the mailbox goes with its SyncTarget")
    assert mailbox_of(again) != name
    eventually(lambda: is_ready(home, mailbox_of(again)), "another SyncTarget has another mailbox")
    inside.close()


def test_a_syncers_lease_makes_its_target_healthy_and_without_it_the_target_is_not(
    inventory: Api, home: Api, root: Api
) -> None:
    name = mailbox_of(target(inventory, "heard"))
    eventually(lambda: is_ready(home, name), "the mailbox")
    inside = root.at(f"root:espw:{name}")
    eventually(lambda: is_whole(inside), "a heartbeat is told to a list that is there")
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
    inside.send("POST", "/api/v1/namespaces", namespace)
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    # Its clock is wrong by years.
    spec = {"holderIdentity": "pod", "renewTime": "2001-01-01T00:00:00.000000Z"}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "syncer"}, "spec": spec}
    inside.post(leases, lease)

    def health() -> list[str]:
        found = inventory.get(f"{TARGETS}/heard").json.get("status", {}).get("conditions", ())
        return [each["status"] for each in found if each["type"] in {"Ready", "HeartbeatHealthy"}]

    eventually(lambda: health() == ["True", "True"], "it is healthy")
    time = inventory.get(f"{TARGETS}/heard").json["status"]["lastSyncerHeartbeatTime"]
    config = inside.get(f"{GROUP}/syncerconfigs/the-one").json
    assert config["status"]["lastSyncerHeartbeatTime"] == time > "2020"
    inside.delete(f"{leases}/syncer")
    eventually(lambda: health() == ["False", "False"], "it is not healthy")
    inside.close()


def test_a_workspace_that_a_user_made_stays_whatever_its_name(inventory: Api, home: Api) -> None:
    kind = {"name": "edge-mailbox", "path": "root:espw"}
    head = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace"}
    home.post(WORKSPACES, {**head, "metadata": {"name": "a-mb-b"}, "spec": {"type": kind}})
    made = target(inventory, "later")
    eventually(lambda: is_ready(home, mailbox_of(made)), "a mailbox that is made later")
    inventory.delete(f"{TARGETS}/later")
    eventually(lambda: is_gone(home, mailbox_of(made)), "it goes")
    assert "deletionTimestamp" not in home.get(f"{WORKSPACES}/a-mb-b").json["metadata"]


@pytest.mark.long
def test_nothing_is_withdrawn_from_the_mailbox_of_a_target_that_goes(
    inventory: Api, workload: Api, home: Api, root: Api
) -> None:
    """A syncer that still reads it holds what its edge has."""
    names = ("leaving", "staying")
    made = {name: mailbox_of(target(inventory, name)) for name in names}
    for name in names:
        inventory.post(LOCATIONS, location(name, env="leaving"))
    workload.post(CONFIGMAPS, configmap("held", {"k": "1"}))
    tests = [{"apiGroup": "", "resources": ["configmaps"], "objectNames": ["held"]}]
    spec = {"locationSelectors": [{"matchLabels": {"env": "leaving"}}], "downsync": tests}
    workload.post(PLACEMENTS, an_object("EdgePlacement", "leaving", spec))
    boxes = {name: root.at(f"root:espw:{mailbox}") for name, mailbox in made.items()}

    def held(name: str) -> object:
        found = boxes[name].send("GET", f"{CONFIGMAPS}/held")
        return found.json["data"]["k"] if found.code == 200 else None

    eventually(lambda: [held(name) for name in names] == ["1", "1"], "the copies")
    # The mailbox stays for a while.
    rules = home.get(ROLE).json["rules"]
    kept = [{**each, "verbs": [verb for verb in each["verbs"] if verb != "delete"]} for each in rules]
    home.patch(ROLE, {"rules": kept})
    inventory.delete(f"{TARGETS}/leaving")
    eventually(lambda: destinations(workload, "leaving") == [("staying", "staying")], "the destination goes")
    workload.put(f"{CONFIGMAPS}/held", configmap("held", {"k": "2"}))
    eventually(lambda: held("staying") == "2", "the other follows")
    assert held("leaving") == "1"
    home.patch(ROLE, {"rules": rules})
    eventually(lambda: is_gone(home, made["leaving"]), "the mailbox goes")
    workload.delete(f"{CONFIGMAPS}/held")
    for api in boxes.values():
        api.close()


@pytest.mark.long
def test_mailboxes_and_destinations_stay_while_no_shard_is_named(
    controllers: EdgeControllers, inventory: Api, workload: Api, home: Api
) -> None:
    name = mailbox_of(target(inventory, "kept"))
    inventory.post(LOCATIONS, location("kept", env="kept"))
    place(workload, "kept", env="kept")
    eventually(lambda: destinations(workload, "kept") == [("kept", "kept")], "the destination")
    eventually(lambda: is_ready(home, name), "the mailbox")
    first = home.get(f"{WORKSPACES}/{name}").json
    skips = {"metadata": {"annotations": {"apiexports.apis.kcp.io/skip-endpointslice": ""}}}
    home.patch(EXPORT, skips)
    home.delete(ENDPOINTS)
    controllers.stop()
    controllers.start()
    eventually(lambda: f'"mailbox":"{name}","event":"mailbox of an inventory' in controllers.log(), "it is kept")
    home.patch(EXPORT, {"metadata": {"annotations": dict.fromkeys(skips["metadata"]["annotations"])}})
    probe = target(inventory, "probe")
    eventually(lambda: is_ready(home, mailbox_of(probe)), "the controllers work")
    last = home.get(f"{WORKSPACES}/{name}").json
    assert last["metadata"]["uid"] == first["metadata"]["uid"]
    assert "deletionTimestamp" not in last["metadata"]
    assert destinations(workload, "kept") == [("kept", "kept")]
    inventory.delete(f"{TARGETS}/kept")
    eventually(lambda: is_gone(home, name), "it goes with its SyncTarget")


def test_destinations_follow_labels_targets_and_drift(inventory: Api, workload: Api) -> None:
    for name in ("guilder", "florin"):
        target(inventory, name)
        inventory.post(LOCATIONS, location(name, env="prod"))
    place(workload, "follow", env="prod")
    both = [("florin", "florin"), ("guilder", "guilder")]
    eventually(lambda: destinations(workload, "follow") == both, "sorted destinations")
    eventually(lambda: status(workload, "follow").get("matchingLocationCount") == 2, "the count")
    assert status(workload, "follow")["specGeneration"] == 1
    # A Location may have seen its target after the placement has.
    eventually(lambda: instances(inventory, "florin") == {"instances": 1, "availableInstances": 1}, "it is counted")
    inventory.patch(f"{LOCATIONS}/florin", {"metadata": {"labels": {"env": "dev"}}})
    eventually(lambda: destinations(workload, "follow") == both[1:], "a relabelled Location drops out")
    inventory.patch(f"{TARGETS}/guilder", {"spec": {"unschedulable": True}})
    eventually(lambda: instances(inventory, "guilder").get("availableInstances") == 0, "none is available")
    inventory.patch(f"{LOCATIONS}/florin", {"metadata": {"labels": {"env": "prod"}}})
    eventually(lambda: destinations(workload, "follow") == both, "an unschedulable target keeps what it has")
    slice_path = f"{GROUP}/singleplacementslices/follow"
    workload.delete(slice_path)
    eventually(lambda: destinations(workload, "follow") == both[:1], "drift is reverted, without what it took away")
    inventory.patch(f"{TARGETS}/florin", {"spec": {"evictAfter": "2020-01-01T00:00:00Z"}})
    eventually(lambda: destinations(workload, "follow") == [], "an eviction that is due")
    workload.delete(f"{PLACEMENTS}/follow")
    eventually(lambda: destinations(workload, "follow") is None, "the slice goes with its placement")


def test_a_target_at_two_locations_is_one_destination_and_a_warning(inventory: Api, workload: Api) -> None:
    target(inventory, "shared")
    for name in ("b", "a"):
        inventory.post(LOCATIONS, location(name, "shared", env="twice"))
    place(workload, "twice", env="twice")
    eventually(lambda: destinations(workload, "twice") == [("a", "shared")], "the first by name")

    def warnings() -> list[str]:
        events = workload.get("/api/v1/namespaces/default/events").json["items"]
        return [each["message"] for each in events if each["involvedObject"]["name"] == "twice"]

    (text,) = eventually(warnings, "a warning")
    assert text.endswith("is at Locations a, b: the first counts")


def test_a_withdrawn_right_to_place_takes_the_destination(inventory: Api, workload: Api) -> None:
    target(inventory, "guarded")
    inventory.post(LOCATIONS, location("guarded", env="guarded"))
    place(workload, "guarded", env="guarded")
    eventually(lambda: destinations(workload, "guarded") == [("guarded", "guarded")], "granted by the type")
    granted = inventory.get(f"{BINDINGS}/edge-place").json
    inventory.delete(f"{BINDINGS}/edge-place")
    eventually(lambda: destinations(workload, "guarded") == [], "no destination without the right")
    place(workload, "nowhere", env="nowhere")
    eventually(lambda: status(workload, "nowhere").get("specGeneration") == 1, "a placement that selects nothing")
    eventually(lambda: said(workload, "guarded") == said(workload, "nowhere"), "both say the same")
    cluster = workload.get(f"{PLACEMENTS}/guarded").json["metadata"]["annotations"]["kcp.io/cluster"]
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": f"system:cluster:{cluster}"}]
    metadata = {"name": "edge-place"}
    inventory.post(BINDINGS, {**granted, "metadata": metadata, "subjects": subjects})
    eventually(lambda: destinations(workload, "guarded") == [("guarded", "guarded")], "granted to this workspace")
    inventory.put(
        f"{BINDINGS}/edge-place",
        {**inventory.get(f"{BINDINGS}/edge-place").json, "subjects": [{**subjects[0], "name": "system:cluster:x"}]},
    )
    eventually(lambda: destinations(workload, "guarded") == [], "granted to another workspace alone")
    inventory.put(
        f"{BINDINGS}/edge-place", {**inventory.get(f"{BINDINGS}/edge-place").json, "subjects": granted["subjects"]}
    )
    eventually(lambda: destinations(workload, "guarded") == [("guarded", "guarded")], "granted again")


def said(api: Api, name: str) -> tuple[object, ...]:
    """What the status of a placement says of Locations."""
    found = status(api, name)
    rows = [(each["type"], each["status"], each.get("message")) for each in found["conditions"]]
    return rows, found["matchingLocationCount"], found["destinations"]["total"]


def warnings_of(api: Api, name: str, reason: str) -> list[str]:
    """Messages of the Warnings about a placement."""
    found = api.get("/api/v1/namespaces/default/events?fieldSelector=type%3DWarning").json["items"]
    return [each["message"] for each in found if (each["involvedObject"]["name"], each["reason"]) == (name, reason)]


def test_an_invalid_placement_that_was_admitted_says_what_is_wrong_and_has_no_effect(
    inventory: Api, workload: Api
) -> None:
    target(inventory, "plain")
    inventory.post(LOCATIONS, location("plain", env="plain"))
    place(workload, "wrong", **{"a/b/c": "x"})
    (condition,) = eventually(lambda: unresolved(status(workload, "wrong")), "a reason")
    assert condition["reason"] == "Invalid"
    assert "a/b/c" in condition["message"]
    assert status(workload, "wrong")["matchingLocationCount"] == 0

    def error() -> object:
        found = workload.get(f"{PLACEMENTS}/wrong").json["metadata"].get("annotations", {})
        return found.get("validation-error.kubestellar.io/0")

    assert eventually(error, "the annotation") == condition["message"]
    eventually(lambda: warnings_of(workload, "wrong", "Invalid") == [condition["message"]], "an Event says it once")
    workload.patch(f"{PLACEMENTS}/wrong", {"spec": {"locationSelectors": [{"matchLabels": {"env": "plain"}}]}})
    eventually(lambda: destinations(workload, "wrong") == [("plain", "plain")], "it has an effect once it is right")
    eventually(lambda: error() is None, "nothing is wrong any more")


@pytest.mark.long
def test_after_a_crash_nothing_is_written_again(
    controllers: EdgeControllers, inventory: Api, workload: Api, home: Api
) -> None:
    made = target(inventory, "crash")
    inventory.post(LOCATIONS, location("crash", env="crash"))
    place(workload, "crash", env="crash")
    eventually(lambda: destinations(workload, "crash") == [("crash", "crash")], "the destination")
    eventually(lambda: status(workload, "crash").get("matchingLocationCount") == 1, "the status")
    eventually(lambda: is_ready(home, mailbox_of(made)), "the mailbox")

    controllers.stop(signal.SIGKILL)
    target(inventory, "meanwhile")
    inventory.delete(f"{TARGETS}/crash")
    inventory.post(LOCATIONS, location("meanwhile", env="meanwhile"))
    controllers.start()
    eventually(lambda: destinations(workload, "crash") == [], "what went meanwhile is gone")
    eventually(lambda: is_gone(home, mailbox_of(made)), "with its mailbox")
    eventually(lambda: inventory.get(f"{LOCATIONS}/meanwhile").json.get("status"), "what came meanwhile is seen")
    eventually(lambda: status(workload, "crash")["destinations"].get("silent") == 0, "the status is that of none")
    fence = target(inventory, "fence")
    eventually(lambda: is_ready(home, mailbox_of(fence)), "what came before is done")
    settled = eventually(
        lambda: (seen := revisions_of(workload, inventory)) == revisions_of(workload, inventory) and seen, "at rest"
    )
    controllers.stop(signal.SIGKILL)
    controllers.start()
    probe = target(inventory, "probe")
    eventually(lambda: is_ready(home, mailbox_of(probe)), "the controllers work")
    assert revisions_of(workload, inventory) == settled


def revisions_of(workload: Api, inventory: Api) -> list[tuple[str, str]]:
    """Names and revisions of everything that the where resolver writes."""
    found = [*workload.get(PLACEMENTS).json["items"], *workload.get(f"{GROUP}/singleplacementslices").json["items"]]
    found += inventory.get(LOCATIONS).json["items"]
    return sorted((each["metadata"]["name"], each["metadata"]["resourceVersion"]) for each in found)


def test_the_process_serves_health_to_everyone_and_metrics_to_nobody_else(controllers: EdgeControllers) -> None:
    assert controllers.get("/livez") == (200, "ok")
    lines = ["[+]ping ok", "[+]controllers ok", "[+]changes ok", "readyz check passed"]
    eventually(lambda: controllers.get("/readyz?verbose")[1].splitlines() == lines, "all checks pass")
    assert [controllers.get(path)[0] for path in ("/metrics", "/clusters/root/api", "/livez/none")] == [403, 404, 404]


def test_metrics_tell_lag_queues_applies_and_links_and_each_reconcile_is_a_line(
    controllers: EdgeControllers, inventory: Api, home: Api
) -> None:
    name = mailbox_of(target(inventory, "measured"))
    eventually(lambda: is_ready(home, name), "the mailbox")
    nothing_fails = "\natoll_edge_copies_failing 0.0\n", "\natoll_edge_mailboxes_incomplete 0.0\n"

    def at_rest() -> str:
        shown = controllers.metrics()
        return shown if all(each in shown for each in nothing_fails) else ""

    found = eventually(at_rest, "what earlier tests left behind is gone")
    for line in (
        'workqueue_depth{name="mailbox-controller"} ',
        'workqueue_work_duration_seconds_count{name="placement-translator-projection"} ',
        'workqueue_retries_total{name="where-resolver"} ',
        'atoll_edge_changes_pending{shard="root"} ',
        'atoll_edge_changes_connected{shard="root"} ',
        'atoll_edge_sync_targets{state="new"} ',
        "# TYPE atoll_edge_copy_writes_total counter",
        "# TYPE atoll_edge_copy_errors_total counter",
    ):
        assert f"\n{line}" in found, line
    assert name not in found and "measured" not in found

    def logged() -> list[str]:
        return [each for each in controllers.log().splitlines() if '"event":"reconcile"' in each and name in each]

    lines = eventually(logged, "its reconciles are logged")
    assert all('"controller":"mailbox-controller"' in each and '"duration_ms":' in each for each in lines)
