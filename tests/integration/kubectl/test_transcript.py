"""A session of kubectl commands, with every kubectl. Each test continues from the state of the test before it."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.clients.kubectl import Kubectl
from harness.clients.shell import Shell

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def shell(kubectl: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    return Shell(tmp_path_factory.mktemp("shell"), kubectl)


@pytest.fixture(scope="module")
def workspace(shell: Shell, kubectl: Kubectl) -> str:
    """`web` in an organization of this kubectl's own, entered; return the path of the organization."""
    name = "acme-" + re.sub(r"[^a-z0-9]", "", str(Path(kubectl.binary).parent))[-12:]
    told = shell.ok(f"kubectl create workspace {name} --enter && kubectl create workspace web --enter")
    assert f'Current workspace is "root:{name}:web"' in told
    return f"root:{name}:web"


@pytest.fixture(scope="module")
def server(shell: Shell, workspace: str) -> str:
    """The URL of the workspace, up to `/clusters/`."""
    url = shell.ok("kubectl config view --minify -o jsonpath='{.clusters[0].cluster.server}'")
    assert url.endswith(f"/clusters/{workspace}")
    return url.removesuffix(workspace)


def as_json(shell: Shell, line: str) -> Any:
    return json.loads(shell.ok(f"{line} -o json"))


@contextlib.contextmanager
def background(shell: Shell, line: str) -> Iterator[Any]:
    process = shell.start(line)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_configmap_is_created_read_and_watched(shell: Shell, workspace: str) -> None:
    assert shell.ok("kubectl create configmap c --from-literal=a=b") == "configmap/c created\n"
    assert "data:\n  a: b\n" in shell.ok("kubectl get configmap c -o yaml")
    # The server leaves the kind out of the items of a list; kubectl shows it.
    for form in ("yaml", "json"):
        shown = yaml.safe_load(shell.ok(f"kubectl get configmaps -o {form}"))["items"]
        assert {(item["apiVersion"], item["kind"]) for item in shown} == {("v1", "ConfigMap")}
    with background(shell, "kubectl get cm -w") as watching:
        lines = [watching.stdout.readline() for _ in range(3)]
        assert re.match(r"NAME +DATA +AGE\n", lines[0])
        assert {line.split()[0] for line in lines[1:]} == {"c", "kube-root-ca.crt"}
        shell.ok("kubectl create configmap seen")
        assert watching.stdout.readline().split()[:2] == ["seen", "0"]


def test_the_definitions_of_two_real_projects_are_applied(shell: Shell, workspace: str, manifests: Path) -> None:
    told = shell.ok(f"kubectl apply -f {manifests}/cert-manager -f {manifests}/gateway-api")
    created = re.findall(r"customresourcedefinition\.apiextensions\.k8s\.io/(\S+) created", told)
    assert {"certificates.cert-manager.io", "httproutes.gateway.networking.k8s.io"} <= set(created)
    assert len(created) >= 16
    shell.ok("kubectl wait --for=condition=Established crd --all --timeout=60s")
    again = shell.ok(f"kubectl apply -f {manifests}/cert-manager -f {manifests}/gateway-api")
    # The two admission policies hold a list that is defaulted, which no client-side apply takes for unchanged.
    lines = [line for line in again.splitlines() if line.startswith("customresourcedefinition")]
    assert {line.rsplit(" ", 1)[1] for line in lines} == {"unchanged"}


def test_their_examples_are_applied_and_shown_with_their_columns(shell: Shell, workspace: str, manifests: Path) -> None:
    told = shell.ok(f"kubectl apply -f {manifests}/gateway-api/examples/basic-http.yaml")
    assert "gateway.gateway.networking.k8s.io/my-gateway created" in told
    shown = shell.ok("kubectl get gateways,httproutes -o wide")
    assert re.search(r"^NAME +CLASS +ADDRESS +PROGRAMMED +AGE$", shown, re.MULTILINE), shown
    assert re.search(r"^gateway\S*/my-gateway +example +", shown, re.MULTILINE)
    assert re.search(r'^httproute\S*/http-app-1 +\["foo\.com"\]', shown, re.MULTILINE)


