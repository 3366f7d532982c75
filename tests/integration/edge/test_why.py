"""`kubectl atoll edge why`: each step on the way of an object to an edge cluster, told where it ends."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from atoll.cli.kubectl import atoll
from atoll.machinery.edge.names import CUSTOMIZER, EXPAND
from harness.clients.api import Api, Object, configmap, eventually
from harness.clients.exports import cluster_of
from harness.clients.tenants import RBAC
from harness.servers.edge_service import GROUP, an_object
from harness.servers.shard_process import ShardProcess
from integration.edge.placed import (
    CONFIGMAPS,
    PLACEMENTS,
    inventory,
    is_projected,
    mailboxes,
    new_workload,
    place,
    workload,
)

__all__ = ["inventory", "mailboxes", "workload"]

THE_ONE = f"{GROUP}/syncerconfigs/the-one"
CUSTOMIZERS = f"{GROUP}/namespaces/default/customizers"
QUOTAS = "/api/v1/namespaces/default/resourcequotas"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


class Why:
    """The command, in a workspace, with a kubeconfig."""

    def __init__(self, kubeconfig: Path, workspace: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._kubeconfig, self._workspace, self._capsys = kubeconfig, workspace, capsys

    def steps(self, name: str, at: str = "one", resource: str = "configmaps") -> dict[str, str]:
        self._capsys.readouterr()
        flags = ["--kubeconfig", str(self._kubeconfig), "-w", f":{self._workspace}"]
        assert atoll.dispatch(["edge", "why", resource, name, "--at", at, *flags]) == 0, self._capsys.readouterr().err
        lines = self._capsys.readouterr().out.splitlines()
        return {step: text.strip() for step, _, text in (line.partition(":") for line in lines)}


@pytest.fixture
def why(edge: ShardProcess, workload: Api, capsys: pytest.CaptureFixture[str]) -> Why:
    return Why(edge.kubeconfig, workload.cluster, capsys)


def last(steps: dict[str, str]) -> tuple[str, str]:
    return list(steps.items())[-1]


def test_each_step_of_the_way_is_told_until_one_does_not_hold(
    workload: Api, mailboxes: dict[str, Api], why: Why
) -> None:
    box = mailboxes["one"]
    assert last(why.steps("a")) == ("object", "configmaps a is not in this workspace")
    workload.post(CONFIGMAPS, configmap("a"))
    assert last(why.steps("a")) == ("selected by", "nothing: no EdgePlacement selects it")
    place(workload, "p", {"env": "one"}, {"apiGroup": "", "resources": ["configmaps"], "objectNames": ["a"]})
    eventually(lambda: is_projected(workload, "p"), "the copy")
    step, text = last(why.steps("a", at="two"))
    assert step == "matched"
    assert text.startswith("no: two is no destination of p")
    # No syncer runs here: the mailbox tells what one reported.
    steps = why.steps("a", resource="ConfigMap")
    assert steps["selected by"] == "p"
    assert steps["matched"] == "Location one, SyncTarget one"
    assert (steps["rendered by"], steps["version"], steps["merged with"]) == (
        "nothing: it goes as it is",
        "v1",
        "nothing",
    )
    assert steps["in mailbox"].startswith("yes, at revision ")
    assert steps["listed"] == "yes"
    assert last(steps) == ("applied", "not yet: the syncer reported revision nothing")
    revision = box.get(f"{CONFIGMAPS}/a").json["metadata"]["resourceVersion"]
    box.patch(f"{THE_ONE}/status", {"status": {"appliedRevision": revision}})
    assert last(why.steps("a")) == ("applied", f"yes: the syncer reported revision {revision}")
    row = {"group": "", "resource": "configmaps", "namespace": "default", "name": "a", "operation": "Apply"}
    refused = {**row, "reason": "Forbidden", "message": "exceeded quota", "time": "2026-01-01T00:00:00Z", "count": 1}
    box.patch(f"{THE_ONE}/status", {"status": {"errors": [refused]}})
    assert last(why.steps("a")) == ("refused because", "configmaps default/a: exceeded quota")
    box.patch(f"{THE_ONE}/status", {"status": {"errors": None, "appliedRevision": None}})


def test_what_cannot_be_rendered_ends_with_its_line(workload: Api, mailboxes: dict[str, Api], why: Why) -> None:
    notes = {CUSTOMIZER: "rules", EXPAND: "true"}
    workload.post(CONFIGMAPS, configmap("b", annotations=notes))
    place(workload, "q", {"env": "one"}, {"apiGroup": "", "resources": ["configmaps"], "objectNames": ["b"]})
    eventually(lambda: why.steps("b").get("matched"), "it is resolved")
    assert last(why.steps("b")) == ("rendered by", "no: Customizer default/rules is not there")
    rules: Object = {"replacements": [{"path": "$.data.k", "value": "no JSON"}]}
    workload.post(CUSTOMIZERS, {**an_object("Customizer", "rules"), **rules})
    step, text = last(why.steps("b"))
    assert step == "rendered by"
    assert text.startswith("no: Customizer default/rules: replacements[0].value: is no JSON")
    workload.patch(f"{CUSTOMIZERS}/rules", {"replacements": [{"path": "$.data.k", "value": '"v"'}]})
    eventually(lambda: is_projected(workload, "q"), "the copy")
    steps = why.steps("b")
    assert steps["rendered by"] == "Customizer default/rules, parameters of the Location"
    assert steps["in mailbox"].startswith("yes")


def test_what_a_mailbox_refuses_is_not_in_it_and_the_reason_is_said(
    workload: Api, mailboxes: dict[str, Api], why: Why
) -> None:
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"count/configmaps": "0"}}}
    box = mailboxes["one"]
    box.send("POST", "/api/v1/namespaces", {"metadata": {"name": "default"}})
    box.post(QUOTAS, quota)
    workload.post(CONFIGMAPS, configmap("d"))
    place(workload, "s", {"env": "one"}, {"apiGroup": "", "resources": ["configmaps"], "objectNames": ["d"]})
    eventually(lambda: "exceeded quota" in why.steps("d").get("in mailbox", ""), "the placement says why")
    assert last(why.steps("d"))[0] == "in mailbox"
    box.delete(f"{QUOTAS}/none")


def test_what_others_send_too_is_merged_and_conflicts_are_named(
    root: Api, workload: Api, mailboxes: dict[str, Api], why: Why
) -> None:
    other = new_workload(root)
    for api, value in ((workload, "1"), (other, "2")):
        api.post(CONFIGMAPS, configmap("e", {"k": value}))
        place(api, "t", {"env": "one"}, {"apiGroup": "", "resources": ["configmaps"], "objectNames": ["e"]})
    eventually(lambda: "conflicts" in why.steps("e"), "both send it")
    steps = why.steps("e")
    assert (steps["merged with"], steps["conflicts"]) == (
        "1 other workspaces",
        f"data[k] of workspace {cluster_of(other)}",
    )
    other.delete(PLACEMENTS)
    other.close()


def test_who_may_not_read_the_mailbox_is_told_so_and_nothing_else(
    edge: ShardProcess, workload: Api, mailboxes: dict[str, Api], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workload.post(CONFIGMAPS, configmap("c"))
    place(workload, "r", {"env": "one"}, {"apiGroup": "", "resources": ["configmaps"], "objectNames": ["c"]})
    eventually(lambda: is_projected(workload, "r"), "the copy")
    workload.post(ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "owner"}})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    subject = {"kind": "ServiceAccount", "name": "owner", "namespace": "default"}
    binding = {"metadata": {"name": "owner"}, "subjects": [subject], "roleRef": reference}
    workload.post(f"{RBAC}/clusterrolebindings", binding)
    kubeconfig = yaml.safe_load(edge.kubeconfig.read_text())
    token = workload.post(f"{ACCOUNTS}/owner/token", {}).json["status"]["token"]
    for each in kubeconfig["users"]:
        each["user"] = {"token": token}
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    steps = Why(tmp_path / "kubeconfig", workload.cluster, capsys).steps("c")
    assert last(steps) == ("in mailbox", "unknown: you may not read the mailbox")
