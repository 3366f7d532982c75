"""The plug-ins with the real kubectl, against a real shard."""

from __future__ import annotations

import json
import re
import secrets

import pytest
import yaml

from harness.clients.kubectl import Kubectl
from harness.servers.shard_process import ShardProcess


def unique(name: str) -> str:
    return f"{name}-{secrets.token_hex(3)}"


def test_a_person_makes_workspaces_and_works_in_them(kubectl: Kubectl, shard: ShardProcess) -> None:
    acme = unique("acme")
    assert kubectl.ok("ws") == 'Current workspace is "root".\n'
    assert kubectl.ok("create", "workspace", acme, "--enter") == (
        f'Workspace "{acme}" (type root:organization) created. Waiting for it to be ready...\n'
        f'Workspace "{acme}" (type root:organization) is ready to use.\n'
        f'Current workspace is "root:{acme}" (type root:organization).\n'
    )
    kubectl.ok("create", "workspace", "web", "--enter")
    kubectl.ok("create", "configmap", "c", "--from-literal=a=b")
    assert kubectl.ok("get", "configmap", "c", "-o", "jsonpath={.data.a}") == "b"
    cluster = kubectl.ok("get", "configmap", "c", "-o", r"jsonpath={.metadata.annotations.kcp\.io/cluster}")
    for server in (f"{shard.url}/clusters/{cluster}", f"{shard.url}/clusters/root:{acme}:web"):
        assert kubectl.ok("--server", server, "get", "configmap", "c", "-o", "name") == "configmap/c\n"
    kubectl.ok("ws", ":")
    assert kubectl.run("get", "configmap", "c").code == 1


@pytest.mark.long
def test_a_person_finds_the_way(kubectl: Kubectl) -> None:
    acme = unique("way")
    kubectl.ok("create", "workspace", acme, "--enter")
    kubectl.ok("create", "workspace", "b")
    kubectl.ok("create", "workspace", "a", "--type", "root:universal", "--enter")
    assert kubectl.ok("ws", "..").startswith(f'Current workspace is "root:{acme}" (type ')
    assert kubectl.ok("ws", "-") == f'Current workspace is "root:{acme}:a" (type root:universal).\n'
    assert kubectl.ok("ws", ".") == f'Current workspace is "root:{acme}:a" (type root:universal).\n'
    assert kubectl.ok("ws", f"/root/{acme}/b", "--short") == f"root:{acme}:b\n"
    kubectl.ok("ws", "..")
    assert kubectl.ok("ws", "tree") == f".\n└── {acme}\n    ├── a\n    └── b\n"
    assert kubectl.ok("ws", "tree", "--full").splitlines()[-1] == f"    └── root:{acme}:b"
    wide = kubectl.ok("ws", "tree", "--wide").splitlines()[-1]
    assert re.fullmatch(r"    └── b  type=root:\w+  phase=Ready  cluster=[0-9a-z]{16}", wide)


@pytest.mark.long
def test_kubectl_completes_the_way(kubectl: Kubectl) -> None:
    acme, name = unique("finish"), unique("mine")
    kubectl.ok("create", "workspace", acme, "--enter")
    kubectl.ok("create", "workspace", "web", "--type", "root:universal")
    wanted = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType", "metadata": {"name": name}, "spec": {}}
    kubectl.ok("create", "-f", "-", stdin=json.dumps(wanted))

    def completed(*words: str) -> list[str]:
        return kubectl.ok("__complete", *words).splitlines()

    assert completed("ws", "w") == ["web\ttype root:universal", ":6"]
    assert [line.partition("\t")[0] for line in completed("ws", "use", f"root:{acme}:")] == [f"root:{acme}:web", ":6"]
    assert [line.partition("\t")[0] for line in completed("ws", "..")] == ["..", ":4"]
    assert [line.partition("\t")[0] for line in completed("ws", "~")] == ["~", ":4"]
    assert completed("ws", "create", "x", "--type", "mine") == [f"{name}\tof root:{acme}", ":4"]
    assert f"root:{acme}:{name}" in completed("ws", "create", "x", "--type", "root:")


@pytest.mark.long
def test_what_is_not_there_is_told_and_changes_nothing(kubectl: Kubectl) -> None:
    before = kubectl.kubeconfig.read_bytes()
    assert kubectl.run("ws", "nowhere") == (1, "", 'Error: workspace "root:nowhere" not found\n')
    assert kubectl.run("ws", "..") == (1, "", 'Error: workspace "root" has no parent\n')
    assert kubectl.run("create", "workspace", "Bad_Name").code == 1
    assert kubectl.run("create", "workspace", "x", "--type", "root:nothing").code == 1
    assert kubectl.kubeconfig.read_bytes() == before


@pytest.mark.long
def test_a_tilde_leads_home(kubectl: Kubectl) -> None:
    home = re.fullmatch(r'Current workspace is "([0-9a-z]{10,14})"\.\n', kubectl.ok("ws", "~"))
    assert home is not None
    name = unique("mine")
    assert f'"{home[1]}:{name}"' in kubectl.ok("create", "workspace", name, "--enter")
    assert kubectl.ok("ws", "use", "~", "--short").strip() == home[1]


@pytest.mark.long
def test_an_existing_workspace_is_refused_or_taken(kubectl: Kubectl) -> None:
    name = unique("again")
    kubectl.ok("create", "workspace", name, "--create-context", "mine")
    refused = kubectl.run("create", "workspace", name)
    assert (refused.code, "already exists" in refused.stderr) == (1, True)
    taken = kubectl.ok("create", "workspace", name, "--ignore-existing", "--enter")
    assert taken.startswith(f'Workspace "{name}" (type root:organization) already exists.\n')
    assert kubectl.ok("--context", "mine", "get", "namespaces", "-o", "name").splitlines()[0] == "namespace/default"


def test_the_entries_are_kcps_and_the_users_stay_as_they_were(kubectl: Kubectl, shard: ShardProcess) -> None:
    name = unique("entry")
    kubectl.ok("create", "workspace", name, "--enter")
    before = yaml.safe_load(shard.kubeconfig.read_text())
    after = yaml.safe_load(kubectl.kubeconfig.read_text())
    assert after["users"] == before["users"]
    assert after["contexts"][:4] == before["contexts"]
    assert after["current-context"] == "workspace.kcp.io/current"
    added = {item["name"]: item["cluster"]["server"] for item in after["clusters"][len(before["clusters"]) :]}
    assert added == {"workspace.kcp.io/current": f"{shard.url}/clusters/root:{name}"}


def test_a_user_without_access_is_denied(kubectl: Kubectl) -> None:
    name = unique("closed")
    kubectl.ok("create", "workspace", name)
    document = yaml.safe_load(kubectl.kubeconfig.read_text())
    for user in document["users"]:
        user["user"]["as"] = "nobody-special"
    kubectl.kubeconfig.write_text(yaml.safe_dump(document))
    denied = kubectl.run("ws", name)
    assert (denied.code, denied.stderr) == (1, f'Error: access to workspace "root:{name}" denied\n')


@pytest.mark.long
def test_a_shard_without_a_site_is_well_although_it_writes_no_heartbeat(kubectl: Kubectl) -> None:
    header, line = kubectl.ok("atoll", "shards").splitlines()
    assert header.split()[:7] == ["NAME", "REGION", "STATUS", "HEARTBEAT", "WORKSPACES", "OBJECTS", "DISK"]
    assert line.split()[:6] == ["root", "-", "Ready", "-", "?", "?"]
    assert re.search(r" \d+% of \d+ [MG]iB ", line)
