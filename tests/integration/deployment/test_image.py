"""The image `infra/Dockerfile`: every process of a site starts, serves and drains in it, with no right to spare.

Long: the image is built from scratch, on a Debian that debootstrap makes. Skipped where no container engine can start.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Self

import pytest
import yaml
from testcontainers.core.container import DockerContainer

from atoll.standalone.site.layout import Ports
from harness.clients.api import eventually
from harness.clients.kubectl import Kubectl, entered
from harness.environment import ROOT
from harness.servers.container_engine import ContainerEngine

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1800),
    # The engine's client leaves its sockets to the collector of garbage.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]

USER = 65532
PYTHON = "/opt/atoll/bin/python"
#: The processes of a site by their names: kind, and what starts it.
PROCESSES = {
    "nats-0": "nats-server",
    "root": "shard",
    "proxy-0": "front-proxy",
    "cache-0": "cache-server",
    "gateway-0": "event-gateway",
    "edge-0": "edge-controllers",
}
#: The processes of kcp's kinds; others name their directory in another way, and are given NATS' authority only.
ROOTED = ("shard", "front-proxy", "cache-server")
#: What `atoll edge-init` writes, for the edge controllers.
EDGE_KUBECONFIG = "edge-0/edge.kubeconfig"


def owned(directory: Path) -> Path:
    """A directory of the image's user."""
    directory.mkdir()
    shutil.chown(directory, USER, USER)
    return directory


def ended(container: DockerContainer) -> int:
    """SIGTERM, and the exit code once it ended by itself."""
    wrapped = container.get_wrapped_container()
    wrapped.kill("SIGTERM")
    return int(wrapped.wait(timeout=60)["StatusCode"])


def command(name: str) -> list[str]:
    if PROCESSES[name] == "nats-server":
        return ["nats-server", "--config", f"/etc/atoll/{name}/server.conf"]
    directory = "--root-directory" if PROCESSES[name] in ROOTED else "--directory"
    # The directory of a test may be on a file system of memory.
    more = [] if PROCESSES[name] == "cache-server" else ["--allow-any-filesystem=true"]
    settings = f"--config=/etc/atoll/{name}/settings.yaml"
    if PROCESSES[name] == "edge-controllers":
        more.append(f"--kubeconfig=/etc/atoll/{EDGE_KUBECONFIG}")
    return ["atoll", PROCESSES[name], settings, f"{directory}=/var/lib/atoll", "--bind-address=127.0.0.1", *more]


class Containers:
    """Containers of the image until the context ends; `site` is where `atoll certs` makes the files of all."""

    def __init__(self, engine: ContainerEngine, image: str, directory: Path) -> None:
        self._engine, self._image, self._directory = engine, image, directory
        self._stack = contextlib.ExitStack()
        self.site = owned(directory / "site")
        self.running: dict[str, DockerContainer] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def run(self, *command: str) -> None:
        """Run a command that ends, with all files of the site."""
        with self._engine.container(self._image, command, {self.site: "/site"}) as container:
            assert container.get_wrapped_container().wait(timeout=120)["StatusCode"] == 0, container.get_logs()

    def start(self, name: str, command: list[str], files: Path, mount: str, health: list[str]) -> None:
        """Start a process with its files, and wait until a command in its container says that it serves."""
        volumes = {files: mount, owned(self._directory / f"data-{name}"): "/var/lib/atoll"}
        container = self._stack.enter_context(self._engine.container(self._image, command, volumes))
        self.running[name] = container
        eventually(lambda: container.exec(health).exit_code == 0, f"{name} is healthy")


def test_a_site_starts_serves_and_drains_in_containers(engine: ContainerEngine, image: str, tmp_path: Path) -> None:
    ports = Ports("127.0.0.1")
    where = {name: ports.reserve(0) for name in PROCESSES}
    hosts = [f"{kind}/{name}=127.0.0.1:{where[name]}" for name, kind in PROCESSES.items()]
    url = f"https://127.0.0.1:{where['proxy-0']}"
    with Containers(engine, image, tmp_path) as containers:
        site = containers.site
        made = ["--directory=/site", f"--external-url={url}", "--installed-at=/etc/atoll/{name}", *hosts]
        containers.run("atoll", "certs", "init", *made)
        for name, kind in PROCESSES.items():
            if kind == "edge-controllers":
                output = f"--output=/site/{EDGE_KUBECONFIG}"
                containers.run("atoll", "edge-init", "--kubeconfig=/site/admin.kubeconfig", output)
            containers.start(name, command(name), site / name, f"/etc/atoll/{name}", health(name, where[name]))
        kubectl = Kubectl(tmp_path, site / "admin.kubeconfig")
        kubectl.ok("create", "configmap", "kept", "--from-literal=a=b")
        assert kubectl.ok("get", "configmap", "kept", "-o", "jsonpath={.data.a}") == "b"
        start_syncer(containers, kubectl, ports.reserve(0), tmp_path)
        for container in containers.running.values():
            assert_restricted(container)
        for name, container in reversed(containers.running.items()):
            assert ended(container) in ((0, 1) if PROCESSES.get(name) == "nats-server" else (0,)), name
    ports.close()


