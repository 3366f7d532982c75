"""`kubectl kubestellar list-syncing-objects`: objects of one kind in all mailboxes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from atoll.cli.kubectl.kubestellar import main
from harness.clients.api import Api, Object, configmap, crd, define, eventually, workspace_under
from harness.clients.exports import bind, cluster_of, make_export, schema, unbind
from harness.clients.kubectl import Result
from harness.clients.syncing_objects import watching
from harness.clients.tenants import RBAC, allow, user
from harness.clients.tenants import bind as bind_role
from harness.servers.edge_service import an_object
from harness.servers.shard_process import ShardProcess
from integration.edge.placed import CONFIGMAPS, TARGETS, inventory, phase
from integration.edge.placed import mailboxes as ready_mailboxes

__all__ = ["inventory", "ready_mailboxes"]

OF_CONFIGMAPS = ("--api-kind", "ConfigMap")
OF_PANES = ("--api-group", "shapes.example.com", "--api-kind", "Pane")
PANES = "/apis/shapes.example.com/v1/namespaces/default/panes"
FINDINGS, OF_DEFAULT = (f"/apis/shapes.example.com/v1/{each}findings" for each in ("", "namespaces/default/"))
ROLES = f"{RBAC}/clusterroles"
ACCESS = {"nonResourceURLs": ["/"], "verbs": ["access"]}


@pytest.fixture(scope="module")
def mailboxes(ready_mailboxes: dict[str, Api]) -> dict[str, Api]:
    """The mailboxes, with a namespace `default`."""
    for api in ready_mailboxes.values():
        with_default(api)
    return ready_mailboxes


def with_default(mailbox: Api) -> Api:
    """A mailbox has no namespace of its own."""
    mailbox.send("POST", "/api/v1/namespaces", {"metadata": {"name": "default"}})
    return mailbox


def account(here: Api, rule: Object) -> str:
    """Make the service account `reports` in a workspace, with a rule; return its token."""
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    here.post(accounts, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reports"}})
    here.post(f"{RBAC}/clusterroles", {"metadata": {"name": "reports"}, "rules": [rule, ACCESS]})
    subject = {"kind": "ServiceAccount", "name": "reports", "namespace": "default"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reports"}
    binding = {"metadata": {"name": "reports"}, "subjects": [subject], "roleRef": reference}
    here.post(f"{RBAC}/clusterrolebindings", binding)
    return str(here.post(f"{accounts}/reports/token", {}).json["status"]["token"])


@pytest.fixture(scope="module")
def reports(edge: ShardProcess, root: Api, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A service account of the edge service's workspace that lists mailboxes: its name elsewhere, and a kubeconfig."""
    home, kubeconfig = root.at("root:espw"), yaml.safe_load(edge.kubeconfig.read_text())
    token = account(home, {"apiGroups": ["tenancy.kcp.io"], "resources": ["workspaces"], "verbs": ["list", "watch"]})
    for each in kubeconfig["users"]:
        each["user"] = {"token": token}
    file = tmp_path_factory.mktemp("reports") / "kubeconfig"
    file.write_text(yaml.safe_dump(kubeconfig))
    name = f"system:kcp:serviceaccount:{cluster_of(home)}:default:reports"
    home.close()
    return name, file


def listed(capsys: pytest.CaptureFixture[str], kubeconfig: Path, *words: str) -> Result:
    capsys.readouterr()
    code = main.dispatch(["list-syncing-objects", *words, "--kubeconfig", str(kubeconfig)])
    return Result(code, *capsys.readouterr())


def identified(obj: Object) -> tuple[str, str]:
    """Cluster and name of an object."""
    metadata = obj["metadata"]
    return metadata["annotations"]["kcp.io/cluster"], metadata["name"]


def clusters_of(lines: list[Object]) -> list[str]:
    return [identified(each)[0] for each in lines]


def found(lines: str) -> set[tuple[str, str]]:
    """Cluster and name of the objects in a list that this file made."""
    objects = [json.loads(line) for line in lines.splitlines()]
    return {identified(each) for each in objects if each["metadata"]["name"].startswith("report-")}


