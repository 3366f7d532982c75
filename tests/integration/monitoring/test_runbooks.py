"""The commands of docs/runbooks.md, as somebody types them beside a server with API workers and the edge service."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from harness.clients.api import Api, configmap, eventually
from harness.clients.kubectl import Kubectl, Result
from harness.clients.shell import Shell
from harness.environment import ROOT
from harness.servers.edge_service import GROUP, an_object, location
from harness.servers.shard_process import ShardProcess

#: Some forty commands, each a start of kubectl or atoll.
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

START_S, COMMAND_S = 300.0, 180.0
_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
#: What the commands look for is not there while nothing is wrong, or not beside a single shard.
QUIET = {
    """kubectl get --raw /metrics | grep '^apiserver_request_total.*code="5'""",
    """kubectl get --raw /metrics | grep 'code="429"'""",
    "kubectl get --raw /metrics | grep ^atoll_egress_duration_seconds_sum",
    "kubectl get --raw /metrics | grep ^atoll_replication_lag",
    "kubectl get --raw /metrics | grep ^atoll_replication_refused_rows_total",
    "kubectl get --raw /metrics | grep ^kcp_logicalcluster_object",
    "atoll certs renew --directory certs",
    "atoll certs renew --directory certs all",
}
PROCESSES = ("shard/root=127.0.0.1", "front-proxy/proxy=127.0.0.1", "nats-server/nats-0=127.0.0.1")


def commands() -> list[str]:
    """Every line of every block, each once."""
    blocks = _BLOCK.findall((ROOT / "docs" / "runbooks.md").read_text())
    return list(dict.fromkeys(line for block in blocks for line in block.splitlines()))


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardProcess]:
    flags = ("--edge", "true", "--workers", "1", "--audit-log-path", "-")
    running = ShardProcess(tmp_path_factory.mktemp("machine"), *flags)
    running.start(START_S)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def shell(shard: ShardProcess, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A shell in the directory that holds the root directory, and `certs` of a site."""
    folder = shard.root.parent
    (folder / ".atoll").symlink_to(shard.root)
    made = tmp_path_factory.mktemp("shell")
    shell = Shell(made, Kubectl(made, shard.kubeconfig), folder)
    shell.ok("atoll certs init --directory certs --external-url https://atoll.example", COMMAND_S)
    for process in PROCESSES:
        shell.ok(f"atoll certs add {process} --directory certs", COMMAND_S)
    return shell


def as_typed(line: str, shell: Shell) -> Result:
    """A pipe fails with any of its commands."""
    return shell.run(f"set -o pipefail; {line}", COMMAND_S)


def test_commands_for_shards_streams_and_machines_run_and_find_what_they_look_for(shell: Shell) -> None:
    lines = [line for line in commands() if not line.startswith("kubectl atoll edge")]
    assert len(lines) > 30
    shell.ok("kubectl config use-context shard-base")
    found = {line: as_typed(line.replace("CLUSTER", "root"), shell) for line in lines}
    empty = {line for line, result in found.items() if not result.stdout}
    assert empty <= QUIET, {line: found[line] for line in empty - QUIET}
    failed = {line: result for line, result in found.items() if result.code and line not in empty}
    assert failed == {}
    assert {line: result.stderr for line, result in found.items() if result.stderr} == {}


def test_commands_for_edge_clusters_run_in_a_workspace_for_workloads(shard: ShardProcess, shell: Shell) -> None:
    lines = [line for line in commands() if line.startswith("kubectl atoll edge")]
    assert len(lines) == 2
    inventory, workload = Api(shard, "root:imw1"), Api(shard, "root:wmw1")
    eventually(lambda: inventory.send("GET", f"{GROUP}/synctargets").code == 200, "the inventory is initialized")
    inventory.post(f"{GROUP}/synctargets", an_object("SyncTarget", "florin", id="florin"), expect=201)
    inventory.post(f"{GROUP}/locations", location("florin"), expect=201)
    eventually(lambda: workload.send("GET", f"{GROUP}/edgeplacements").code == 200, "the workspace is initialized")
    workload.post("/api/v1/namespaces/default/configmaps", configmap("tide"), expect=201)
    shell.ok("kubectl config use-context root && kubectl ws root:wmw1")
    for line in lines:
        assert shell.ok(line.replace("NAME", "tide").replace("LOCATION", "florin"), COMMAND_S)
    for api in (inventory, workload):
        api.close()