def health(name: str, port: int) -> list[str]:
    scheme, path = ("tls", "") if PROCESSES[name] == "nats-server" else ("https", "/readyz")
    ca = "serving-ca.crt" if PROCESSES[name] in (*ROOTED, "nats-server") else "nats-ca.crt"
    return ["atoll", "health", f"{scheme}://127.0.0.1:{port}{path}", f"--ca-file=/etc/atoll/{name}/{ca}"]


def start_syncer(containers: Containers, kubectl: Kubectl, port: int, directory: Path) -> None:
    """The syncer of a new SyncTarget, as its manifest says; another workspace stands for the edge cluster."""
    files, manifest = directory / "syncer", directory / "manifest.yaml"
    files.mkdir()
    registered = ["prep-for-cluster", "--imw", "root:imw1", "edge-1", "env=test", "-o", str(manifest)]
    kubectl.ok("kubestellar", *registered, timeout_s=120.0)
    objects = list(yaml.safe_load_all(manifest.read_text()))
    for name, text in next(each["stringData"] for each in objects if "stringData" in each).items():
        (files / name).write_text(text)
    (container,) = objects[-1]["spec"]["template"]["spec"]["containers"]
    (mount,) = container["volumeMounts"]
    shutil.copy(entered(kubectl.kubeconfig, owned(directory / "edge")), files / "edge.kubeconfig")
    for path in (files, *files.iterdir()):
        shutil.chown(path, USER, USER)
    kept = [each for each in container["args"] if not each.startswith(("--bind-address=", "--port=", "--secret="))]
    own = [f"--to-kubeconfig={mount['mountPath']}/edge.kubeconfig", "--bind-address=127.0.0.1", f"--port={port}"]
    asks = f"import urllib.request as r; r.urlopen('http://127.0.0.1:{port}/readyz')"
    containers.start("syncer", [*container["command"], *kept, *own], files, mount["mountPath"], [PYTHON, "-c", asks])


def assert_restricted(container: DockerContainer) -> None:
    """It is process 1 itself, as the user of the image, and may become nothing else."""
    status = container.exec([PYTHON, "-c", "print(open('/proc/1/status').read())"]).output.decode()
    found = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert found["Uid"].split() == [str(USER)] * 4
    assert (found["CapEff"], found["CapBnd"], found["NoNewPrivs"]) == ("0" * 16, "0" * 16, "1")
    assert container.exec([PYTHON, "-c", "open('/opt/atoll/x', 'w')"]).exit_code == 1


def test_a_process_that_does_not_serve_is_unhealthy(engine: ContainerEngine, image: str, tmp_path: Path) -> None:
    with engine.container(image, ["atoll", "health", "https://127.0.0.1:9/readyz"]) as asking:
        assert asking.get_wrapped_container().wait(timeout=60)["StatusCode"] == 1


def test_the_image_has_no_shell_to_start_no_installer_and_no_secret(engine: ContainerEngine, image: str) -> None:
    found = engine.inspected(image)
    assert found["Config"]["User"] == f"{USER}:{USER}"
    assert found["Config"]["Entrypoint"] in (None, [])
    assert found["Config"]["Cmd"] == ["atoll"]
    assert {variable.partition("=")[0] for variable in found["Config"]["Env"]} == {"PATH", "PYTHONDONTWRITEBYTECODE"}
    for absent in ("pip", "setuptools"):
        with engine.container(image, [PYTHON, "-c", f"import {absent}"]) as trying:
            assert trying.get_wrapped_container().wait(timeout=60)["StatusCode"] == 1


def test_everything_in_it_is_pinned_listed_and_licensed(engine: ContainerEngine, image: str) -> None:
    made = engine.wheels
    wheels = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in made.glob("*.whl")}
    required = dict(line.split(" --hash=sha256:") for line in (made / "requirements.txt").read_text().splitlines())
    assert sorted(required.values()) == sorted(wheels.values())
    components = {each["name"] for each in json.loads((made / "sbom.json").read_text())["components"]}
    assert components == {name.partition("==")[0] for name in required}
    licences = dict(line.split(": ", 1) for line in (made / "licences.txt").read_text().splitlines())
    assert len(licences) == len(required)
    assert "not named" not in licences.values()
    locked = (ROOT / "infra/image/requirements.lock").read_text().splitlines()
    assert {line.partition("==")[0] for line in locked} | {"atoll"} == {name.lower() for name in components}


def test_two_builds_of_the_wheel_are_equal(engine: ContainerEngine, image: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run(command, env={**os.environ, "SOURCE_DATE_EPOCH": "1577836800"}, timeout=300, check=True)
    (again,) = tmp_path.glob("*.whl")
    assert again.read_bytes() == (engine.wheels / again.name).read_bytes()