def test_objects_of_all_mailboxes_are_listed(
    mailboxes: dict[str, Api], edge: ShardProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    clusters = {name: cluster_of(api) for name, api in mailboxes.items()}
    for name, api in mailboxes.items():
        api.post(CONFIGMAPS, configmap(f"report-{name}"))
    result = listed(capsys, edge.kubeconfig, *OF_CONFIGMAPS, "--json")
    assert (result.code, result.stderr) == (0, "")
    assert found(result.stdout) == {(clusters[name], f"report-{name}") for name in mailboxes}
    result = listed(capsys, edge.kubeconfig, *OF_CONFIGMAPS)
    names = [each["metadata"]["name"] for each in yaml.safe_load_all(result.stdout) if each is not None]
    assert {"report-one", "report-two"} <= set(names)
    assert all(each["kind"] == "ConfigMap" for each in yaml.safe_load_all(result.stdout))
    for words in (("--api-kind", "ConfigMap", "--api-resource", "secrets"), (*OF_CONFIGMAPS, "--api-version", "v2")):
        assert listed(capsys, edge.kubeconfig, *words).stdout == "", "no mailbox serves that"
    for name, api in mailboxes.items():
        api.delete(f"{CONFIGMAPS}/report-{name}")


def test_a_caller_sees_what_it_may_read_and_is_warned_of_the_rest(
    mailboxes: dict[str, Api], reports: tuple[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    name, kubeconfig = reports
    one, two = mailboxes["one"], mailboxes["two"]
    allow(one, "reports", name, apiGroups=[""], resources=["configmaps"], verbs=["list", "watch"])
    one.post(f"{RBAC}/clusterroles", {"metadata": {"name": "enter"}, "rules": [ACCESS]})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "enter"}
    binding = {"metadata": {"name": "enter"}, "subjects": [user(name)], "roleRef": reference}
    one.post(f"{RBAC}/clusterrolebindings", binding)
    for api in (one, two):
        api.post(CONFIGMAPS, configmap("report-a"))
    result = listed(capsys, kubeconfig, *OF_CONFIGMAPS, "--json")
    assert result.code == 0, "what is forbidden is no failure"
    assert found(result.stdout) == {(cluster_of(one), "report-a")}
    assert f"Warning: mailbox {cluster_of(two)}: " in result.stderr
    one.delete(f"{RBAC}/clusterrolebindings/enter")
    eventually(lambda: not found(listed(capsys, kubeconfig, *OF_CONFIGMAPS, "--json").stdout), "the right is gone")
    for api in (one, two):
        api.delete(f"{CONFIGMAPS}/report-a")


@pytest.mark.long
def test_a_watch_has_what_its_caller_may_read_from_when_it_may(
    mailboxes: dict[str, Api], reports: tuple[str, Path], tmp_path: Path
) -> None:
    name, kubeconfig = reports
    one, two = mailboxes["one"], mailboxes["two"]
    rules: list[Object] = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}, ACCESS]
    role = {"metadata": {"name": "watchers"}, "rules": rules}
    for api in (one, two):
        bind_role(api, "watchers", user(name))
        api.post(CONFIGMAPS, configmap("report-w"))
    with watching(kubeconfig, tmp_path, *OF_CONFIGMAPS) as lines:
        one.post(ROLES, role)
        eventually(lambda: clusters_of(lines.of("report-w")) == [cluster_of(one)], "the one that may be read")
        two.post(ROLES, role)
        both = [cluster_of(one), cluster_of(two)]
        eventually(lambda: clusters_of(lines.of("report-w")) == both, "the other one, once it may be read")
        two.delete(f"{ROLES}/watchers")
        one.patch(f"{CONFIGMAPS}/report-w", {"data": {"k": "2"}})
        eventually(lambda: lines.actions("report-w") == ["add", "add", "update"], "the watch of one goes on")
        two.patch(f"{CONFIGMAPS}/report-w", {"data": {"k": "2"}})
        two.post(ROLES, role)
        again = ["add", "add", "update", "update"]
        eventually(lambda: lines.actions("report-w") == again, "what changed meanwhile is no gap")
        assert clusters_of(lines.of("report-w"))[-1] == cluster_of(two)
    for api in (one, two):
        api.delete(f"{CONFIGMAPS}/report-w")
        api.delete(f"{ROLES}/watchers")


