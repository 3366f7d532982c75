"""The life cycle of the objects of two real projects, with every kubectl: from the first apply to the last delete.

Definitions and examples go through client-side and server-side apply and migrations between them, through diff, edit,
patch, replace, scale and delete. Each test continues from the state of the test before it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from harness.clients.kubectl import Kubectl
from harness.clients.shell import Shell

pytestmark = pytest.mark.long

ISSUER = """
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: ours}
spec: {selfSigned: {}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: web, labels: {team: one}}
spec:
  secretName: web-tls
  dnsNames: [a.example.com, b.example.com]
  issuerRef: {name: ours, kind: Issuer}
"""


@pytest.fixture(scope="module")
def shell(kubectl: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A shell in its own workspace."""
    shell = Shell(tmp_path_factory.mktemp("shell"), kubectl)
    name = "life-" + re.sub(r"[^a-z0-9]", "", str(Path(kubectl.binary).parent))[-12:]
    shell.ok(f"kubectl create workspace {name} --enter")
    return shell


@pytest.fixture(scope="module")
def definitions(manifests: Path) -> str:
    """Arguments of kubectl: the definitions of both projects."""
    return f"-f {manifests}/cert-manager -f {manifests}/gateway-api"


def as_json(shell: Shell, line: str) -> Any:
    return json.loads(shell.ok(f"{line} -o json --show-managed-fields"))


def managers(obj: Any) -> list[tuple[str, str]]:
    return [(entry["manager"], entry["operation"]) for entry in obj["metadata"]["managedFields"]]


def given(line: str, text: str) -> str:
    """A command line that reads a manifest."""
    return f"{line} -f - <<'END'\n{text}END"


def editor(directory: Path, program: str) -> str:
    """An editor that makes one change to the file and exits."""
    path = directory / "editor"
    path.write_text(f'#!/bin/bash\nsed -i {program} "$1"\n')
    path.chmod(0o755)
    return f"EDITOR={path}"


def test_definitions_are_applied_by_the_server_without_a_difference_left(shell: Shell, definitions: str) -> None:
    told = shell.ok(f"kubectl apply --server-side {definitions}")
    assert told.count("serverside-applied\n") == len(told.splitlines()) >= 18
    assert "validatingadmissionpolicy.admissionregistration.k8s.io/" in told
    shell.ok("kubectl wait --for=condition=Established crd --all --timeout=60s")
    before = shell.ok("kubectl get crd -o jsonpath='{.items[*].metadata.resourceVersion}'")
    shell.ok(f"kubectl apply --server-side {definitions}")
    assert shell.ok("kubectl get crd -o jsonpath='{.items[*].metadata.resourceVersion}'") == before
    different = shell.run(f"kubectl diff --server-side {definitions}")
    assert (different.code, different.stdout) == (0, "")


def test_the_policy_is_stored_and_holds_nobody_up(shell: Shell) -> None:
    policies = as_json(shell, "kubectl get validatingadmissionpolicies,validatingadmissionpolicybindings")["items"]
    assert {policy["kind"] for policy in policies} == {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}


def test_examples_are_applied_by_the_client_and_come_out_unchanged(shell: Shell, manifests: Path) -> None:
    shell.ok(f"kubectl apply -f {manifests}/gateway-api/examples/basic-http.yaml")
    shell.ok(given("kubectl apply", ISSUER))
    # Lists of a Gateway are defaulted inside, which a merge patch of the client never takes for unchanged.
    shell.ok(f"kubectl apply -f {manifests}/gateway-api/examples/basic-http.yaml")
    again = shell.ok(given("kubectl apply", ISSUER))
    assert {line.rsplit(" ", 1)[1] for line in again.splitlines()} == {"unchanged"}
    certificate = as_json(shell, "kubectl get certificate web")
    assert managers(certificate) == [("kubectl-client-side-apply", "Update")]


def test_what_the_client_applied_the_server_goes_on_with(shell: Shell) -> None:
    changed = ISSUER.replace("b.example.com", "c.example.com").replace("team: one", "tier: two")
    told = shell.ok(given("kubectl apply --server-side", changed))
    assert told.count("serverside-applied") == 2
    certificate = as_json(shell, "kubectl get certificate web")
    assert certificate["spec"]["dnsNames"] == ["a.example.com", "c.example.com"]
    # The label that is no longer applied is removed, though it was set by client-side apply.
    assert certificate["metadata"]["labels"] == {"tier": "two"}
    # kubectl gives the annotation a manager of its own while it moves its fields.
    assert set(managers(certificate)) == {("kubectl", "Apply"), ("kubectl-last-applied", "Apply")}
    kept = json.loads(certificate["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"])
    assert kept["spec"]["dnsNames"] == ["a.example.com", "c.example.com"]


def test_the_client_may_go_back_to_its_own_apply(shell: Shell) -> None:
    told = shell.ok(given("kubectl apply", ISSUER))
    assert "certificate.cert-manager.io/web configured" in told
    certificate = as_json(shell, "kubectl get certificate web")
    assert certificate["metadata"]["labels"] == {"team": "one"}
    assert certificate["spec"]["dnsNames"] == ["a.example.com", "b.example.com"]


