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
from collections.abc import Iterator
from pathlib import Path

import pytest
from testcontainers.core.container import DockerContainer

from atoll.standalone.site.layout import Ports
from harness.clients.api import eventually
from harness.clients.kubectl import Kubectl
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
}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContainerEngine]:
    with ContainerEngine(tmp_path_factory.mktemp("engine")) as running:
        yield running


@pytest.fixture(scope="module")
def image(engine: ContainerEngine) -> str:
    return engine.built()


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
    directory = "--directory" if PROCESSES[name] == "event-gateway" else "--root-directory"
    # The directory of a test may be on a file system of memory.
    more = [] if PROCESSES[name] == "cache-server" else ["--allow-any-filesystem=true"]
    settings = f"--config=/etc/atoll/{name}/settings.yaml"
    return ["atoll", PROCESSES[name], settings, f"{directory}=/var/lib/atoll", "--bind-address=127.0.0.1", *more]


def test_a_site_starts_serves_and_drains_in_containers(engine: ContainerEngine, image: str, tmp_path: Path) -> None:
    ports = Ports("127.0.0.1")
    where = {name: ports.reserve(0) for name in PROCESSES}
    site = owned(tmp_path / "site")
    hosts = [f"{kind}/{name}=127.0.0.1:{where[name]}" for name, kind in PROCESSES.items()]
    url = f"https://127.0.0.1:{where['proxy-0']}"
    init = ["atoll", "certs", "init", "--directory=/site", f"--external-url={url}", "--installed-at=/etc/atoll/{name}"]
    with engine.container(image, [*init, *hosts], {site: "/site"}) as certs:
        assert certs.get_wrapped_container().wait(timeout=120)["StatusCode"] == 0, certs.get_logs()
    with contextlib.ExitStack() as stack:
        running: dict[str, DockerContainer] = {}
        for name, kind in PROCESSES.items():
            volumes = {site / name: f"/etc/atoll/{name}", owned(tmp_path / name): "/var/lib/atoll"}
            running[name] = stack.enter_context(engine.container(image, command(name), volumes))
            scheme, path = ("tls", "") if kind == "nats-server" else ("https", "/readyz")
            health = ["atoll", "health", f"{scheme}://127.0.0.1:{where[name]}{path}"]
            health += [f"--ca-file=/etc/atoll/{name}/{'nats-ca.crt' if kind == 'event-gateway' else 'serving-ca.crt'}"]

            def serves(container: DockerContainer = running[name], health: list[str] = health) -> bool:
                return bool(container.exec(health).exit_code == 0)

            eventually(serves, f"{name} is healthy")
        kubectl = Kubectl(tmp_path, site / "admin.kubeconfig")
        kubectl.ok("create", "configmap", "kept", "--from-literal=a=b")
        assert kubectl.ok("get", "configmap", "kept", "-o", "jsonpath={.data.a}") == "b"
        for container in running.values():
            # It is process 1 itself, as the user of the image, and may become nothing else.
            status = container.exec([PYTHON, "-c", "print(open('/proc/1/status').read())"]).output.decode()
            found = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
            assert found["Uid"].split() == [str(USER)] * 4
            assert (found["CapEff"], found["CapBnd"], found["NoNewPrivs"]) == ("0" * 16, "0" * 16, "1")
            assert container.exec([PYTHON, "-c", "open('/opt/atoll/x', 'w')"]).exit_code == 1
        for name in reversed(running):
            assert ended(running[name]) in ((0, 1) if PROCESSES[name] == "nats-server" else (0,)), name
    ports.close()


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
    made = engine.directory / "image"
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
    assert again.read_bytes() == (engine.directory / "image" / again.name).read_bytes()