@pytest.mark.usefixtures("manifests")
def test_kinds_are_explained_and_listed(shell: Shell, workspace: str) -> None:
    told = shell.ok("kubectl explain httproute.spec.rules")
    assert re.search(r"^KIND: +HTTPRoute$", told, re.MULTILINE)
    assert re.search(r"^FIELD: rules <\[\]\w*Object>", told, re.MULTILINE) or "FIELD: rules <[]Object>" in told
    assert "backendRefs" in told
    assert "FIELD: data <map[string]string>" in shell.ok("kubectl explain configmap.data")
    listed = shell.ok("kubectl api-resources")
    for name in ("configmaps", "gateways", "certificates", "workspaces", "clusterroles"):
        assert re.search(rf"^{name} ", listed, re.MULTILINE), name
    assert "gateway.networking.k8s.io/v1" in shell.ok("kubectl api-versions")


@pytest.mark.usefixtures("manifests")
def test_openapi_is_there_in_the_raw(shell: Shell, workspace: str, server: str) -> None:
    """An older kubectl sends a raw path to the server's root, which lists the kinds of every workspace."""
    paths = json.loads(shell.ok("kubectl get --raw /openapi/v3"))["paths"]
    assert {"api/v1", "apis/apiextensions.k8s.io/v1"} <= set(paths)
    inside = f"kubectl get --raw /clusters/{workspace}/openapi/v3 --server={server.removesuffix('/clusters/')}"
    assert "apis/gateway.networking.k8s.io/v1" in json.loads(shell.ok(inside))["paths"]


def test_one_may_ask_who_one_is_and_what_one_may(shell: Shell, workspace: str) -> None:
    assert shell.ok("kubectl auth can-i '*' '*'") == "yes\n"
    who = shell.ok("kubectl auth whoami")
    assert re.search(r"^Username +kcp-admin$", who, re.MULTILINE)
    assert "workspace access not permitted" in shell.refused("kubectl auth can-i get configmaps --as nobody")
    robot = "system:serviceaccount:default:default"
    assert shell.run(f"kubectl auth can-i get secrets --as {robot}").stdout == "no - access denied\n"
    assert "*.*" in shell.ok("kubectl auth can-i --list")


def test_labels_and_annotations_are_set_changed_and_removed(shell: Shell, workspace: str) -> None:
    assert shell.ok("kubectl label cm c tier=one") == "configmap/c labeled\n"
    assert "already has a value" in shell.refused("kubectl label cm c tier=two")
    shell.ok("kubectl label cm c tier=two --overwrite")
    assert re.search(r"^c +\S+ +\S+ +two$", shell.ok("kubectl get cm -L tier"), re.MULTILINE)
    assert shell.ok("kubectl get cm -l tier=two -o name") == "configmap/c\n"
    assert shell.ok("kubectl annotate cm c note=hello") == "configmap/c annotated\n"
    shell.ok("kubectl label cm c tier- && kubectl annotate cm c note-")
    metadata = as_json(shell, "kubectl get cm c")["metadata"]
    assert "labels" not in metadata
    assert "note" not in metadata["annotations"]


@pytest.mark.usefixtures("manifests")
def test_an_object_is_edited_in_an_editor(shell: Shell, workspace: str, tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/bash\nsed -i 's/a: b$/a: edited/' \"$1\"\n")
    editor.chmod(0o755)
    assert shell.ok(f"EDITOR={editor} kubectl edit cm c") == "configmap/c edited\n"
    assert as_json(shell, "kubectl get cm c")["data"] == {"a": "edited"}
    route = tmp_path / "route"
    route.write_text("#!/bin/bash\nsed -i 's/foo.com/bar.com/' \"$1\"\n")
    route.chmod(0o755)
    assert shell.ok(f"EDITOR={route} kubectl edit httproute http-app-1").endswith("edited\n")
    assert as_json(shell, "kubectl get httproute http-app-1")["spec"]["hostnames"] == ["bar.com"]


@pytest.mark.usefixtures("manifests")
def test_the_three_kinds_of_patches_are_taken(shell: Shell, workspace: str) -> None:
    shell.ok("""kubectl patch cm c -p '{"data":{"s":"1"}}'""")
    shell.ok("""kubectl patch cm c --type merge -p '{"data":{"m":"1","a":null}}'""")
    shell.ok("""kubectl patch cm c --type json -p '[{"op":"add","path":"/data/j","value":"1"}]'""")
    assert as_json(shell, "kubectl get cm c")["data"] == {"s": "1", "m": "1", "j": "1"}
    assert "(no change)" in shell.ok("""kubectl patch cm c --type merge -p '{"data":{"m":"1"}}'""")
    refused = shell.refused("""kubectl patch httproute http-app-1 --type strategic -p '{"spec":{}}'""")
    assert "application/strategic-merge-patch+json is not supported" in refused


