"""What a real cluster makes of placed objects, as their summaries tell it: Pods, EndpointSlices, volumes."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from atoll.machinery.meta.objects import Object
from harness.clients.api import eventually
from integration.journeys.fleet import WAIT_S, Edge, Side, deployment, namespace, placement
from integration.journeys.summaries import collector, summary

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

WHERE = "many"
REPLICAS, CRASHING = 500, 7


def asks(name: str, of: tuple[str, str], **rule: object) -> Object:
    """A collector that asks for what belongs to objects of a kind."""
    return collector(name, target=[{"apiGroup": of[0], "resources": [of[1]]}], associated=[rule])


def numbers(side: Side, resource: str, name: str) -> dict[tuple[str, str, str], int]:
    """Numbers of what belongs to an object, by kind, phase and reason."""
    rows = summary(side, resource, name, WHERE).get("associated") or ()
    return {(each["resource"], each["phase"], each["reason"]): each["count"] for each in rows}


def shows(side: Side, resource: str, name: str, expected: dict[tuple[str, str, str], int]) -> None:
    """Wait until a summary has these numbers."""
    eventually(lambda: numbers(side, resource, name) == expected, f"{resource} {name}: {expected}", WAIT_S)


def broken(side: Side, resource: str, name: str) -> list[tuple[str, str, str]]:
    """Kind, name and reason of what a summary lists."""
    rows = summary(side, resource, name, WHERE).get("brokenObjects") or ()
    return sorted((each["kind"], each["name"], each["reason"]) for each in rows)


def set_state(edge: Edge, pod: str, **state: object) -> None:
    """Let the container of a Pod be in a state."""
    row = {"name": "httpd", "image": "x", "imageID": "", "ready": False, "restartCount": 7, "state": state}
    body = json.dumps({"status": {"containerStatuses": [row]}})
    edge.ok("patch", pod, "-n", WHERE, "--subresource", "status", "--type", "merge", "-p", body)


def test_seven_pods_of_five_hundred_that_crash_are_named_until_they_run(
    edge: Edge, workspace: Callable[[str], Side]
) -> None:
    here = workspace("wmw-many")
    edge.label("associated=yes")
    through = [{"apiGroup": "apps", "resource": "replicasets"}]
    fields = [{"name": "node", "path": "$.spec.nodeName"}]
    here.apply(
        asks("pods", ("apps", "deployments"), resource="pods", owners=through, fields=fields),
        namespace(WHERE),
        deployment("web", WHERE, replicas=REPLICAS),
        placement("many", {"associated": "yes"}, {"namespaces": [WHERE]}),
    )
    shows(here, "deployments", "web", {("pods", "Running", ""): REPLICAS})
    crashing = sorted(edge.names("pods", "-n", WHERE))[::70][:CRASHING]
    assert len(crashing) == CRASHING
    for each in crashing:
        set_state(edge, each, waiting={"reason": "CrashLoopBackOff"})
    expected = [("Pod", each.partition("/")[2], "Waiting") for each in crashing]
    eventually(lambda: broken(here, "deployments", "web") == expected, "they are named", WAIT_S)
    rest = REPLICAS - CRASHING
    shows(here, "deployments", "web", {("pods", "Running", ""): rest, ("pods", "Running", "Waiting"): CRASHING})
    found = summary(here, "deployments", "web", WHERE)
    assert found["counts"]["broken"] == 0, "the Deployment itself has all its replicas"
    assert found["brokenObjects"][0]["message"] == "httpd: CrashLoopBackOff (node=node-1)"
    head, row = (line.split() for line in here.ok("atoll", "edge").splitlines())
    assert row[head.index("BROKEN")] == str(CRASHING)
    for each in crashing:
        set_state(edge, each, running={"startedAt": "2026-01-01T00:00:00Z"})
    eventually(lambda: broken(here, "deployments", "web") == [], "nothing is named any more", WAIT_S)
    shows(here, "deployments", "web", {("pods", "Running", ""): REPLICAS})
    here.ok("scale", "deployment", "web", "-n", WHERE, "--replicas", "1")
    shows(here, "deployments", "web", {("pods", "Running", ""): 1})
    here.ok("delete", "statuscollector", "pods")
    eventually(lambda: numbers(here, "deployments", "web") == {}, "nobody asks any more", WAIT_S)
    eventually(lambda: edge.copies("associatedstates", "-A")["items"] == [], "no state is left", WAIT_S)
    here.ok("delete", "edgeplacement", "many")


def test_pods_of_jobs_slices_of_services_and_volumes_of_claims(edge: Edge, workspace: Callable[[str], Side]) -> None:
    here = workspace("wmw-kinds")
    edge.label("associated=yes")
    size = {"storage": "1Mi"}
    volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "disk"}}
    modes = {"accessModes": ["ReadWriteOnce"]}
    edge.apply({**volume, "spec": {**modes, "capacity": size, "hostPath": {"path": "/tmp"}}})
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data", "namespace": WHERE}}
    spec = {**modes, "storageClassName": "", "volumeName": "disk", "resources": {"requests": size}}
    pod = {"containers": [{"name": "main", "image": "example/main"}], "restartPolicy": "Never"}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "count", "namespace": WHERE}}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": WHERE}}
    here.apply(
        asks("jobs", ("batch", "jobs"), resource="pods"),
        asks(
            "services",
            ("", "services"),
            apiGroup="discovery.k8s.io",
            resource="endpointslices",
            label="kubernetes.io/service-name",
        ),
        asks("claims", ("", "persistentvolumeclaims"), resource="persistentvolumes", field="$.spec.volumeName"),
        namespace(WHERE),
        {**claim, "spec": spec},
        {**job, "spec": {"template": {"spec": pod}, "completions": 3, "parallelism": 3}},
        {**service, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}},
        placement("kinds", {"associated": "yes"}, {"namespaces": [WHERE]}),
    )
    shows(here, "jobs", "count", {("pods", "Running", ""): 3})
    shows(here, "services", "web", {("endpointslices.discovery.k8s.io", "", ""): 1})
    shows(here, "persistentvolumeclaims", "data", {("persistentvolumes", "Bound", ""): 1})
    here.ok("delete", "edgeplacement", "kinds")
    eventually(lambda: edge.names("pods", "-n", WHERE) == [], "the Pods go with their Job", WAIT_S)


def test_the_first_pods_come_whole_into_the_mailbox_and_go_with_their_deployment(
    edge: Edge, workspace: Callable[[str], Side]
) -> None:
    here = workspace("wmw-copies")
    edge.label("associated=yes")
    through = [{"apiGroup": "apps", "resource": "replicasets"}]
    here.apply(
        asks("copies", ("apps", "deployments"), resource="pods", owners=through, copies=True, maxObjects=2),
        namespace(WHERE),
        deployment("web", WHERE, replicas=3),
        placement("copies", {"associated": "yes"}, {"namespaces": [WHERE]}),
    )

    def copies() -> dict[str, str]:
        """Phases of the Pods in the mailbox that belong to the Deployment."""
        found = edge.copies("pods", "-n", WHERE)["items"]
        marks = {each["metadata"]["annotations"].get("edge.kubestellar.io/associated-with") for each in found}
        assert marks <= {f"Deployment/{WHERE}/web"}
        return {f"pod/{each['metadata']['name']}": each.get("status", {}).get("phase", "") for each in found}

    def has_first() -> bool:
        pods = sorted(edge.names("pods", "-n", WHERE))
        return len(pods) == 3 and copies() == dict.fromkeys(pods[:2], "Running")

    eventually(has_first, "two of three Pods are in the mailbox", WAIT_S)
    here.ok("delete", "edgeplacement", "copies")
    eventually(lambda: copies() == {}, "they go with the Deployment", WAIT_S)
