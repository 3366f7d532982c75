"""`kubectl kubestellar`: inventories, workspaces for workloads and registration, as people type them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from atoll.cli.kubectl import ws
from atoll.cli.kubectl.kubestellar import main, registration
from harness.clients.api import Api, Object, eventually
from harness.clients.kubectl import Kubectl, Result
from harness.servers.edge_service import GROUP
from harness.servers.shard_process import ShardProcess

APIS = "/apis/apis.kcp.io/v1alpha2"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
TARGETS, LOCATIONS = f"{GROUP}/synctargets", f"{GROUP}/locations"
WORKSPACES = "/apis/tenancy.kcp.io/v1alpha1/workspaces"


class Plugin:
    """The plug-in in this process, with a kubeconfig whose current workspace is root:wmw1."""

    def __init__(self, kubeconfig: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.kubeconfig, self._capsys = kubeconfig, capsys
        self.ws(":root:wmw1")

    def run(self, *words: str) -> Result:
        self._capsys.readouterr()
        try:
            code = main.dispatch([*words, "--kubeconfig", str(self.kubeconfig)])
        except SystemExit as error:
            code = int(str(error.code))
        return Result(code, *self._capsys.readouterr())

    def ok(self, *words: str) -> str:
        result = self.run(*words)
        assert result.code == 0, result.stderr
        return result.stdout

    def ws(self, path: str) -> None:
        assert ws.dispatch([path, "--kubeconfig", str(self.kubeconfig)]) == 0


@pytest.fixture
def plugin(edge: ShardProcess, root: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Plugin]:
    """What a test made in the inventory is gone afterwards."""
    kubeconfig = tmp_path / "plugin.kubeconfig"
    kubeconfig.write_bytes(edge.kubeconfig.read_bytes())
    yield Plugin(kubeconfig, capsys)
    for path in (TARGETS, LOCATIONS):
        here = root.at("root:imw1")
        here.delete(path)
        here.close()


def ensure(plugin: Plugin, name: str, *labels: str) -> str:
    return plugin.ok("ensure", "location", "--imw", "root:imw1", name, *labels)


def revisions(here: Api, name: str) -> list[str]:
    return [here.get(f"{path}/{name}").json["metadata"]["resourceVersion"] for path in (TARGETS, LOCATIONS)]


def test_a_location_is_a_sync_target_and_what_selects_it(plugin: Plugin, root: Api) -> None:
    before = plugin.kubeconfig.read_bytes()
    inventory = root.at("root:imw1")
    default: Object = {"resource": {"group": "edge.kubestellar.io", "version": "v2alpha1", "resource": "synctargets"}}
    head = {"apiVersion": "edge.kubestellar.io/v2alpha1", "kind": "Location", "metadata": {"name": "default"}}
    inventory.post(LOCATIONS, {**head, "spec": default})
    ensure(plugin, "krone", "loc-name=krone", "env=prod")
    target, found = inventory.get(f"{TARGETS}/krone").json, inventory.get(f"{LOCATIONS}/krone").json
    assert target["metadata"]["labels"] == {"id": "krone", "loc-name": "krone", "env": "prod"}
    assert found["metadata"]["labels"] == {"loc-name": "krone", "env": "prod"}
    assert found["spec"]["instanceSelector"] == {"matchLabels": {"id": "krone"}}
    assert inventory.send("GET", f"{LOCATIONS}/default").code == 404
    unchanged = revisions(inventory, "krone")
    assert ensure(plugin, "krone", "env=prod") == ""
    assert revisions(inventory, "krone") == unchanged
    ensure(plugin, "krone", "env=test")
    assert inventory.get(f"{LOCATIONS}/krone").json["metadata"]["labels"] == {"loc-name": "krone", "env": "test"}
    assert plugin.ok("remove", "location", "--imw", "root:imw1", "krone").count("deleted") == 2
    assert plugin.ok("remove", "location", "--imw", "root:imw1", "krone") == ""
    assert plugin.kubeconfig.read_bytes() == before
    inventory.close()


def test_an_object_is_shown_as_it_would_be_at_a_location(plugin: Plugin, root: Api, tmp_path: Path) -> None:
    ensure(plugin, "krone", "town=Delft")
    notes = {"edge.kubestellar.io/expand-parameters": "true", "edge.kubestellar.io/customizer": "rules"}
    metadata = {"name": "page", "namespace": "default", "annotations": notes}
    data = {"k": "%(town)", "l": "%(mayor)"}
    obj, rules, here = tmp_path / "page.yaml", tmp_path / "rules.yaml", root.at("root:wmw1")
    obj.write_text(json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}))
    head = {"apiVersion": "edge.kubestellar.io/v2alpha1", "kind": "Customizer", "metadata": {"name": "rules"}}
    words = ("customize", "-f", str(obj), "--location", "krone", "--imw", "root:imw1")
    assert "Customizer default/rules is not there" in plugin.run(*words).stderr
    rules.write_text(json.dumps({**head, "replacements": [{"path": "$.data.n", "value": '"new"'}]}))
    shown = plugin.run(*words, "--customizer", str(rules))
    assert yaml.safe_load(shown.stdout)["data"] == {"k": "Delft", "l": "%(mayor)", "n": "new"}
    assert shown.stderr == 'Warning: Location "krone" does not define mayor\n'
    here.post(f"{GROUP}/namespaces/default/customizers", {**head, "replacements": [{"path": "$.data", "value": "{}"}]})
    assert "data: {}" in plugin.ok(*words)
    rules.write_text(json.dumps({**head, "replacements": [{"path": "$.data", "value": "{"}]}))
    refused = plugin.run(*words, "--customizer", str(rules))
    assert (refused.code, refused.stdout) == (1, "")
    assert "Customizer /rules: replacements[0].value: is no JSON" in refused.stderr
    here.delete(f"{GROUP}/namespaces/default/customizers/rules")
    here.close()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("default", "env=prod"), 'cannot have the name "default"'),
        (("krone", "id=other"), 'the label "id" is set'),
        (("krone", "env"), "not a label"),
        (("krone",), "required: KEY=VALUE"),
    ],
)
def test_a_location_that_cannot_be_is_refused(plugin: Plugin, root: Api, words: tuple[str, ...], message: str) -> None:
    result = plugin.run("ensure", "location", "--imw", "root:imw1", *words)
    assert result.code == 2
    assert message in result.stderr
    assert root.at("root:imw1").send("GET", f"{TARGETS}/krone").code == 404


@pytest.mark.long
def test_a_workspace_for_workloads_is_made_and_has_kubernetes_kinds_while_they_are_wanted(
    plugin: Plugin, root: Api
) -> None:
    def bindings(name: str) -> dict[str, str]:
        here = root.at(f"root:{name}")
        items = here.get(f"{APIS}/apibindings").json["items"]
        here.close()
        return {each["spec"]["reference"]["export"]["name"]: each["metadata"]["name"] for each in items}

    plugin.ok("ensure", "wmw", "wmw-c")
    kind = root.get(f"{WORKSPACES}/wmw-c").json["spec"]["type"]
    assert kind == {"name": "edge-workload", "path": "root:espw"}
    assert bindings("wmw-c")["kubernetes"] == "bind-kubernetes"
    assert "edge.kubestellar.io" in bindings("wmw-c")
    assert plugin.ok("ensure", "wmw", "wmw-c") == ""
    plugin.ok("ensure", "wmw", "--with-kube", "false", "wmw-c")
    eventually(lambda: "kubernetes" not in bindings("wmw-c"), "the binding is gone")
    plugin.ok("remove", "wmw", "wmw-c")
    assert plugin.ok("remove", "wmw", "never-made") == ""


def test_a_workspace_of_another_type_gets_the_binding_with_its_claims(plugin: Plugin, root: Api) -> None:
    workspace = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": "wmw-plain"}}
    root.post(WORKSPACES, {**workspace, "spec": {"type": {"name": "universal", "path": "root"}}})
    plugin.ok("ensure", "wmw", "--with-kube=false", "wmw-plain")
    here = root.at("root:wmw-plain")
    binding = here.get(f"{APIS}/apibindings/bind-espw").json
    assert binding["status"]["phase"] == "Bound"
    assert {each["state"] for each in binding["spec"]["permissionClaims"]} == {"Accepted"}
    here.close()


def registered(plugin: Plugin, file: Path) -> list[Object]:
    words = ("prep-for-cluster", "--imw", "root:imw1", "lira", "env=prod", "-o", str(file))
    result = plugin.run(*words)
    assert result.code == 0, result.stderr
    for message in ('Creating service account "syncer"', f"Wrote workload execution cluster manifest to {file}"):
        assert message in result.stderr
    return list(yaml.safe_load_all(file.read_text()))


def claims_of(token: str) -> Object:
    found: Object = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    return found


def test_an_edge_cluster_is_registered_and_another_run_renews_its_token_alone(
    plugin: Plugin, root: Api, tmp_path: Path
) -> None:
    before = plugin.kubeconfig.read_bytes()
    file = tmp_path / "lira.yaml"
    first = registered(plugin, file)
    assert file.stat().st_mode & 0o077 == 0
    assert plugin.kubeconfig.read_bytes() == before
    secret = first[5]["stringData"]
    cluster = yaml.safe_load(secret["kubeconfig"])["clusters"][0]["cluster"]["server"].rpartition("/")[2]
    claims = claims_of(secret["token"])
    assert claims["sub"] == "system:serviceaccount:default:syncer"
    assert claims["exp"] - claims["iat"] == 720 * 3600
    mailbox = root.at(cluster)
    role = mailbox.get(f"{RBAC}/clusterroles/edge-syncer").json
    assert role["rules"] == [{"apiGroups": ["edge.kubestellar.io"], "resources": ["syncerconfigs"], "verbs": ["sync"]}]
    revision = role["metadata"]["resourceVersion"]
    second = registered(plugin, file)
    assert second[5]["stringData"].pop("token") != first[5]["stringData"].pop("token")
    assert second == first
    assert mailbox.get(f"{RBAC}/clusterroles/edge-syncer").json["metadata"]["resourceVersion"] == revision
    # From inside the mailbox, for whom it is named by hand.
    clusters = "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"
    path = mailbox.get(clusters).json["metadata"]["annotations"]["kcp.io/path"]
    plugin.ws(f":{path}")
    text = plugin.ok("syncer-gen", "lira", "--syncer-image", "mine", "-o", "-", "--labels", "a=b")
    third = list(yaml.safe_load_all(text))
    assert [each["metadata"] for each in third] == [each["metadata"] for each in first]
    assert mailbox.get("/api/v1/namespaces/default/serviceaccounts/syncer").json["metadata"]["labels"] == {"a": "b"}
    mailbox.close()


@pytest.mark.long
def test_its_manifest_is_taken_by_kubectl(plugin: Plugin, kubectl: Kubectl, tmp_path: Path) -> None:
    file = tmp_path / "lira.yaml"
    registered(plugin, file)
    kubectl.ok("create", "workspace", "edge-one", "-w", "root", "--type", "root:kubernetes", "--enter")
    assert len(kubectl.ok("apply", "-f", str(file)).splitlines()) == 7


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("nobody", "--espw", "root:espw"), 1, 'there is no SyncTarget "nobody"'),
        (("nobody", "--espw", "root:wmw1"), 2, "does not have the edge service"),
        (("nobody", "--resources", "configmaps,"), 2, "is no list of resources"),
    ],
)
def test_a_cluster_that_cannot_be_registered_is_told(
    plugin: Plugin, words: tuple[str, ...], code: int, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "manifest.yaml"
    result = plugin.run("prep-for-syncer", "--imw", "root:imw1", "-o", str(file), *words)
    assert result.code == code
    assert message in result.stderr
    assert not file.exists()


@pytest.mark.long
def test_a_mailbox_that_does_not_come_is_told(
    root: Api, plugin: Plugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A SyncTarget that is on its way out has no mailbox."""
    here = root.at("root:imw1")
    metadata = {"name": "pound", "finalizers": ["example.com/hold"]}
    here.post(TARGETS, {"apiVersion": "edge.kubestellar.io/v2alpha1", "kind": "SyncTarget", "metadata": metadata})
    here.delete(f"{TARGETS}/pound")
    home = root.at("root:espw")
    uid = here.get(f"{TARGETS}/pound").json["metadata"]["uid"]
    eventually(
        lambda: all(uid not in each["metadata"]["name"] for each in home.get(WORKSPACES).json["items"]), "it goes"
    )
    monkeypatch.setattr(registration, "MAILBOX_TIMEOUT_S", 1.0)
    words = ("prep-for-syncer", "--imw", "root:imw1", "pound", "-o", str(tmp_path / "x"))
    result = plugin.run(*words)
    assert result.code == 5
    assert "is not ready" in result.stderr
    here.patch(f"{TARGETS}/pound", {"metadata": {"finalizers": None}})
    home.close()
    here.close()


