"""A container engine of the tests' own, and the image of the project built in it.

    with ContainerEngine(directory) as engine:            # skips where none can start, and says why
        image = engine.built()                            # the image of infra/Dockerfile, by its id
        with engine.container(image, ["atoll", "version"]) as container: ...

The engine has its own socket, store and network of the host; it and all of its containers end with the context. Its
base image is made by debootstrap, once for all runs, as no registry is needed then.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import pytest
from docker.client import DockerClient
from docker.errors import DockerException
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

from harness.clients.api import eventually
from harness.clients.go_programs import cache_folder
from harness.environment import ROOT

#: HAProxy is for the site of compose, whose balancer is an image of a registry elsewhere.
_SUITE, _PACKAGES = "bookworm", "python3,python3-venv,ca-certificates,haproxy"
_REPOSITORY, _TAG = "atoll-base", "test"
BASE, _IMAGE = f"{_REPOSITORY}:{_TAG}", "atoll:test"
_START_TIMEOUT_S, _BUILD_TIMEOUT_S = 60.0, 900.0
#: Root file systems of containers are read-only, and processes have no capability and get none.
RESTRICTIONS: Mapping[str, Any] = {
    "read_only": True,
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges"],
    "network_mode": "host",
}


class ContainerEngine:
    """`directory` is empty, on a disk, and holds everything."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.socket = directory, f"unix://{directory}/engine.sock"
        self.wheels = directory / "image"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        for program in ("dockerd", "containerd", "runc", "debootstrap"):
            if shutil.which(program) is None:
                pytest.skip(f"no container engine: {program} is not installed")
        if os.geteuid() != 0:
            pytest.skip("no container engine: it needs root")
        log = (self.directory / "engine.log").open("wb")
        flags = ["--iptables=false", "--ip6tables=false", "--bridge=none"]
        places = [f"--data-root={self.directory}/data", f"--exec-root={self.directory}/run"]
        files = [f"--host={self.socket}", f"--pidfile={self.directory}/engine.pid"]
        self._process = subprocess.Popen(["dockerd", *flags, *places, *files], stdout=log, stderr=log)
        log.close()
        try:
            eventually(self._answers, "the container engine answers", _START_TIMEOUT_S)
        except AssertionError:
            text = (self.directory / "engine.log").read_text()
            self._end()
            pytest.skip(f"no container engine: dockerd does not start here: {text[-500:]}")
        testcontainers_config.ryuk_disabled = True
        return self

    def __exit__(self, *error: object) -> None:
        with self.client() as client:
            for container in client.containers.list(all=True):
                container.remove(force=True)
            client.networks.prune()
        self._end()

    def built(self) -> str:
        """Build the image of this checkout on a Debian of its own; return its name."""
        command = [str(ROOT / "infra/image/build"), str(self.wheels)]
        subprocess.run(command, env={**os.environ, "PYTHON": sys.executable}, timeout=_BUILD_TIMEOUT_S, check=True)
        dockerfile, base = str(ROOT / "infra/Dockerfile"), self.base()
        with self.client() as client:
            client.images.build(path=str(self.wheels), dockerfile=dockerfile, tag=_IMAGE, buildargs={"BASE": base})
        return _IMAGE

    def base(self) -> str:
        """Import the Debian that the image is built on, which has HAProxy besides; return its name."""
        with self.client() as client:
            if not client.images.list(name=BASE):
                with _base().open("rb") as archive:
                    client.api.import_image_from_data(archive.read(), repository=_REPOSITORY, tag=_TAG)
        return BASE

    def inspected(self, image: str) -> dict[str, Any]:
        """What the engine knows of an image."""
        with self.client() as client:
            found: dict[str, Any] = client.images.get(image).attrs
            return {**found, "History": client.images.get(image).history()}

    @contextlib.contextmanager
    def container(
        self, image: str, command: Sequence[str], volumes: Mapping[Path, str] | None = None
    ) -> Iterator[DockerContainer]:
        """A container with these directories of the host mounted, under `RESTRICTIONS`."""
        made = DockerContainer(image, docker_client_kw={"environment": {"DOCKER_HOST": self.socket}}, **RESTRICTIONS)
        made.with_command(list(command)).with_tmpfs_mount("/tmp")
        for place, path in (volumes or {}).items():
            made.with_volume_mapping(str(place), path, "rw")
        with made:
            yield made

    @contextlib.contextmanager
    def client(self) -> Iterator[DockerClient]:
        """A client of the engine. Raises DockerException."""
        with contextlib.closing(DockerClient(base_url=self.socket, timeout=int(_BUILD_TIMEOUT_S))) as found:
            yield found

    def _answers(self) -> bool:
        try:
            with self.client() as client:
                return bool(client.ping())
        except DockerException:
            return False

    def _end(self) -> None:
        assert self._process is not None, "entered"
        self._process.send_signal(signal.SIGTERM)
        self._process.wait()


def _base() -> Path:
    """A Debian with Python as an archive, made on first use."""
    name = f"base-{_SUITE}-{hashlib.sha256(_PACKAGES.encode()).hexdigest()[:8]}"
    archive = cache_folder() / f"{name}.tar"
    if not archive.exists():
        root, partial = cache_folder() / name, archive.with_suffix(".partial")
        shutil.rmtree(root, ignore_errors=True)
        command = ["debootstrap", "--variant=minbase", f"--include={_PACKAGES}", _SUITE, str(root)]
        subprocess.run(command, stdout=subprocess.DEVNULL, timeout=_BUILD_TIMEOUT_S, check=True)
        pack = ["tar", "--create", "--file", str(partial), "--directory", str(root), "--exclude=./proc/*", "."]
        subprocess.run(pack, check=True)
        shutil.rmtree(root)
        partial.rename(archive)
    return archive
