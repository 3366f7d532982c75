"""The edge service as `atoll edge-init` writes it: its API, its types, and what a second run changes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from harness.clients.api import Api, Object, eventually
from harness.clients.kubectl import Kubectl
from harness.servers.configured_nats import ConfiguredNats
from harness.servers.edge_service import GROUP, EdgeControllers, edge_init
from harness.servers.shard_process import ShardProcess

NOTHING, ONE = "(0 objects written)", "(1 objects written)"
EXPORT = "/apis/apis.kcp.io/v1alpha2/apiexports/edge.kubestellar.io"
ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/edge:where-resolver"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/edge-controllers"
WORKSPACES = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
EVERY = {"apiGroup": "", "resources": ["*"]}
SELECTORS = [{"matchLabels": {"env": "prod"}}]

#: kind, spec or replacements: the fields that are refused
REFUSED: list[tuple[str, str, object, list[str]]] = [
    ("edgeplacements", "spec", {"downsync": [{**EVERY, "resources": ["*", "a"]}]}, ["spec.downsync[0].resources"]),
    ("edgeplacements", "spec", {"downsync": [{**EVERY, "namespaces": ["a", "*"]}]}, ["spec.downsync[0].namespaces"]),
    ("edgeplacements", "spec", {"downsync": [{**EVERY, "objectNames": ["*", "*"]}]}, ["spec.downsync[0].objectNames"]),
    ("edgeplacements", "spec", {"downsync": [EVERY, {}]}, ["spec.downsync[1]"]),
    ("edgeplacements", "spec", {"downsync": [{"resources": ["*"], "labelSelectors": [{}]}]}, ["spec.downsync[0]"]),
    ("edgeplacements", "spec", {"upsync": [{"resources": ["*", "a"]}]}, ["spec.upsync[0].resources"]),
    (
        "edgeplacements",
        "spec",
        {"locationSelectors": [{"matchExpressions": [{"key": "a", "operator": "In"}]}]},
        ["spec.locationSelectors[0].matchExpressions[0].values"],
    ),
    (
        "edgeplacements",
        "spec",
        {"locationSelectors": [{"matchExpressions": [{"key": "a/b/c", "operator": "Is"}]}]},
        [f"spec.locationSelectors[0].matchExpressions[0].{field}" for field in ("key", "operator")],
    ),
    (
        "locations",
        "spec",
        {"resource": {"version": "v2alpha1", "resource": "pods"}, "instanceSelector": {"matchLabels": {"a": "-"}}},
        ["spec.resource.resource", "spec.instanceSelector.matchLabels.a"],
    ),
    (
        "namespaces/default/customizers",
        "replacements",
        [{"path": "$.a['b c'][0]..d", "value": "1"}, {"path": "$.a-b", "value": "1"}],
        ["replacements[1].path"],
    ),
]


def an_object(resource: str, **fields: object) -> Object:
    kinds = {"edgeplacements": "EdgePlacement", "locations": "Location", "customizers": "Customizer"}
    kind = kinds[resource.rpartition("/")[2]]
    return {"apiVersion": "edge.kubestellar.io/v2alpha1", "kind": kind, "metadata": {"name": "x"}, **fields}


def test_a_second_run_changes_nothing_and_puts_back_what_somebody_changed(
    edge: ShardProcess, root: Api, tmp_path: Path
) -> None:
    home, output = root.at("root:espw"), tmp_path / "edge.kubeconfig"
    assert NOTHING in edge_init(edge, output)
    first = output.read_bytes()
    role = home.get(ROLE).json
    home.put(ROLE, {**role, "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]})
    assert ONE in edge_init(edge, output)
    assert home.get(ROLE).json["rules"] == role["rules"]
    export = home.get(EXPORT).json
    home.put(EXPORT, {**export, "spec": {**export["spec"], "resources": export["spec"]["resources"][1:]}})
    assert ONE in edge_init(edge, output)
    assert home.get(EXPORT).json["spec"] == export["spec"]
    assert output.read_bytes() == first
    assert output.stat().st_mode & 0o777 == 0o600


@pytest.mark.long
def test_a_second_process_of_the_controllers_waits_until_the_first_is_gone(
    nats: ConfiguredNats, edge: ShardProcess, root: Api, controllers: EdgeControllers, tmp_path: Path
) -> None:
    home, flags = root.at("root:espw"), nats.flags("edge-0")
    second = EdgeControllers(tmp_path, controllers.kubeconfig, *flags)
    second.spawn()
    try:
        assert "[-]controllers failed: reason withheld" in second.get("/readyz?verbose")[1]
        holder = home.get(LEASE).json["spec"]["holderIdentity"]
        eventually(lambda: f"{holder} has the Lease edge-controllers and works" in second.log(), "it is told")
        assert controllers.get("/readyz")[0] == 200
        assert "[+]changes ok" in controllers.get("/readyz?verbose")[1]
        controllers.stop()
        eventually(lambda: second.get("/readyz")[0] == 200, "the second works")
        assert home.get(LEASE).json["spec"]["holderIdentity"] not in ("", holder)
    finally:
        second.stop()
        controllers.start()
    assert home.get(LEASE).json["spec"]["holderIdentity"] == holder
    home.close()


def test_a_workspace_of_another_type_gets_the_binding_once(edge: ShardProcess, root: Api, tmp_path: Path) -> None:
    kind = {"name": "universal", "path": "root"}
    wanted = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": "plain"}}
    root.post(WORKSPACES, {**wanted, "spec": {"type": kind}}, expect=201)
    output = tmp_path / "edge.kubeconfig"
    assert ONE in edge_init(edge, output, "--ensure-imw", "root:plain")
    assert NOTHING in edge_init(edge, output, "--ensure-imw", "root:plain")


def test_a_controller_has_its_own_rights_in_the_workspace_of_the_service(
    edge: ShardProcess, root: Api, tmp_path: Path
) -> None:
    edge_init(edge, tmp_path / "edge.kubeconfig")
    written = yaml.safe_load((tmp_path / "edge.kubeconfig").read_text())
    tokens = {user["name"]: user["user"]["token"] for user in written["users"]}
    assert [context["name"] for context in written["contexts"]] == [
        "mailbox-controller",
        "where-resolver",
        "placement-translator",
        "status-summarizer",
    ]
    where = Api(edge, "root:espw", token=tokens["where-resolver"])
    mailbox = Api(edge, "root:espw", token=tokens["mailbox-controller"])
    assert mailbox.get(WORKSPACES).code == 200
    for path in (WORKSPACES, "/api/v1/namespaces/edge/secrets", EXPORT):
        assert where.get(path, expect=403)
    assert where.at("root").get("/api/v1/secrets", expect=403)
    assert where.at("root:wmw1").get(f"{GROUP}/edgeplacements", expect=403)
    for api in (where, mailbox):
        api.close()


def test_a_workspace_of_the_type_of_mailboxes_has_the_api_and_no_child_workspaces(root: Api) -> None:
    kind = {"name": "edge-mailbox", "path": "root:espw"}
    wanted = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace"}
    box = {**wanted, "metadata": {"name": "box"}, "spec": {"type": kind}}
    home = root.at("root:espw")
    home.post(WORKSPACES, box)
    eventually(lambda: home.get(f"{WORKSPACES}/box").json["status"]["phase"] == "Ready", "the mailbox is ready")
    inside = root.at("root:espw:box")
    assert inside.get(f"{GROUP}/syncerconfigs").code == 200
    assert inside.get(WORKSPACES, expect=404)
    for api in (home, inside):
        api.close()


@pytest.mark.parametrize(("resource", "field", "value", "refused"), REFUSED)
def test_bad_input_is_refused_with_its_field(
    root: Api, resource: str, field: str, value: object, refused: list[str]
) -> None:
    here = root.at("root:wmw1")
    answer = here.post(f"{GROUP}/{resource}", an_object(resource, **{field: value}), expect=422).json
    # As in Kubernetes, a cause without a field says that rules were not evaluated where the schema refuses already.
    assert {cause["field"] for cause in answer["details"]["causes"]} - {"<nil>"} == set(refused)
    here.close()


def test_a_status_does_not_raise_the_generation(root: Api) -> None:
    here = root.at("root:wmw1")
    made = here.post(f"{GROUP}/edgeplacements", an_object("edgeplacements", spec={"downsync": [EVERY]})).json
    status = {"specGeneration": 1, "matchingLocationCount": 2, "objectCount": 3, "destinations": {"total": 2}}
    after = here.put(f"{GROUP}/edgeplacements/x/status", {**made, "status": status}).json
    assert (after["metadata"]["generation"], after["status"]) == (1, status)
    here.delete(f"{GROUP}/edgeplacements/x")
    here.close()


@pytest.mark.long
def test_kubectl_explains_lists_and_describes_placements(kubectl: Kubectl) -> None:
    assert "Whether the status that the one Location reports" in kubectl.ok("explain", "edgeplacement.spec")
    placement = an_object("edgeplacements", spec={"locationSelectors": SELECTORS, "downsync": [EVERY]})
    kubectl.ok("apply", "-f", "-", stdin=yaml.safe_dump(placement))
    lines = kubectl.ok("get", "epl").splitlines()
    assert lines[0].split() == ["NAME", "LOCATIONS", "OBJECTS", "DESTINATIONS", "UP-TO-DATE", "FAILING", "AGE"]
    assert "Location Selectors:" in kubectl.ok("describe", "epl", "x")
    kubectl.ok("delete", "epl", "x")
