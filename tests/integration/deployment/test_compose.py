"""The site of `infra/compose.yaml`: started by one command, it outlives the loss of each of its containers in turn.

Long: twelve containers. Skipped where no container engine can start, or compose is not installed.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import atoll.events
from harness.clients.api import eventually
from harness.clients.kubectl import Kubectl
from harness.environment import ROOT
from harness.servers.compose_site import FILE, ComposeSite
from harness.servers.container_engine import ContainerEngine

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1800),
    # The engine's client leaves its sockets to the collector of garbage.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]

SERVICES = [name for name, each in yaml.safe_load(FILE.read_text())["services"].items() if "restart" in each]
#: A workspace on each shard.
WORKSPACES = {"root": "root:one", "shard-1": "root:two"}
PATIENCE_S = 120.0
START_S, MEMORY_BYTES = 60.0, 1.2e9


class Follower:
    """Hears of the ConfigMaps of a workspace at the public address of NATS, for as long as the test runs."""

    def __init__(self, kubeconfig: Path, workspace: str) -> None:
        self._kubeconfig, self._workspace = str(kubeconfig), workspace
        self.names: set[str] = set()
        self.failure: Exception | None = None
        threading.Thread(target=lambda: asyncio.run(self._follow()), daemon=True).start()

    async def _follow(self) -> None:
        subscribed = atoll.events.subscribe(
            resources=["configmaps"], name="follower", cluster=self._workspace, kubeconfig=self._kubeconfig
        )
        try:
            async with subscribed as events:
                async for event in events:
                    if event.key is not None:
                        self.names.add(event.key.name)
        except Exception as error:
            self.failure = error

    def hears(self, name: str) -> None:
        def has_name() -> bool:
            assert self.failure is None, repr(self.failure)
            return name in self.names

        eventually(has_name, f"{self._workspace}: {name} is heard of", PATIENCE_S)


class Tenants:
    """Writes into both workspaces, and follows them."""

    def __init__(self, site: ComposeSite, kubectl: Kubectl) -> None:
        self._site, self._kubectl = site, kubectl
        for shard, workspace in WORKSPACES.items():
            name = workspace.partition(":")[2]
            selected = ["--location-selector", f"name={shard}", "--ignore-existing"]
            kubectl.ok("create", "workspace", name, *selected)
        self.followers = [Follower(kubectl.kubeconfig, workspace) for workspace in WORKSPACES.values()]

    def write(self, workspace: str, name: str) -> None:
        """Create a ConfigMap by kubectl, again until it is there."""

        def written() -> bool:
            at = f"--server={self._site.url(workspace)}"
            result = self._kubectl.run(at, "create", "configmap", name, "--request-timeout=10s")
            return result.code == 0 or "already exists" in result.stderr

        eventually(written, f"{name} is in {workspace}", PATIENCE_S)

    def write_all(self, name: str, without: str = "") -> None:
        """Write into the workspaces, but not into those of a shard that is away."""
        for shard, workspace in WORKSPACES.items():
            if shard != without:
                self.write(workspace, name)

    def hear(self, name: str) -> None:
        for follower in self.followers:
            follower.hears(name)

    def count(self, workspace: str) -> int:
        """The ConfigMaps of a workspace."""
        at = f"--server={self._site.url(workspace)}"
        return len(self._kubectl.ok(at, "get", "configmaps", "-o", "name").splitlines())


@pytest.fixture(scope="module")
def site(engine: ContainerEngine, image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComposeSite]:
    with ComposeSite(engine, tmp_path_factory.mktemp("compose")) as running:
        yield running


@pytest.fixture(scope="module")
def tenants(site: ComposeSite, tmp_path_factory: pytest.TempPathFactory) -> Tenants:
    return Tenants(site, Kubectl(tmp_path_factory.mktemp("kubectl"), site.kubeconfig()))


def test_a_site_is_up_within_a_minute_and_takes_little_memory(site: ComposeSite, tenants: Tenants) -> None:
    site.compose("down")
    took_s = site.up()
    tenants.write_all("started")
    memory = site.memory_bytes()
    print(f"up after {took_s:.1f} s, {memory / 1e6:.0f} MB")
    assert took_s < START_S
    assert memory < MEMORY_BYTES


@pytest.mark.parametrize("service", SERVICES)
def test_a_container_that_crashes_is_started_again(site: ComposeSite, tenants: Tenants, service: str) -> None:
    site.kill(service)
    tenants.write_all(f"killed-{service}")
    site.healthy(service)
    tenants.hear(f"killed-{service}")


@pytest.mark.parametrize("service", SERVICES)
def test_a_container_that_hangs_stops_nobody_else(site: ComposeSite, tenants: Tenants, service: str) -> None:
    site.compose("pause", service)
    try:
        if service != "balancer":
            tenants.write_all(f"during-{service}", without=service)
    finally:
        site.compose("unpause", service)
    tenants.write_all(f"paused-{service}")
    tenants.hear(f"paused-{service}")


@pytest.mark.parametrize("service", SERVICES)
def test_a_container_is_replaced(site: ComposeSite, tenants: Tenants, service: str) -> None:
    before = site.id(service)
    site.compose("up", "--no-deps", "--force-recreate", "--wait", service)
    assert site.id(service) != before
    tenants.write_all(f"replaced-{service}")
    tenants.hear(f"replaced-{service}")


def test_objects_and_credentials_outlive_down_and_up(site: ComposeSite, tenants: Tenants) -> None:
    tenants.write_all("before-down")
    counts = {workspace: tenants.count(workspace) for workspace in WORKSPACES.values()}
    site.compose("down")
    assert not site.compose("ps", "--all", "--quiet").strip()
    site.up()
    assert {workspace: tenants.count(workspace) for workspace in WORKSPACES.values()} == counts
    tenants.write_all("after-up")
    tenants.hear("after-up")


def test_the_same_command_upgrades_a_site(site: ComposeSite, tenants: Tenants, tmp_path: Path) -> None:
    tenants.write_all("before-upgrade")
    counts = {workspace: tenants.count(workspace) for workspace in WORKSPACES.values()}
    before = {service: site.id(service) for service in SERVICES}
    replace_by_later_version(site.wheels, tmp_path / "later")
    site.up()
    for service in SERVICES:
        # The balancer is of another image.
        assert (site.id(service) == before[service]) == (service == "balancer")
        if service != "balancer":
            assert "9.9.9" in site.compose("exec", "--no-TTY", service, "atoll", "version")
    assert {workspace: tenants.count(workspace) for workspace in WORKSPACES.values()} == counts
    tenants.write_all("after-upgrade")
    tenants.hear("after-upgrade")


def replace_by_later_version(wheels: Path, tree: Path) -> None:
    """Put a wheel of another version in the place of the product's."""
    tree.mkdir()
    for name in ("services", "schemas", "README.md", "LICENSE"):
        (tree / name).symlink_to(ROOT / name)
    text = (ROOT / "pyproject.toml").read_text()
    (found,) = wheels.glob("atoll-*.whl")
    version = found.name.split("-")[1]
    (tree / "pyproject.toml").write_text(text.replace(f'version = "{version}"', 'version = "9.9.9"', 1))
    found.unlink()
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(wheels), str(tree)]
    subprocess.run(command, timeout=300, check=True)
    program = str(ROOT / "infra/image/bill_of_materials.py")
    subprocess.run([sys.executable, program, str(wheels)], timeout=300, check=True)
