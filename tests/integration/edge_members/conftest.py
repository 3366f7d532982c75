"""A shard with the edge service and two members of its controllers, each with links of its own that a test can cut."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from harness.clients.api import Api, eventually
from harness.servers.configured_nats import ConfiguredNats
from harness.servers.edge_service import EdgeControllers, edge_init
from harness.servers.mutant_shard import patched
from harness.servers.shard_process import ShardProcess
from harness.servers.tcp_relay import TcpRelay

LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/edge-controllers"
ROSTER = "edge.kubestellar.io/roster"
#: A shard has one address for all, so a process has to be given another one by its own client.
_RELAYED = """
import msgspec
from atoll.machinery.wire.client import HttpClient
init = HttpClient.__init__
def relayed(self, origin, limits=None):
    init(self, msgspec.structs.replace(origin, port={1}) if origin.port == {0} else origin, limits)
HttpClient.__init__ = relayed
"""


class Member:
    """One process of the controllers, started again by `revive`."""

    def __init__(self, directory: Path, kubeconfig: Path, flags: tuple[str, ...]) -> None:
        nats_url = flags[flags.index("--nats-url") + 1]
        text = kubeconfig.read_text()
        server = next(line.split()[-1] for line in text.splitlines() if "server:" in line)
        self.nats, self.api = TcpRelay(urlsplit(nats_url).port or 0), TcpRelay(urlsplit(server).port or 0)
        own = directory / "kubeconfig"
        directory.mkdir()
        own.write_text(text.replace(f":{urlsplit(server).port}", f":{self.api.port}"))
        through = tuple(f"nats://127.0.0.1:{self.nats.port}" if each == nats_url else each for each in flags)
        self.process = EdgeControllers(directory, own, *through, "--shared", "true")

    def reach(self, port: int, relay: TcpRelay) -> None:
        """Let it reach a shard by a link of its own, from the next start on."""
        code = _RELAYED.format(port, relay.port)
        self.process.environment = patched(self.process.directory, code)

    @property
    def name(self) -> str:
        return (self.process.directory / "edge" / "identity").read_text()

    def revive(self) -> None:
        """Start it again, and wait until it works."""
        self.api.join()
        self.nats.join()
        self.process.start()

    @property
    def has_ended(self) -> bool:
        """Whether its process ended by itself."""
        process = self.process._process
        return process is not None and process.poll() is not None


def ended(member: Member) -> int:
    """Wait until a process has ended by itself; return its code."""
    process = member.process._process
    assert process is not None
    return process.wait(60)


class Members:
    """Both, and what the roster says of them."""

    def __init__(self, home: Api, both: tuple[Member, Member]) -> None:
        self._home, self.both = home, both

    def roster(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(self._home.get(LEASE).json["metadata"]["annotations"][ROSTER])
        return found

    @property
    def translator(self) -> Member:
        """The member that has what is not split."""
        whole = self.roster()["whole"]
        return next(each for each in self.both if each.name == whole)

    @property
    def other(self) -> Member:
        (found,) = [each for each in self.both if each is not self.translator]
        return found

    def are_all(self) -> bool:
        return self.roster()["members"] == sorted(each.name for each in self.both)

    def are_back(self) -> bool:
        """Whether both work. One that was taken off and ended is started again, as its supervisor would."""
        for each in self.both:
            if each.has_ended:
                each.revive()
        return self.are_all()


@pytest.fixture(scope="package")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConfiguredNats]:
    with ConfiguredNats(tmp_path_factory.mktemp("nats"), "--shards", "root", "--edge", "edge-0,edge-1") as running:
        yield running


@pytest.fixture(scope="package")
def shard(nats: ConfiguredNats, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardProcess]:
    with ShardProcess(tmp_path_factory.mktemp("shared"), *nats.flags("shard-root")) as running:
        edge_init(running, running.root.parent / "edge.kubeconfig")
        yield running


@pytest.fixture(scope="package")
def root(shard: ShardProcess) -> Iterator[Api]:
    """kcp-admin in `root`."""
    api = Api(shard, "root")
    yield api
    api.close()


@pytest.fixture(scope="package")
def members(nats: ConfiguredNats, shard: ShardProcess, root: Api) -> Iterator[Members]:
    directory, home = shard.root.parent, root.at("root:espw")
    first, second = (
        Member(directory / f"member-{number}", directory / "edge.kubeconfig", nats.flags(f"edge-{number}"))
        for number in range(2)
    )
    with first.api, first.nats, second.api, second.nats:
        first.process.start()
        second.process.start()
        found = Members(home, (first, second))
        eventually(found.are_all, "both are on the roster")
        yield found
        for each in (first, second):
            each.process.stop(signal.SIGTERM)
    home.close()
