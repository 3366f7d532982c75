"""Kinds that count as broken, each broken and repaired at a real cluster: Pods, claims, Services, APIs, any other."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from atoll.machinery.meta.objects import Object
from harness.clients.api import crd, eventually
from integration.journeys.fleet import Edge, Side, namespace, placement
from integration.journeys.summaries import reasons, says

pytestmark = [pytest.mark.long, pytest.mark.timeout(3000)]

WHERE, REPORTS, GROUP, API = "mended", "kubestellar-report", "mended.example.com", "v1090.mended.example.com"
#: What stands for less than 300 s is on its way.
DUE_S = 4 * 300.0
SIZE = {"storage": "1Mi"}
MODES: Object = {"accessModes": ["ReadWriteOnce"]}


def volume(name: str) -> Object:
    spec = {**MODES, "capacity": SIZE, "hostPath": {"path": "/tmp"}}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


def claim(name: str) -> Object:
    """A claim of the volume of its name."""
    spec = {**MODES, "storageClassName": "", "volumeName": name, "resources": {"requests": SIZE}}
    head = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": WHERE}}
    return {**head, "spec": spec}


def api_service(**spec: object) -> Object:
    """An APIService; one without a service is what the cluster serves itself."""
    rest = {"group": GROUP, "version": "v1090", "groupPriorityMinimum": 360, "versionPriority": 42}
    head = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": API}}
    return {**head, "spec": {**rest, **spec}}


def definition() -> Object:
    """A kind whose status may have conditions."""
    found = crd("cogs", GROUP)
    for version in found["spec"]["versions"]:
        properties = version["schema"]["openAPIV3Schema"]["properties"]
        properties["status"]["x-kubernetes-preserve-unknown-fields"] = True
    return found


def placed() -> list[Object]:
    pod: Object = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": WHERE}}
    service: Object = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "b", "namespace": WHERE}}
    selectors: list[Object] = [{"namespaces": [WHERE]}, {"apiGroup": "apiregistration.k8s.io", "objectNames": [API]}]
    return [
        namespace(WHERE),
        {**pod, "spec": {"containers": [{"name": "main", "image": "example/main"}]}},
        {**service, "spec": {"type": "LoadBalancer", "selector": {"app": "a"}, "ports": [{"port": 80}]}},
        claim("lost"),
        claim("late"),
        api_service(service={"name": "nobody", "namespace": WHERE}),
        placement("mended", {"mended": "yes"}, *selectors),
    ]


def patch(edge: Edge, what: str, status: Object) -> None:
    """Let an object at the edge have a status."""
    words = ("-n", WHERE, "--subresource", "status", "--type", "merge", "-p", json.dumps({"status": status}))
    edge.ok("patch", what, *words)


def container(**state: object) -> Object:
    row = {"name": "main", "image": "x", "imageID": "", "ready": False, "restartCount": 7, "state": state}
    return {"containerStatuses": [row]}


def test_pods_claims_services_apis_and_others_are_broken_and_repaired(
    edge: Edge, workspace: Callable[[str], Side]
) -> None:
    here = workspace("wmw-mended")
    edge.label("mended=yes")
    edge.apply(volume("lost"))
    # An APIService is data there.
    here.ok("kubestellar", "view")
    here.apply(definition())
    here.ok("wait", "--for=condition=Established", f"crd/cogs.{GROUP}")
    cog = {"apiVersion": f"{GROUP}/v1", "kind": "Cog", "metadata": {"name": "c", "namespace": WHERE}}
    here.apply(*placed(), {**cog, "spec": {"colour": "red"}})
    here.ok("kubestellar", "view", "--off")
    edge.has("pod/a", "-n", WHERE, state="jsonpath={.status.phase}=Running")
    patch(edge, "pod/a", container(waiting={"reason": "ImagePullBackOff"}))
    edge.has("persistentvolumeclaim/lost", "-n", WHERE, state="jsonpath={.status.phase}=Bound")
    edge.ok("delete", "persistentvolume", "lost", "--wait=false")
    edge.ok("patch", "persistentvolume", "lost", "--type", "merge", "-p", '{"metadata": {"finalizers": null}}')
    edge.has(f"cogs.{GROUP}/c", "-n", WHERE)
    at = "2026-01-01T00:00:00Z"
    condition = {"type": "Ready", "status": "False", "reason": "Broken", "message": "m", "lastTransitionTime": at}
    patch(edge, f"cogs.{GROUP}/c", {"conditions": [condition]})
    says(here, "pods", "a", WHERE, "Waiting")
    says(here, "persistentvolumeclaims", "lost", WHERE, "Lost")
    says(here, "cogs", "c", WHERE, "NotReady")
    says(here, "apiservices", API, REPORTS, "NotAvailable")
    # Each is repaired.
    patch(edge, "pod/a", container(running={"startedAt": at}))
    edge.apply(volume("lost"))
    patch(edge, f"cogs.{GROUP}/c", {"conditions": [{**condition, "status": "True"}]})
    here.ok("kubestellar", "view")
    here.apply(api_service())
    here.ok("kubestellar", "view", "--off")
    says(here, "pods", "a", WHERE)
    says(here, "persistentvolumeclaims", "lost", WHERE)
    says(here, "cogs", "c", WHERE)
    says(here, "apiservices", API, REPORTS)
    # What may be on its way is broken once it stands for long.
    for resource, name, reason in (("services", "b", "NoIngress"), ("persistentvolumeclaims", "late", "Pending")):
        eventually(lambda: reasons(here, resource, name, WHERE) == [reason], reason, DUE_S)  # noqa: B023
    patch(edge, "service/b", {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}})
    edge.apply(volume("late"))
    says(here, "services", "b", WHERE)
    says(here, "persistentvolumeclaims", "late", WHERE)
    here.ok("delete", "edgeplacement", "mended")