def test_who_may_not_list_mailboxes_is_refused(edge: ShardProcess, capsys: pytest.CaptureFixture[str]) -> None:
    result = listed(capsys, edge.kubeconfig, *OF_CONFIGMAPS, "--espw", "root:nowhere")
    assert result.code == 1
    assert "the mailboxes in root:nowhere cannot be listed" in result.stderr


def test_an_exporter_reads_the_reports_of_all_mailboxes_in_its_own_view(
    root: Api, mailboxes: dict[str, Api], edge: ShardProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    provider = root.at(workspace_under(root))
    token = account(
        provider, {"apiGroups": ["apis.kcp.io"], "resources": ["apiexports/content"], "verbs": ["list", "watch"]}
    )
    make_export(provider, "findings", schema("findings"))
    finding = {"apiVersion": "shapes.example.com/v1", "kind": "Finding", "metadata": {"name": "report-a"}}
    for api in mailboxes.values():
        bind(api, provider.cluster, "findings")
        api.post(OF_DEFAULT, finding)
    here = cluster_of(provider)
    view = Api(edge, token=token)
    view.prefix = f"/services/apiexport/{here}/findings/clusters/*"
    seen = view.get(FINDINGS).json
    of_all = {(cluster_of(api), "report-a") for api in mailboxes.values()}
    assert {identified(each) for each in seen["items"]} == of_all
    # As a controller follows them: each change of any mailbox, and no other object.
    with view.watch(f"{FINDINGS}?watch=true&resourceVersion={seen['metadata']['resourceVersion']}") as events:
        for api in mailboxes.values():
            api.patch(f"{OF_DEFAULT}/report-a", {"metadata": {"labels": {"seen": "yes"}}})
            event = events.next()
            assert (event.type, identified(event.object)) == ("MODIFIED", (cluster_of(api), "report-a"))
        one = mailboxes["one"]
        one.delete(f"{OF_DEFAULT}/report-a")
        event = events.next()
        assert (event.type, identified(event.object)) == ("DELETED", (cluster_of(one), "report-a"))
        one.post(OF_DEFAULT, finding)
        assert events.next().type == "ADDED"
    words = ("--api-group", "shapes.example.com", "--api-kind", "Finding", "--json")
    assert found(listed(capsys, edge.kubeconfig, *words).stdout) == of_all
    for api in mailboxes.values():
        unbind(api, "findings")
    view.close()
    provider.close()


def test_a_watch_goes_on_over_new_and_deleted_mailboxes_and_kinds_that_appear(
    root: Api, inventory: Api, mailboxes: dict[str, Api], edge: ShardProcess, tmp_path: Path
) -> None:
    one, home = mailboxes["one"], root.at("root:espw")
    with watching(edge.kubeconfig, tmp_path, *OF_PANES) as lines:
        define(one, crd("panes"))
        one.post(PANES, {"apiVersion": "shapes.example.com/v1", "kind": "Pane", "metadata": {"name": "report-a"}})
        eventually(lambda: lines.actions("report-a") == ["add"], "a kind that came later")
        one.patch(f"{PANES}/report-a", {"spec": {"colour": "red"}})
        eventually(lambda: lines.actions("report-a") == ["add", "update"])
        third = inventory.post(TARGETS, an_object("SyncTarget", "third", id="third")).json["metadata"]
        name = f"{third['annotations']['kcp.io/cluster']}-mb-{third['uid']}"
        eventually(lambda: phase(home, name) == "Ready", "the mailbox is ready")
        box = with_default(root.at(f"root:espw:{name}"))
        define(box, crd("panes"))
        box.post(PANES, {"apiVersion": "shapes.example.com/v1", "kind": "Pane", "metadata": {"name": "report-b"}})
        eventually(lambda: lines.actions("report-b") == ["add"], "an object of a new mailbox")
        assert lines.of("report-b")[0]["metadata"]["annotations"]["kcp.io/cluster"] == cluster_of(box)
        box.close()
        inventory.delete(f"{TARGETS}/third")
        eventually(lambda: lines.actions("report-b") == ["add", "delete"], "its mailbox is gone")
        one.delete(f"{PANES}/report-a")
        eventually(lambda: lines.actions("report-a") == ["add", "update", "delete"])
    home.close()
