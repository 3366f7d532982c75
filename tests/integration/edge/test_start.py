"""`atoll start --edge`: one command with the edge service beside the shard."""

from __future__ import annotations

import os
import signal
import ssl
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from atoll.machinery.process import pki
from atoll.machinery.process.listen_address import PORT_FILE
from harness.clients.api import Api, Object, eventually
from harness.oracles.audit_log import audit_events
from harness.servers.edge_service import GROUP, administrator, an_object, answer_of
from harness.servers.processes import children, is_alive
from harness.servers.shard_process import ShardProcess

HOME, INVENTORY = "root:espw", "root:imw1"
WORKSPACES = "/apis/tenancy.kcp.io/v1alpha1/workspaces"
WRITTEN = (
    WORKSPACES,
    "/apis/tenancy.kcp.io/v1alpha1/workspacetypes",
    "/apis/apis.kcp.io/v1alpha2/apiexports",
    "/apis/apis.kcp.io/v1alpha1/apiresourceschemas",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/api/v1/namespaces/edge/serviceaccounts",
    "/api/v1/namespaces/edge/secrets",
)


CLIENTS = pki.make_ca("clients of the shard")


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardProcess]:
    directory = tmp_path_factory.mktemp("edge-start")
    (directory / "clients.crt").write_bytes(CLIENTS.certificate)
    audit, clients = str(directory / "audit.log"), str(directory / "clients.crt")
    flags = ("--edge", "true", "--audit-log-path", audit, "--client-ca-file", clients)
    with ShardProcess(directory, *flags) as running:
        inventory = Api(running, INVENTORY)
        eventually(lambda: inventory.send("GET", f"{GROUP}/synctargets").code == 200, "the inventory is initialized")
        inventory.close()
        yield running


def revisions(api: Api) -> dict[str, str]:
    """The revision of every object of the service, by path and name."""
    lists: list[tuple[str, Object]] = [(path, each) for path in WRITTEN for each in api.get(path).json["items"]]
    return {f"{path}/{each['metadata']['name']}": each["metadata"]["resourceVersion"] for path, each in lists}


def installer_requests(shard: ShardProcess) -> Counter[str]:
    """The requests of `edge-init`, by their verbs."""
    events = audit_events(shard.root.parent / "audit.log")
    return Counter(each["verb"] for each in events if each.get("userAgent") == "edge-init")


def has_mailbox(home: Api, uid: str) -> bool:
    found = home.get(WORKSPACES).json["items"]
    return any(each["metadata"]["name"].endswith(uid) and each["status"].get("phase") == "Ready" for each in found)


def controllers(shard: ShardProcess) -> list[int]:
    """Process ids of the controllers below the shard."""
    return [pid for pid, command in children(shard.pid).items() if "edge-controllers" in command]


def test_the_service_runs_beside_the_shard_and_a_second_start_changes_nothing(shard: ShardProcess) -> None:
    inventory, home = Api(shard, INVENTORY), Api(shard, HOME)
    made = inventory.post(f"{GROUP}/synctargets", an_object("SyncTarget", "one")).json
    eventually(lambda: has_mailbox(home, made["metadata"]["uid"]), "the mailbox is there")
    # A Workspace is written once more after it is Ready.
    before = eventually(lambda: (seen := revisions(home)) == revisions(home) and seen, "nothing is written any more")
    running = controllers(shard)
    assert len(running) == 1
    for api in (inventory, home):
        api.close()
    shard.stop()
    first = installer_requests(shard)
    assert first["create"]
    assert not any(map(is_alive, running)), "it ends with the shard"
    shard.start()
    inventory, home = Api(shard, INVENTORY), Api(shard, HOME)
    made = inventory.post(f"{GROUP}/synctargets", an_object("SyncTarget", "two")).json
    eventually(lambda: has_mailbox(home, made["metadata"]["uid"]), "the controllers work again")
    (process,) = controllers(shard)
    assert "re2" not in Path(f"/proc/{process}/maps").read_text(), "without collectors it loads no library of CEL"
    assert not (shard.root / "edge" / "serving-ca.crt").exists(), "it serves with the certificate of the shard"
    after = revisions(home)
    assert {name: after.get(name) for name in before} == before
    again = installer_requests(shard) - first
    assert again["get"] and again.keys() <= {"get", "watch", "list"}, again
    for api in (inventory, home):
        api.close()


@pytest.mark.long
def test_controllers_that_die_are_started_again(shard: ShardProcess) -> None:
    inventory, home = Api(shard, INVENTORY), Api(shard, HOME)
    (before,) = eventually(lambda: controllers(shard), "the controllers run")
    os.kill(before, signal.SIGKILL)
    made = inventory.post(f"{GROUP}/synctargets", an_object("SyncTarget", "three")).json
    eventually(lambda: has_mailbox(home, made["metadata"]["uid"]), "the controllers work again")
    assert controllers(shard) != [before]
    for api in (inventory, home):
        api.close()


@pytest.mark.long
def test_administrators_by_certificate_read_the_metrics_of_the_controllers(shard: ShardProcess) -> None:
    file, client = shard.root / "edge" / PORT_FILE, administrator(CLIENTS, shard.root.parent)

    def metrics(context: ssl.SSLContext | None = None) -> tuple[int, str]:
        try:
            return answer_of(f"https://127.0.0.1:{file.read_text().strip()}", "/metrics", context)
        except OSError:
            return 0, ""

    code, text = eventually(lambda: (found := metrics(client))[0] and found, "the controllers answer")
    assert code == 200
    assert "workqueue_depth" in text
    assert eventually(lambda: metrics()[0], "they answer") == 403
