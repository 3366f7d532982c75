"""`atoll start --shards 3`: one command, kubectl, and the files on disk."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import aclosing
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from atoll.events import changes
from atoll.machinery.process.pki import make_ca, make_client
from atoll.machinery.process.private_files import write_pair
from atoll.standalone.site.child_process import environment
from harness.clients.api import eventually
from harness.clients.kubectl import Kubectl
from harness.environment import SERVER_PATH
from harness.servers.processes import atoll, children, found_below, is_alive, own_address

START_TIMEOUT_S, STOP_TIMEOUT_S = 120.0, 90.0
#: Processes beside shards and NATS, as their command lines have them.
OTHERS = ("front-proxy", "event-gateway", "edge-init", "edge-controllers")
#: Files of a pair by the field of a kubeconfig.
PARTS = {"certificate": "crt", "key": "key"}
TYPE = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ships.example.com}
spec:
  group: example.com
  names: {kind: Ship, plural: ships, singular: ship}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
"""


class StartedSite:
    """One `atoll start --shards N`."""

    def __init__(self, directory: Path, *flags: str) -> None:
        self.root = directory / "site"
        self.kubeconfig = self.root / "admin.kubeconfig"
        self.out, self.err = directory / "out", directory / "err"
        self.flags = flags
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def said(self) -> str:
        return self.out.read_text()

    def start(self) -> None:
        command = [
            sys.executable,
            "-m",
            "atoll.cli",
            "start",
            "--root-directory",
            str(self.root),
            "--secure-port",
            "0",
            "--allow-any-filesystem",
            *self.flags,
        ]
        with self.out.open("wb") as out, self.err.open("ab") as err:
            self._process = subprocess.Popen(
                command,
                env={**environment(), "PYTHONPATH": SERVER_PATH},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while "atoll serves" not in self.said:
            assert self._process.poll() is None, self.err.read_text()[-4000:]
            assert time.monotonic() < deadline, self.err.read_text()[-4000:]
            time.sleep(0.05)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(number)
        try:
            return self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"still there:\n{self.err.read_text()[-4000:]}") from None

    def processes(self) -> dict[str, int]:
        """Process ids by name."""
        found: dict[str, int] = {}
        for pid, command in children(self.pid).items():
            named = re.search(r"--shard-name=(\S+)", command)
            others = (each for each in OTHERS if each in command)
            found[named[1] if named else next(others, "nats")] = pid
        return found


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedSite]:
    directory = tmp_path_factory.mktemp("started")
    write_pair(directory, "users", authority := make_ca("users"))
    write_pair(directory, "carol", make_client(authority, "carol", ["system:kcp:admin"]))
    users = ("--client-ca-file", str(directory / "users.crt"), "--batteries-included=+user")
    site = StartedSite(directory, "--shards", "3", "--edge", "--events-bind-address", own_address(), *users)
    try:
        site.start()
        yield site
    finally:
        site.end()


@pytest.fixture
def kubectl(started: StartedSite, tmp_path: Path) -> Kubectl:
    return Kubectl(tmp_path, started.kubeconfig)


@pytest.mark.long
def test_a_new_user_works_in_workspaces_without_knowing_of_shards(started: StartedSite, kubectl: Kubectl) -> None:
    assert "export KUBECONFIG=" in started.said
    for name in ("north", "south", "east", "west"):
        kubectl.ok("create", "workspace", name, "--type", "root:universal")
        eventually(
            partial(
                lambda name: kubectl.ok("get", "workspace", name, "-o", "jsonpath={.status.phase}") == "Ready", name
            )
        )
        kubectl.ok("ws", f"root:{name}")
        kubectl.ok("create", "configmap", "hello", f"--from-literal=from={name}")
        kubectl.ok("apply", "-f", "-", stdin=TYPE)
        kubectl.ok("wait", "--for=condition=Established", "crd/ships.example.com")
        assert kubectl.ok("get", "configmap", "hello", "-o", "jsonpath={.data.from}") == name
        kubectl.ok("ws", "root")
    shards = kubectl.ok("get", "shards", "-o", "name").split()
    assert shards == ["shard.core.kcp.io/root", "shard.core.kcp.io/shard-1", "shard.core.kcp.io/shard-2"]


async def test_the_operator_reads_the_changes_of_each_shard_over_tls(started: StartedSite) -> None:
    for shard in ("root", "shard-1", "shard-2"):
        (server,) = json.loads((started.root / f"shards/{shard}/stream.json").read_text())["connect"]["servers"]
        assert urlsplit(server).scheme == "tls"
        reading = changes(started.root / "shards" / shard / "stream.json")
        async with asyncio.timeout(30), aclosing(reading):
            assert (await anext(reading)).operation == "ADDED"


@pytest.mark.long
def test_the_edge_service_runs_beside_the_shards(started: StartedSite, kubectl: Kubectl) -> None:
    eventually(lambda: "edge-controllers" in started.processes(), "the controllers run")
    eventually(lambda: kubectl.run("ws", "root:imw1").code == 0, "the inventory")
    head = {"apiVersion": "edge.kubestellar.io/v2alpha1", "kind": "SyncTarget", "metadata": {"name": "florin"}}
    eventually(lambda: kubectl.run("apply", "-f", "-", stdin=json.dumps(head)).code == 0, "it is initialized")
    uid = kubectl.ok("get", "synctarget", "florin", "-o", "jsonpath={.metadata.uid}")
    kubectl.ok("ws", "root:espw")
    eventually(lambda: f"-mb-{uid}" in kubectl.ok("get", "workspaces", "-o", "name"), "its mailbox")
    kubectl.ok("ws", "root")


