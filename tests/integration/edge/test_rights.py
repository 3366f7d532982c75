"""The rights of the accounts of the edge service: in workspaces for workloads, in mailboxes, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from harness.clients.api import Api, configmap, eventually, workspace_under
from harness.servers.edge_service import GROUP, edge_init
from harness.servers.shard_process import ShardProcess

WORKSPACES = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture(scope="module")
def tokens(edge: ShardProcess, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    output = tmp_path_factory.mktemp("tokens") / "edge.kubeconfig"
    edge_init(edge, output)
    users = yaml.safe_load(Path(output).read_text())["users"]
    return {user["name"]: user["user"]["token"] for user in users}


@pytest.fixture
def workload(root: Api) -> Iterator[Api]:
    """A workspace for workloads of its own, as its administrator sees it."""
    kind = {"name": "edge-workload", "path": "root:espw"}
    head = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"generateName": "rights-"}}
    name = root.post(WORKSPACES, {**head, "spec": {"type": kind}}, expect=201).json["metadata"]["name"]
    eventually(lambda: root.get(f"{WORKSPACES}/{name}").json["status"]["phase"] == "Ready", "it is initialized")
    here = root.at(f"root:{name}")
    yield here
    here.close()


def test_the_translator_reads_workloads_as_far_as_their_owner_lets_it(
    edge: ShardProcess, workload: Api, tokens: dict[str, str]
) -> None:
    translator = Api(edge, workload.cluster, token=tokens["placement-translator"])
    workload.post(CONFIGMAPS, configmap("a"))
    assert [each["metadata"]["name"] for each in translator.get(CONFIGMAPS).json["items"]].count("a") == 1
    translator.get("/api/v1/secrets")
    translator.post(CONFIGMAPS, configmap("b"), expect=403)
    translator.delete(f"{CONFIGMAPS}/a", expect=403)
    binding = workload.get(f"{RBAC}/clusterrolebindings/edge-translator").json
    (subject,) = binding["subjects"]
    assert subject["name"].startswith("system:kcp:serviceaccount:")
    assert subject["name"].endswith(":edge:placement-translator")
    role = workload.get(f"{RBAC}/clusterroles/edge-translator").json
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}, role["rules"][-1]]
    workload.put(f"{RBAC}/clusterroles/edge-translator", {**role, "rules": rules})
    eventually(lambda: translator.send("GET", "/api/v1/secrets").code == 403, "narrowed")
    translator.get(CONFIGMAPS)
    workload.delete(f"{RBAC}/clusterrolebindings/edge-translator")
    eventually(lambda: translator.send("GET", CONFIGMAPS).code == 403, "taken away")
    translator.close()


def test_a_grant_of_more_than_the_type_permits_is_refused_to_the_translator(
    edge: ShardProcess, workload: Api, tokens: dict[str, str]
) -> None:
    """It may patch RBAC objects as any others, but not to rights that it does not have."""
    translator = Api(edge, workload.cluster, token=tokens["placement-translator"])
    role = workload.get(f"{RBAC}/clusterroles/edge-translator").json
    wider = [*role["rules"], {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    translator.patch(f"{RBAC}/clusterroles/edge-translator", {"rules": wider}, expect=403)
    translator.close()


def test_the_translator_administers_mailboxes_the_summarizer_reads_them_and_they_enter_no_other_workspace(
    edge: ShardProcess, root: Api, tokens: dict[str, str]
) -> None:
    kind = {"name": "edge-mailbox", "path": "root:espw"}
    head = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"generateName": "box-"}}
    home = root.at("root:espw")
    name = home.post(WORKSPACES, {**head, "spec": {"type": kind}}, expect=201).json["metadata"]["name"]
    eventually(lambda: home.get(f"{WORKSPACES}/{name}").json["status"]["phase"] == "Ready", "the mailbox is ready")
    other = workspace_under(root)
    body = {"metadata": {"generateName": "c-"}}
    accounts = ("placement-translator", 200, True), ("where-resolver", 403, False), ("status-summarizer", 200, False)
    for account, read, may_write in accounts:
        api = Api(edge, f"root:espw:{name}", token=tokens[account])
        assert api.send("GET", f"{GROUP}/syncerconfigs").code == read, account
        assert (api.send("POST", CONFIGMAPS, body).code != 403) == may_write, account
        assert api.at(other).send("GET", CONFIGMAPS).code == 403
        assert api.at("root:imw1").send("GET", CONFIGMAPS).code == 403
        assert api.at("root:espw").send("GET", "/api/v1/namespaces/edge/secrets").code == 403
        api.close()
    home.close()
