"""The site of `infra/compose.yaml` in a container engine of the tests' own.

    with ComposeSite(engine, directory) as site:          # built and started by the one command of the README
        site.compose("pause", "nats-0")
        kubectl = Kubectl(directory, site.kubeconfig())

The engine's DNS needs iptables, which it runs without: an override gives every container a fixed address, and the names
of the others. Everything else is as in the file that is shipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self
from unittest import mock

import docker.models.containers
import pytest
import yaml
from testcontainers.compose import DockerCompose

from atoll.standalone.site.layout import Ports
from harness.clients.api import eventually
from harness.clients.kubectl import SCRIPTS
from harness.environment import ROOT
from harness.servers.container_engine import BASE, ContainerEngine

FILE = ROOT / "infra/compose.yaml"
_SUBNET, _FIRST = "10.213.77", 10
_COMMAND_TIMEOUT_S, _HEALTHY_TIMEOUT_S = 300.0, 120.0


class ComposeSite:
    """`directory` becomes the project: a copy of `infra`, with the wheels of the image."""

    def __init__(self, engine: ContainerEngine, directory: Path) -> None:
        if shutil.which("docker") is None or not (SCRIPTS / "docker-compose").exists():
            pytest.skip("no compose: docker's command or docker-compose is not installed")
        self._engine, self.project = engine, directory / "infra"
        self._ports = Ports("127.0.0.1")
        self.port, self.events_port = self._ports.reserve(0), self._ports.reserve(0)
        shutil.copytree(ROOT / "infra", self.project)
        shutil.copytree(engine.wheels, self.wheels)
        plugins = directory / "docker/cli-plugins"
        plugins.mkdir(parents=True)
        (plugins / "docker-compose").symlink_to(SCRIPTS / "docker-compose")
        self._environment = {"DOCKER_HOST": engine.socket, "DOCKER_CONFIG": str(plugins.parent)}
        self.services = [
            name for name, each in yaml.safe_load(FILE.read_text())["services"].items() if "restart" in each
        ]
        settings = {"BASE": BASE, "BALANCER_IMAGE": BASE, "PORT": self.port, "EVENTS_PORT": self.events_port}
        (self.project / ".env").write_text("".join(f"ATOLL_{name}={value}\n" for name, value in settings.items()))
        (self.project / "override.yaml").write_text(yaml.safe_dump(self._override()))
        files = ["compose.yaml", "override.yaml"]
        self._compose = DockerCompose(self.project, files, build=True, wait=True, docker_command_path="docker")

    @property
    def wheels(self) -> Path:
        """What the image is built of."""
        return self.project / "wheels"

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(self, *error: object) -> None:
        with self._reached():
            self._compose.stop()
        self._ports.close()

    def up(self) -> float:
        """`up --build --wait`; return how long it took, in seconds."""
        began = time.monotonic()
        with self._reached():
            self._compose.start()
        return time.monotonic() - began

    def compose(self, *arguments: str) -> str:
        """Any other command of compose; return its output."""
        command = [*self._compose.docker_compose_command(), *arguments]
        done = subprocess.run(
            command, env=os.environ | self._environment, cwd=self.project, capture_output=True,
            text=True, timeout=_COMMAND_TIMEOUT_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def kubeconfig(self) -> Path:
        """That of administrators, fetched as the README says."""
        self.compose("cp", "certs:/var/lib/atoll/admin.kubeconfig", "admin.kubeconfig")
        return self.project / "admin.kubeconfig"

    def url(self, workspace: str) -> str:
        """The URL of a workspace."""
        return f"https://localhost:{self.port}/clusters/{workspace}"

    def kill(self, service: str) -> None:
        """End the main process of a container as a crash does; return once the engine started another one."""
        with self._container(service) as container:
            before = container.attrs["RestartCount"]
            os.kill(container.attrs["State"]["Pid"], 9)

        def restarted() -> bool:
            with self._container(service) as container:
                return bool(container.attrs["RestartCount"] > before)

        eventually(restarted, f"{service} is started again", _HEALTHY_TIMEOUT_S)

    def healthy(self, service: str) -> None:
        """Return once the health check of a container says so."""

        def is_healthy() -> bool:
            with self._container(service) as container:
                state = container.attrs["State"]
                return bool(state["Status"] == "running" and state["Health"]["Status"] == "healthy")

        eventually(is_healthy, f"{service} is healthy", _HEALTHY_TIMEOUT_S)

    def id(self, service: str) -> str:
        """The container of a service."""
        with self._container(service) as container:
            return str(container.id)

    def memory_bytes(self) -> int:
        """What the processes of all containers hold, each shared page counted once."""
        with self._engine.client() as client:
            running = [container.top()["Processes"] for container in client.containers.list()]
        return sum(_proportional_bytes(int(process[1])) for processes in running for process in processes)

    def _override(self) -> dict[str, object]:
        addresses = {name: f"{_SUBNET}.{_FIRST + number}" for number, name in enumerate(self.services)}
        hosts = [f"{name}:{address}" for name, address in addresses.items()]
        services = {
            name: {"networks": {"default": {"ipv4_address": address}}, "extra_hosts": hosts}
            for name, address in addresses.items()
        }
        return {"services": services, "networks": {"default": {"ipam": {"config": [{"subnet": f"{_SUBNET}.0/24"}]}}}}

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """testcontainers starts compose with the environment of this process."""
        with mock.patch.dict(os.environ, self._environment):
            yield

    @contextmanager
    def _container(self, service: str) -> Iterator[docker.models.containers.Container]:
        with self._engine.client() as client:
            (found,) = client.containers.list(all=True, filters={"label": f"com.docker.compose.service={service}"})
            yield found


def _proportional_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