@pytest.mark.long
def test_the_edge_view_is_entered_only_where_it_is_served(kubectl: Kubectl) -> None:
    """Through kubectl, which finds the plug-in."""
    before = kubectl.kubeconfig.read_bytes()
    result = kubectl.run("kubestellar", "view", "-w", ":root:nowhere")
    assert result.code == 1
    assert kubectl.kubeconfig.read_bytes() == before


@pytest.mark.long
def test_the_edge_view_is_entered_moved_in_and_left(kubectl: Kubectl, root: Api) -> None:
    entered = 'Current workspace is the edge view of "root:wmw1".\n'
    assert kubectl.ok("kubestellar", "view") == entered
    kubectl.ok("create", "role", "painter", "--verb=get", "--resource=configmaps")
    assert "painter" in kubectl.ok("get", "roles")
    here = root.at("root:wmw1")
    roles = f"{RBAC}/namespaces/default/roles"
    assert here.send("GET", f"{roles}/painter").code == 404
    # `ws` stays in the view.
    kubectl.ok("ws", ":root:imw1")
    assert "painter" not in kubectl.ok("get", "roles")
    kubectl.ok("create", "role", "sailor", "--verb=get", "--resource=configmaps")
    assert root.at("root:imw1").send("GET", f"{roles}/sailor").code == 404
    kubectl.ok("ws", "-")
    assert "painter" in kubectl.ok("get", "roles")
    kubectl.ok("kubestellar", "view", "--off")
    assert "painter" not in kubectl.ok("get", "roles")
    assert kubectl.ok("ws", "current").startswith('Current workspace is "root:wmw1"')
    here.close()