def test_server_side_apply_creates_conflicts_and_is_forced(shell: Shell, workspace: str) -> None:
    manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: s}}\ndata: {{k: {}}}\n"

    def apply(value: str, flags: str = "") -> str:
        return f"kubectl apply --server-side {flags} -f - <<'END'\n{manifest.format(value)}END"

    assert shell.ok(apply("one")) == "configmap/s serverside-applied\n"
    told = shell.refused(apply("two", "--field-manager=other"))
    assert told.startswith('error: Apply failed with 1 conflict: conflict with "kubectl": .data.k\n')
    assert "--force-conflicts" in told
    shell.ok(apply("two", "--field-manager=other --force-conflicts"))
    assert as_json(shell, "kubectl get cm s")["data"] == {"k": "two"}


def test_a_difference_is_shown_and_nothing_changed(shell: Shell, workspace: str) -> None:
    manifest = 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: d}\ndata: {k: "1"}\n'
    shell.ok(f"kubectl apply -f - <<'END'\n{manifest}END")
    same = shell.run(f"kubectl diff -f - <<'END'\n{manifest}END")
    assert (same.code, same.stdout) == (0, "")
    for flags in ("", "--server-side"):
        changed = manifest.replace('"1"', '"2"')
        other = shell.run(f"kubectl diff {flags} -f - <<'END'\n{changed}END")
        assert other.code == 1, other.stderr
        assert '-  k: "1"\n+  k: "2"\n' in other.stdout
    assert as_json(shell, "kubectl get cm d")["data"] == {"k": "1"}


def test_apply_tells_created_configured_and_unchanged(shell: Shell, workspace: str) -> None:
    def apply(data: str) -> str:
        text = f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: u}}\ndata: {data}\n"
        return shell.ok(f"kubectl apply -f - <<'END'\n{text}END")

    assert apply("{a: x, b: x}") == "configmap/u created\n"
    assert apply("{a: x, b: x}") == "configmap/u unchanged\n"
    assert apply("{a: z}") == "configmap/u configured\n"
    assert as_json(shell, "kubectl get cm u")["data"] == {"a": "z"}


SCALED = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: fleets.ships.example.com}
spec:
  group: ships.example.com
  scope: Namespaced
  names: {plural: fleets, singular: fleet, kind: Fleet}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {replicas: {type: integer}}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
