"""Summaries of real clusters: sums over three of them, and kinds that are broken and repaired at one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from atoll.machinery.meta.objects import Object
from harness.clients.api import crd, eventually
from integration.journeys.fleet import WAIT_S, Edge, Side, deployment, namespace, placement
from integration.journeys.summaries import collector, is_reported, says, summary

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

FLEET = {"fleet": "all"}
AT_ONE = {"summarized": "yes"}


def test_a_collector_sums_over_three_clusters(fleet: list[Edge], workspace: Callable[[str], Side]) -> None:
    here = workspace("wmw-sums")
    fields = [
        {"name": "clusters", "type": "COUNT"},
        {"name": "available", "type": "SUM", "subject": "returned.status.availableReplicas"},
    ]
    target = [{"apiGroup": "apps", "resources": ["deployments"]}]
    here.apply(
        collector("replicas", target=target, combinedFields=fields),
        namespace("sums"),
        deployment("web", "sums"),
        placement("sums", FLEET, {"namespaces": ["sums"]}),
    )

    def row() -> list[str]:
        tables = summary(here, "deployments", "web", "sums").get("results") or [{"rows": []}]
        return [each.get("float", "") for row in tables[0].get("rows") or () for each in row["columns"]]

    eventually(lambda: row() == ["3", "3"], "one replica in each of three", WAIT_S)
    is_reported(here, "deployments", "web", "sums", 3)
    here.ok("scale", "deployment", "web", "-n", "sums", "--replicas", "2")
    eventually(lambda: row() == ["3", "6"], "two in each", WAIT_S)
    says(here, "deployments", "web", "sums")
    here.ok("delete", "edgeplacement", "sums")


def pods_of(kind: str, name: str, where: str, **spec: object) -> Object:
    """An object of batch or apps that makes Pods."""
    version = "batch/v1" if kind == "Job" else "apps/v1"
    labels = {"app": name}
    pod = {"containers": [{"name": "main", "image": "example/main"}], "restartPolicy": "Never"}
    if kind != "Job":
        pod["restartPolicy"] = "Always"
        spec = {"selector": {"matchLabels": labels}, **spec}
    template = {"metadata": {"labels": labels}, "spec": pod}
    head = {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": where}}
    return {**head, "spec": {**spec, "template": template}}


def test_what_makes_pods_is_broken_without_room_and_sound_with_it(edge: Edge, workspace: Callable[[str], Side]) -> None:
    here, where = workspace("wmw-room"), "room"
    edge.label("summarized=yes")
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none", "namespace": where}}
    edge.apply(namespace(where), {**quota, "spec": {"hard": {"pods": "0"}}})
    edge.has("resourcequota/none", "-n", where, state="jsonpath={.status.hard.pods}=0")
    kinds = {
        "deployments": pods_of("Deployment", "a", where, replicas=1),
        "replicasets": pods_of("ReplicaSet", "b", where, replicas=1),
        "statefulsets": pods_of("StatefulSet", "c", where, replicas=1, serviceName="c"),
        "daemonsets": pods_of("DaemonSet", "d", where),
    }
    job = pods_of("Job", "e", where, activeDeadlineSeconds=1)
    here.apply(namespace(where), *kinds.values(), job, placement("room", AT_ONE, {"namespaces": [where]}))
    for resource, obj in kinds.items():
        says(here, resource, obj["metadata"]["name"], where, "Unavailable")
    says(here, "jobs", "e", where, "Failed")
    edge.ok("delete", "resourcequota", "none", "-n", where)
    # Their controllers try again after a while, or when they change.
    for resource, obj in kinds.items():
        name = obj["metadata"]["name"]
        edge.ok("annotate", resource, name, "-n", where, "example.com/again=yes")
        says(here, resource, name, where)
    here.ok("delete", "job", "e", "-n", where)
    here.apply(pods_of("Job", "e", where))
    says(here, "jobs", "e", where)
    here.ok("delete", "edgeplacement", "room")


def test_definitions_and_namespaces_are_broken_as_the_syncer_reports(
    edge: Edge, workspace: Callable[[str], Side]
) -> None:
    here, group, reports = workspace("wmw-ends"), "ends.example.com", "kubestellar-report"
    edge.label("summarized=yes")
    mine, theirs = crd("cogs", group), crd("wheels", group)
    for each in (mine, theirs):
        each["spec"]["names"]["shortNames"] = ["endling"]
    edge.apply(theirs, {**namespace("ends"), "metadata": {"name": "ends", "finalizers": ["example.com/held"]}})
    here.apply(
        namespace("ends"),
        mine,
        placement(
            "ends",
            AT_ONE,
            {"apiGroup": "", "resources": ["namespaces"], "objectNames": ["ends"]},
            {"apiGroup": "apiextensions.k8s.io", "objectNames": [f"cogs.{group}"]},
        ),
    )
    says(here, "customresourcedefinitions", f"cogs.{group}", reports, "NamesNotAccepted")
    edge.ok("delete", "crd", f"wheels.{group}")
    says(here, "customresourcedefinitions", f"cogs.{group}", reports)
    is_reported(here, "namespaces", "ends", reports)
    edge.ok("delete", "namespace", "ends", "--wait=false")
    says(here, "namespaces", "ends", reports, "Terminating")
    edge.ok("patch", "namespace", "ends", "--type", "merge", "-p", '{"metadata": {"finalizers": null}}')
    says(here, "namespaces", "ends", reports)
    here.ok("delete", "edgeplacement", "ends")