def test_the_kubeconfig_has_kcps_contexts(started: StartedSite, kubectl: Kubectl) -> None:
    contexts = {entry["name"]: entry["context"] for entry in yaml.safe_load(started.kubeconfig.read_text())["contexts"]}
    assert set(contexts) >= {"root", "base", "system:admin", "shard-base"}
    assert "north" not in kubectl.ok("--context", "base", "get", "--raw", "/version")
    kubectl.ok("--context", "system:admin", "get", "clusterroles")
    everywhere = "/clusters/*/apis/core.kcp.io/v1alpha1/logicalclusters"
    assert "system:shard" in kubectl.ok("--context", "shard-base", "get", "--raw", everywhere)
    refused = kubectl.run("--context", "base", "get", "--raw", "/clusters/system:shard/api/v1/configmaps")
    assert refused.code != 0


def test_certificates_of_the_operators_authority_are_users_at_the_proxy_and_at_shards(
    started: StartedSite, kubectl: Kubectl
) -> None:
    config = yaml.safe_load(started.kubeconfig.read_text())
    pair = {f"client-{part}": str(started.root.parent / f"carol.{end}") for part, end in PARTS.items()}
    config["users"].append({"name": "carol", "user": pair})
    (kubectl.home / "carol").write_text(yaml.safe_dump(config))
    servers = {each["name"]: each["cluster"]["server"] for each in config["clusters"]}
    for name in ("base", "shard-base"):
        flags = (
            "--kubeconfig",
            str(kubectl.home / "carol"),
            "--user",
            "carol",
            "--server",
            f"{servers[name]}/clusters/root",
        )
        assert kubectl.ok(*flags, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}") == "carol"


def test_the_user_of_its_battery_is_in_no_group(started: StartedSite, kubectl: Kubectl) -> None:
    found = kubectl.ok("--context", "root", "--user", "user", "auth", "whoami", "-o", "jsonpath={.status.userInfo}")
    assert (json.loads(found)["username"], json.loads(found)["groups"]) == ("user", ["system:authenticated"])


def test_keys_and_passwords_are_their_owners_alone(started: StartedSite) -> None:
    for path, found in found_below(started.root).items():
        if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
            continue
        secret = stat.S_ISDIR(found.st_mode) or {".key", ".kubeconfig", ".json", ".conf"} & set(path.suffixes)
        assert not secret or found.st_mode & 0o077 == 0, (path, oct(found.st_mode))
    assert stat.S_IMODE(started.root.stat().st_mode) == 0o700


def test_no_secret_stands_in_a_command_line(started: StartedSite) -> None:
    secrets = [path.read_text() for path in (started.root / "pki").glob("nats-*.json")]
    passwords = [re.search(r'"password": "(\S+)"', text) for text in secrets]
    assert len(passwords) >= 4
    shown = "".join(children(started.pid).values())
    for password in passwords:
        assert password is not None
        assert password[1] not in shown


def test_a_process_that_dies_is_started_again(started: StartedSite, kubectl: Kubectl) -> None:
    running = {"root", "shard-1", "shard-2", "front-proxy", "event-gateway", "nats", "edge-controllers"}
    eventually(lambda: set(started.processes()) == running, "the controllers run, and what sets up the edge has ended")
    before = started.processes()
    for name in ("shard-1", "front-proxy"):
        os.kill(before[name], signal.SIGKILL)
    for name in ("shard-1", "front-proxy"):
        eventually(
            partial(lambda name: started.processes().get(name, before[name]) != before[name], name), f"{name} again"
        )
    eventually(lambda: kubectl.run("get", "shards").code == 0, "the proxy answers again")
    log = started.err.read_text()
    assert log.count('"event":"process exited"') == 2


def test_a_second_one_on_the_same_directory_is_refused(started: StartedSite) -> None:
    result = atoll("start", "--root-directory", str(started.root), "--shards", "3", "--allow-any-filesystem")
    assert result.code == 1
    assert "another process runs the site" in result.stderr


@pytest.mark.long
def test_a_site_goes_on_where_it_was_with_its_addresses(started: StartedSite, kubectl: Kubectl) -> None:
    kubectl.ok("create", "workspace", "kept", "--type", "root:universal")
    eventually(lambda: kubectl.ok("get", "workspace", "kept", "-o", "jsonpath={.status.phase}") == "Ready")
    before, pids = yaml.safe_load(started.kubeconfig.read_text()), started.processes()
    assert started.end() == 0
    assert not any(is_alive(pid) for pid in pids.values())
    started.start()
    assert yaml.safe_load(started.kubeconfig.read_text())["clusters"] == before["clusters"]
    assert kubectl.ok("get", "workspace", "kept", "-o", "jsonpath={.status.phase}") == "Ready"
    kubectl.ok("ws", "root:kept")
    kubectl.ok("create", "configmap", "again")
    kubectl.ok("ws", "root")


def test_processes_of_a_site_do_not_outlive_who_started_them(started: StartedSite) -> None:
    pids = started.processes()
    started.end(signal.SIGKILL)
    eventually(lambda: not any(is_alive(pid) for pid in pids.values()), "the end of all")