"""


def test_a_custom_kind_with_a_scale_is_scaled(shell: Shell, workspace: str) -> None:
    shell.ok(f"kubectl apply -f - <<'END'\n{SCALED}END")
    shell.ok("kubectl wait --for=condition=Established crd/fleets.ships.example.com --timeout=60s")
    fleet = "apiVersion: ships.example.com/v1\nkind: Fleet\nmetadata: {name: f}\nspec: {replicas: 1}\n"
    shell.ok(f"kubectl apply -f - <<'END'\n{fleet}END")
    assert shell.ok("kubectl scale fleet f --replicas=3").endswith("scaled\n")
    assert as_json(shell, "kubectl get fleet f")["spec"]["replicas"] == 3
    assert "expected replicas" in shell.refused("kubectl scale fleet f --current-replicas=9 --replicas=4").lower()


def test_conditions_fields_and_deletions_are_waited_for(shell: Shell, workspace: str) -> None:
    with background(shell, "kubectl wait --for=jsonpath='{.data.ready}'=yes cm/c --timeout=60s") as waiting:
        shell.ok("""kubectl patch cm c --type merge -p '{"data":{"ready":"yes"}}'""")
        assert waiting.wait(60) == 0, waiting.stdout.read()
    status = """{"status":{"conditions":[{"type":"Sailing","status":"True"}]}}"""
    with background(shell, "kubectl wait --for=condition=Sailing fleet/f --timeout=60s") as waiting:
        shell.ok(f"kubectl patch fleet f --subresource=status --type merge -p '{status}'")
        assert waiting.wait(60) == 0, waiting.stdout.read()
    with background(shell, "kubectl wait --for=delete cm/u --timeout=60s") as waiting:
        shell.ok("kubectl delete cm u")
        assert waiting.wait(60) == 0, waiting.stdout.read()
    with background(shell, "kubectl wait --for=create cm/later --timeout=60s") as waiting:
        shell.ok("kubectl create cm later")
        assert waiting.wait(60) == 0, waiting.stdout.read()


def test_a_deletion_waits_for_its_end(shell: Shell, workspace: str) -> None:
    assert shell.ok("kubectl delete cm d --wait").startswith('configmap "d" deleted')
    assert "NotFound" in shell.refused("kubectl get cm d")
    shell.ok('kubectl create cm held && kubectl patch cm held -p \'{"metadata":{"finalizers":["example.com/h"]}}\'')
    with background(shell, "kubectl delete cm held --wait") as deleting:
        shell.ok("kubectl wait --for=jsonpath='{.metadata.deletionTimestamp}' cm/held --timeout=60s")
        assert deleting.poll() is None
        shell.ok('kubectl patch cm held --type merge -p \'{"metadata":{"finalizers":null}}\'')
        assert deleting.wait(60) == 0
    for cascade in ("foreground", "orphan", "background"):
        shell.ok(f"kubectl create cm x && kubectl delete cm x --cascade={cascade}")


def test_a_namespace_is_deleted_with_all_in_it(shell: Shell, workspace: str) -> None:
    shell.ok("kubectl create namespace n && kubectl create cm inside -n n && kubectl create secret generic s -n n")
    told = shell.ok("kubectl delete namespace n")
    assert told.startswith('namespace "n" deleted')
    assert "NotFound" in shell.refused("kubectl get namespace n")
    assert "inside" not in shell.ok("kubectl get cm -A")


def test_other_commands_of_every_day(shell: Shell, workspace: str) -> None:
    assert shell.ok("kubectl create cm dry --dry-run=server") == "configmap/dry created (server dry run)\n"
    assert "NotFound" in shell.refused("kubectl get cm dry")
    shell.ok("kubectl create sa robot && kubectl create role r --verb=get --resource=configmaps")
    shell.ok("kubectl create rolebinding rb --role=r --serviceaccount=default:robot")
    token = shell.ok("kubectl create token robot").strip()
    assert token.count(".") == 2
    assert shell.ok("kubectl auth can-i get cm --as system:serviceaccount:default:robot") == "yes\n"
    assert "Name:         c" in shell.ok("kubectl describe cm c")
    shell.ok("kubectl get cm c -o yaml | kubectl replace -f -")
    assert "kube-root-ca.crt" in shell.ok("kubectl get cm --chunk-size=1 --sort-by=.metadata.name")
    assert "Server Version: v1." in shell.ok("kubectl version")
    assert shell.ok("kubectl get events") is not None
    assert shell.ok("kubectl get --raw /readyz") == "ok"


def test_the_name_and_the_path_show_the_same_workspace_and_root_does_not_see_it(
    shell: Shell, workspace: str, server: str
) -> None:
    cluster = as_json(shell, "kubectl get logicalcluster cluster")["metadata"]["annotations"]["kcp.io/cluster"]
    for where in (cluster, workspace):
        assert shell.ok(f"kubectl --server={server}{where} get cm c -o name") == "configmap/c\n"
    uid = "-o jsonpath='{.metadata.uid}'"
    assert shell.ok(f"kubectl --server={server}{cluster} get cm c {uid}") == shell.ok(f"kubectl get cm c {uid}")
    assert "NotFound" in shell.refused(f"kubectl --server={server}root get cm c")
    assert "the server doesn't have a resource type" in shell.refused(f"kubectl --server={server}root get httproutes")
    assert "orbidden" in shell.refused(f"kubectl --server={server}root:nowhere get cm")


def test_the_workspace_goes_with_all_of_it(shell: Shell, workspace: str, server: str) -> None:
    parent, name = workspace.rsplit(":", 1)
    shell.ok(f"kubectl --server={server}{parent} delete workspace {name} --timeout=60s")
    assert "orbidden" in shell.refused("kubectl get cm")
