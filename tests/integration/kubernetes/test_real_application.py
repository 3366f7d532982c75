"""A real application of Deployments, Services and accounts with kubectl: applied, compared, pruned and deleted."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from harness.clients.api import Object
from harness.clients.kubectl import Kubectl
from harness.data.manifests import documents

#: kubectl asks for the OpenAPI of all groups, and sends some forty objects one after the other.
LONG_S = 180.0
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


def outcomes(output: str) -> set[str]:
    """The last words of the lines that kubectl prints for objects."""
    return {line.rpartition(" ")[2] for line in output.splitlines()}


def revision_of(kubectl: Kubectl, name: str) -> Object:
    """The ReplicaSet that a controller would make for a Deployment."""
    owner = json.loads(kubectl.ok("get", "deployment", name, "-o", "json"))
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name, "uid": owner["metadata"]["uid"]}
    annotations = {"deployment.kubernetes.io/revision": "1", "kubernetes.io/change-cause": "made by hand"}
    metadata: Object = {"name": f"{name}-1", "labels": {"app": name}, "annotations": annotations}
    metadata["ownerReferences"] = [{**reference, "controller": True}]
    spec = {"selector": owner["spec"]["selector"], "template": owner["spec"]["template"]}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata, "spec": spec}


def test_it_is_applied_twice_changed_pruned_and_deleted(kubectl: Kubectl, boutique: Path, tmp_path: Path) -> None:
    count = len(list(documents(boutique)))
    first = kubectl.ok("apply", "-f", str(boutique), timeout_s=LONG_S)
    assert outcomes(first) == {"created"} and len(first.splitlines()) == count
    assert outcomes(kubectl.ok("apply", "-f", str(boutique), timeout_s=LONG_S)) == {"unchanged"}
    assert kubectl.run("diff", "-f", str(boutique), timeout_s=LONG_S).code == 0
    changed = tmp_path / "changed.yaml"
    changed.write_text(
        re.sub(r"replicas: *\d+", "replicas: 4", boutique.read_text()).replace("port: 9555", "port: 9556")
    )
    difference = kubectl.run("diff", "-f", str(changed), timeout_s=LONG_S)
    assert difference.code == 1 and re.search(r"\+ .*port: 9556", difference.stdout)
    names = [each["metadata"]["name"] for each in documents(boutique) if each["kind"] == "Deployment"]
    assert kubectl.ok("get", "deployments", "-o", "name").split() == sorted(f"deployment.apps/{name}" for name in names)
    gone = kubectl.ok("delete", "-f", str(boutique), "--wait=false", timeout_s=LONG_S)
    assert len(gone.splitlines()) == count
    assert "No resources found" in kubectl.run("get", "deployments,services", "-l", "app=adservice").stderr


def test_it_is_applied_on_the_servers_side_and_what_is_left_out_is_pruned(
    kubectl: Kubectl, boutique: Path, tmp_path: Path
) -> None:
    found = [each for each in documents(boutique) if each["kind"] in ("Deployment", "Service")][:6]
    for each in found:
        each["metadata"].setdefault("labels", {})["part-of"] = "boutique"
    manifest = tmp_path / "part.yaml"
    manifest.write_text(yaml.safe_dump_all(found))
    server = ("apply", "--server-side", "-f", str(manifest))
    assert outcomes(kubectl.ok(*server, timeout_s=LONG_S)) == {"serverside-applied"}
    read = json.loads(kubectl.ok("get", "deployments", "-o", "json", "--show-managed-fields"))["items"][0]
    before = read["metadata"]["resourceVersion"]
    assert [each["operation"] for each in read["metadata"]["managedFields"]] == ["Apply"]
    kubectl.ok(*server, timeout_s=LONG_S)
    again = json.loads(kubectl.ok("get", "deployment", read["metadata"]["name"], "-o", "json"))
    assert again["metadata"]["resourceVersion"] == before
    # Client-side apply takes the fields over, and prunes by label what a later set does not have.
    kubectl.ok("apply", "-f", str(manifest), timeout_s=LONG_S)
    manifest.write_text(yaml.safe_dump_all(found[:-2]))
    pruned = kubectl.ok("apply", "-f", str(manifest), "--prune", "-l", "part-of=boutique", timeout_s=LONG_S)
    assert len([line for line in pruned.splitlines() if line.endswith(" pruned")]) == 2
    left = kubectl.ok("get", "deployments,services", "-l", "part-of=boutique", "-o", "name").split()
    assert len(left) == len(found) - 2


def test_what_kubectl_makes_and_changes_by_command(kubectl: Kubectl) -> None:
    kubectl.ok("create", "deployment", "web", "--image=web:1", "--port=80")
    assert "exposed" in kubectl.ok("expose", "deployment", "web", "--port=80", "--target-port=8080", "--type=NodePort")
    exposed = json.loads(kubectl.ok("get", "service", "web", "-o", "json"))["spec"]
    assert exposed["selector"] == {"app": "web"} and exposed["ports"][0]["nodePort"] >= 30000
    assert "image updated" in kubectl.ok("set", "image", "deployment/web", "web=web:2")
    assert "scaled" in kubectl.ok("scale", "--current-replicas=1", "--replicas=3", "deployment/web")
    assert "restarted" in kubectl.ok("rollout", "restart", "deployment/web")
    assert "paused" in kubectl.ok("rollout", "pause", "deployment/web")
    assert "resumed" in kubectl.ok("rollout", "resume", "deployment/web")
    assert "No rollout history found" in kubectl.ok("rollout", "history", "deployment/web")
    kubectl.ok("create", "-f", "-", stdin=json.dumps(revision_of(kubectl, "web")))
    history = kubectl.ok("rollout", "history", "deployment/web").splitlines()
    assert [line.split() for line in history[1:3]] == [["REVISION", "CHANGE-CAUSE"], ["1", "made", "by", "hand"]]
    assert "autoscaled" in kubectl.ok("autoscale", "deployment", "web", "--min=1", "--max=3", "--cpu=50%")
    kubectl.ok("create", "job", "once", "--image=web:1")
    kubectl.ok("create", "cronjob", "nightly", "--image=web:1", "--schedule=0 0 * * *")
    assert "created" in kubectl.ok("create", "job", "now", "--from=cronjob/nightly")
    kubectl.ok("create", "ingress", "web", "--rule=example.com/*=web:80")
    kubectl.ok("create", "poddisruptionbudget", "web", "--selector=app=web", "--min-available=1")
    kubectl.ok("create", "priorityclass", "high", "--value=1000")
    kubectl.ok("create", "service", "externalname", "far", "--external-name=example.com")
    described = kubectl.ok("describe", "deployment", "web")
    assert re.search(r"Replicas: +3 desired \| 0 updated", described)
    assert "Scaled" not in described
    assert "web" in kubectl.ok("describe", "service,ingress,hpa,pdb,cronjob,job")
    assert re.search(r"deployment\.apps/web +0/3", kubectl.ok("get", "all"))
