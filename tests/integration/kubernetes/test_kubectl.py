"""kubectl in a workspace of type `kubernetes`: create, get, scale, patch, apply, explain, delete as in any cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.clients.api import Object
from harness.clients.kubectl import Kubectl


def test_a_deployment_lives_as_in_any_cluster(kubectl: Kubectl, tmp_path: Path) -> None:
    assert (
        kubectl.ok("create", "deployment", "web", "--image=nginx:1", "--replicas=2") == "deployment.apps/web created\n"
    )
    wide = kubectl.ok("get", "deploy", "-o", "wide").splitlines()
    assert wide[0].split() == ["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE", "CONTAINERS", "IMAGES", "SELECTOR"]
    assert wide[1].split()[:4] + wide[1].split()[5:] == ["web", "0/2", "0", "0", "nginx", "nginx:1", "app=web"]
    assert "scaled" in kubectl.ok("scale", "deployment/web", "--replicas=3")
    scale = json.loads(kubectl.ok("get", "deployment/web", "--subresource=scale", "-o", "json"))
    assert (scale["spec"]["replicas"], scale["status"]["selector"]) == (3, "app=web")
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "side:1"}]}}}}
    kubectl.ok("patch", "deployment", "web", "-p", json.dumps(patch))
    kubectl.ok("set", "image", "deployment/web", "nginx=nginx:2")
    read = json.loads(kubectl.ok("get", "deployment", "web", "-o", "json"))
    images = {each["name"]: each["image"] for each in read["spec"]["template"]["spec"]["containers"]}
    assert images == {"nginx": "nginx:2", "side": "side:1"}
    assert read["metadata"]["generation"] == 4
    kubectl.ok("autoscale", "deployment/web", "--max=5", "--cpu=60%")
    assert "cpu: <unknown>/60%" in kubectl.ok("get", "hpa")
    everything = kubectl.ok("get", "all")
    assert "deployment.apps/web" in everything
    assert "horizontalpodautoscaler.autoscaling/web" in everything
    assert "deleted" in kubectl.ok("delete", "deployment", "web")
    assert "No resources found" in kubectl.run("get", "deployments").stderr


@pytest.mark.long
def test_what_is_applied_twice_is_unchanged(kubectl: Kubectl, tmp_path: Path) -> None:
    made = kubectl.ok("create", "deployment", "web", "--image=nginx:1", "--dry-run=client", "-o", "yaml")
    manifest = tmp_path / "web.yaml"
    manifest.write_text(made)
    assert "created" in kubectl.ok("apply", "-f", str(manifest))
    assert "unchanged" in kubectl.ok("apply", "-f", str(manifest))
    assert "serverside-applied" in kubectl.ok("apply", "--server-side", "--force-conflicts", "-f", str(manifest))
    assert kubectl.run("diff", "-f", str(manifest)).code == 0


def test_kubectl_explains_and_validates_by_the_published_schema(kubectl: Kubectl, tmp_path: Path) -> None:
    told = kubectl.ok("explain", "deployment.spec.template.spec.containers.ports")
    assert "GROUP:      apps" in told
    assert "containerPort\t<integer> -required-" in told
    manifest = tmp_path / "wrong.yaml"
    made = kubectl.ok("create", "deployment", "web", "--image=nginx:1", "--dry-run=client", "-o", "yaml")
    manifest.write_text(made.replace("replicas: 1", "replicaz: 1"))
    assert 'unknown field "spec.replicaz"' in kubectl.run("apply", "-f", str(manifest)).stderr


@pytest.mark.long
@pytest.mark.parametrize("command", [("logs", "p"), ("exec", "p", "--", "ls"), ("port-forward", "p", "8080:80")])
def test_what_needs_nodes_is_not_found_and_says_so(kubectl: Kubectl, command: tuple[str, ...]) -> None:
    kubectl.ok("create", "-f", "-", stdin=json.dumps(POD))
    pod = json.loads(kubectl.ok("get", "pod", "p", "-o", "json"))
    pod["status"]["phase"] = "Running"
    kubectl.ok("replace", "--subresource=status", "-f", "-", stdin=json.dumps(pod))
    assert "there are no nodes" in kubectl.run(*command).stderr


POD: Object = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "c", "image": "c:1"}]},
}


@pytest.mark.long
def test_a_stored_node_is_cordoned_tainted_and_drained(kubectl: Kubectl) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "berth"}}
    pod = {**POD, "spec": {**POD["spec"], "nodeName": "berth"}}
    kubectl.ok("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": [node, pod]}))
    assert "cordoned" in kubectl.ok("cordon", "berth")
    assert "tainted" in kubectl.ok("taint", "node", "berth", "a=b:NoSchedule")
    assert "declare no controller" in kubectl.run("drain", "berth", "--timeout=5s").stderr
    drained = kubectl.ok("drain", "berth", "--force", "--grace-period=0", "--timeout=20s")
    assert "pod/p deleted" in drained and "node/berth drained" in drained
    spec = json.loads(kubectl.ok("get", "node", "berth", "-o", "json"))["spec"]
    assert spec["unschedulable"] is True
    assert "b" in {each.get("value") for each in spec["taints"]}


@pytest.mark.long
def test_a_rollout_is_undone_by_the_revisions_that_a_controller_left(kubectl: Kubectl) -> None:
    kubectl.ok("create", "deployment", "web", "--image=web:1")
    owner = json.loads(kubectl.ok("get", "deployment", "web", "-o", "json"))
    sets = [revision(owner, number) for number in (1, 2)]
    kubectl.ok("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": sets}))
    kubectl.ok("set", "image", "deployment/web", "web=web:3")
    assert "rolled back" in kubectl.ok("rollout", "undo", "deployment/web", "--to-revision=1")
    undone = json.loads(kubectl.ok("get", "deployment", "web", "-o", "json"))["spec"]["template"]
    assert (undone["spec"]["containers"][0]["image"], undone["metadata"]["labels"]) == ("web:1", {"app": "web"})
    assert (
        "unable to find specified revision 7"
        in kubectl.run("rollout", "undo", "deployment/web", "--to-revision=7").stderr
    )
    assert "Metrics API not available" in kubectl.run("top", "pods").stderr


def revision(owner: Object, number: int) -> Object:
    """The ReplicaSet that a controller would have made for an image of a Deployment."""
    hashed = {"pod-template-hash": f"h{number}"}
    labels = {**owner["spec"]["selector"]["matchLabels"], **hashed}
    containers = [{"name": "web", "image": f"web:{number}"}]
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": owner["metadata"]["uid"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"web-{number}",
            "labels": labels,
            "annotations": {"deployment.kubernetes.io/revision": str(number)},
            "ownerReferences": [{**reference, "controller": True}],
        },
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
        },
    }