def test_another_manager_conflicts_field_by_field(shell: Shell) -> None:
    theirs = ISSUER.replace("web-tls", "other-tls").replace("b.example.com", "d.example.com")
    told = shell.refused(given("kubectl apply --server-side --field-manager=other", theirs))
    assert re.search(r"^error: Apply failed with 2 conflicts: conflicts with ", told)
    assert "- .spec.dnsNames" in told and "- .spec.secretName" in told
    shell.ok(given("kubectl apply --server-side --field-manager=other --force-conflicts", theirs))
    certificate = as_json(shell, "kubectl get certificate web")
    assert certificate["spec"]["secretName"] == "other-tls"
    owned = {e["manager"]: e["fieldsV1"].get("f:spec", {}) for e in certificate["metadata"]["managedFields"]}
    assert "f:secretName" in owned["other"] and "f:secretName" not in owned.get("kubectl-client-side-apply", {})


def test_custom_objects_are_patched_labelled_and_annotated(shell: Shell) -> None:
    shell.ok("""kubectl patch certificate web --type merge -p '{"spec":{"duration":"24h"}}'""")
    steps = (("test", "24h"), ("replace", "48h"))
    patch = json.dumps([{"op": op, "path": "/spec/duration", "value": value} for op, value in steps])
    shell.ok(f"kubectl patch certificate web --type json -p '{patch}'")
    assert as_json(shell, "kubectl get certificate web")["spec"]["duration"] == "48h"
    refused = shell.refused(f"kubectl patch certificate web --type json -p '{patch}'")
    assert "the server rejected our request due to an error in our request" in refused
    shell.ok("kubectl label certificate web team=two --overwrite && kubectl annotate certificate web note=x")
    assert as_json(shell, "kubectl get certificate web")["metadata"]["labels"]["team"] == "two"
    invalid = shell.refused("""kubectl patch gateway my-gateway --type merge -p '{"spec":{"gatewayClassName":5}}'""")
    assert "spec.gatewayClassName" in invalid


def test_definitions_and_objects_are_edited(shell: Shell, tmp_path: Path) -> None:
    edit = editor(tmp_path, "'s/secretName: other-tls/secretName: edited-tls/'")
    assert shell.ok(f"{edit} kubectl edit certificate web").endswith("edited\n")
    assert as_json(shell, "kubectl get certificate web")["spec"]["secretName"] == "edited-tls"
    wrong = editor(tmp_path, "'s/secretName: edited-tls/secretName: [1]/'")
    assert 'certificates.cert-manager.io "web" is invalid' in shell.refused(f"{wrong} kubectl edit certificate web")
    name = "certificates.cert-manager.io"
    more = editor(tmp_path, "'s/^    plural: certificates$/    plural: certificates\\n    shortNames: [cc]/'")
    shell.run(f"{more} kubectl edit crd {name}")
    assert as_json(shell, f"kubectl get crd {name}")["spec"]["names"]["plural"] == "certificates"


def test_objects_are_replaced_and_scaled_by_apply(shell: Shell) -> None:
    shell.ok("kubectl get certificate web -o json | sed 's/edited-tls/replaced-tls/' | kubectl replace -f -")
    assert as_json(shell, "kubectl get certificate web")["spec"]["secretName"] == "replaced-tls"
    shell.ok(given("kubectl replace --force", ISSUER))
    assert as_json(shell, "kubectl get certificate web")["spec"]["secretName"] == "web-tls"
    shell.ok("kubectl apply --server-side -f - <<'END'\n" + json.dumps(SCALED) + "\nEND")
    shell.ok("kubectl wait --for=condition=Established crd/fleets.ships.example.com --timeout=60s")
    fleet = "apiVersion: ships.example.com/v1\nkind: Fleet\nmetadata: {name: f}\nspec: {replicas: 1}\n"
    shell.ok(given("kubectl apply --server-side", fleet))
    assert shell.ok("kubectl scale fleet f --replicas=3").endswith("scaled\n")
    scaled = as_json(shell, "kubectl get fleet f")
    entry = next(each for each in scaled["metadata"]["managedFields"] if each.get("subresource") == "scale")
    assert (entry["apiVersion"], entry["fieldsV1"]) == ("ships.example.com/v1", {"f:spec": {"f:replicas": {}}})
    told = shell.refused(given("kubectl apply --server-side", fleet))
    assert 'with subresource "scale" using ships.example.com/v1: .spec.replicas' in told
    assert as_json(shell, "kubectl get fleet f --subresource=scale")["spec"]["replicas"] == 3


SCALED = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "fleets.ships.example.com"},
    "spec": {
        "group": "ships.example.com",
        "scope": "Namespaced",
        "names": {"plural": "fleets", "singular": "fleet", "kind": "Fleet"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {
                    "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
                },
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        },
                    }
                },
            }
        ],
    },
}


def test_a_wrong_manifest_is_refused_in_words(shell: Shell) -> None:
    wrong = ISSUER.replace("secretName: web-tls", "secretName: web-tls\n  nonsense: 1")
    assert 'unknown field "spec.nonsense"' in shell.refused(given("kubectl apply", wrong))
    told = shell.refused(given("kubectl apply --server-side", wrong))
    assert "; cert-manager.io/v1, Kind=Certificate): .spec.nonsense: field not declared in schema" in told


def test_all_of_it_is_deleted_and_gone(shell: Shell, definitions: str) -> None:
    shell.ok(given("kubectl delete --wait", ISSUER))
    assert "NotFound" in shell.refused("kubectl get certificate web")
    shell.ok(f"kubectl delete --timeout=60s {definitions}")
    shell.ok("kubectl delete crd --all --timeout=60s")
    assert shell.ok("kubectl get crd -o name") == ""
    shell.refused("kubectl get gateways")
