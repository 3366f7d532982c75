"""`kubectl atoll edge why`: each step on the way of an object to an edge cluster, told where it ends."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from atoll.cli.kubectl import atoll
from harness.clients.api import Api, configmap, eventually
from harness.clients.tenants import RBAC
from harness.servers.edge_service import GROUP
from harness.servers.shard_process import ShardProcess
from integration.edge.placed import CONFIGMAPS, inventory, is_projected, mailboxes, place, workload

__all__ = ["inventory", "mailboxes", "workload"]

THE_ONE = f"{GROUP}/syncerconfigs/the-one"
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


def test_what_cannot_be_rendered_is_not_in_the_mailbox_and_the_reason_is_told(
    workload: Api, mailboxes: dict[str, Api], why: Why
) -> None:
    customized = configmap("b", annotations={"edge.kubestellar.io/customizer": "nowhere"})
    workload.post(CONFIGMAPS, customized)
    place(workload, "q", {"env": "one"}, {"apiGroup": "", "resources": ["configmaps"], "objectNames": ["b"]})
    eventually(lambda: "nowhere" in why.steps("b").get("in mailbox", ""), "the placement says why")
    steps = why.steps("b")
    assert steps["rendered by"] == "Customizer nowhere"
    assert last(steps)[0] == "in mailbox"


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
