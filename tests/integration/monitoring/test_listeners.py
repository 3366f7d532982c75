"""What the processes of a site listen on is what docs/operating.md lists, and nothing else."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import yaml

from atoll.machinery.meta.names import ROOT as ROOT_SHARD
from atoll.standalone.site import layout
from atoll.standalone.site.credentials import CACHE_USER, CLIENT_CA, credential_path
from harness.clients.api import eventually
from harness.environment import ROOT
from harness.servers.launch import launch
from harness.servers.nats_cluster import NatsCluster
from harness.servers.processes import children
from harness.servers.shard_process import ShardProcess

#: A dozen interpreters.
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

START_S = 300.0
#: Executed, not forked: it has no socket of the tests.
ENVIRONMENT = {"LC_ALL": "C.UTF-8"}
_ROW = re.compile(r"^\| `([a-z-]+)`( of a cluster)? \|([^|]*)\|", re.MULTILINE)
_LISTENS, _UNIX_LISTENS = "0A", "00010000"


def documented() -> dict[str, set[str]]:
    """The sockets of each process by the table."""
    section = (ROOT / "docs" / "operating.md").read_text().partition("\n## Listeners\n")[2].partition("\n## ")[0]
    return {name + kind: set(re.findall(r"`([^`]+)`", cell)) for name, kind, cell in _ROW.findall(section)}


def sockets(pid: int, **ports: int) -> set[str]:
    """What a process listens on, and every UDP socket of it. TCP ports may be told apart by names."""
    held: set[str] = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            held.add(str(link.readlink()))

    def rows(table: str, inode: int) -> list[list[str]]:
        lines = Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
        return [row for row in map(str.split, lines) if f"socket:[{row[inode]}]" in held]

    named_ports = {port: f"tcp {name}" for name, port in ports.items()}
    listening = [row for table in ("tcp", "tcp6") for row in rows(table, 9) if row[3] == _LISTENS]
    found = {named_ports.get(int(row[1].rpartition(":")[2], 16), "tcp") for row in listening}
    found |= {"udp" for table in ("udp", "udp6") for _ in rows(table, 9)}
    named = [row[7] for row in rows("unix", 6) if row[3] == _UNIX_LISTENS]
    return found | {f"unix {re.sub(r'^m[0-9]+$', 'm<number>', Path(path).name)}" for path in named}


def below(pid: int) -> Iterator[tuple[int, str]]:
    """Processes below one, with their commands; API workers belong to their shard."""
    for child, command in children(pid).items():
        yield child, command
        yield from below(child)


def kind(command: str) -> str:
    """The name of a process in the table."""
    found = re.search(r"-m atoll\.cli(?:\.held)? ([a-z-]+)|(nats-server)|atoll\.(shard)\.worker", command)
    return next(filter(None, found.groups())) if found else command


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardProcess]:
    directory = tmp_path_factory.mktemp("site")
    flags = ("--shards", "2", "--edge", "true", "--workers", "1")
    running = ShardProcess(directory, *flags, environment=ENVIRONMENT)
    running.start(START_S)
    yield running
    running.stop()


def test_processes_of_a_site_listen_on_what_is_listed(site: ShardProcess) -> None:
    def by_kind() -> dict[str, set[str]]:
        found: dict[str, set[str]] = {"start": sockets(site.pid)}
        for pid, command in below(site.pid):
            # What prepares the edge service ends soon.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found.setdefault(kind(command), set()).update(sockets(pid))
        return found

    def serving() -> dict[str, set[str]]:
        found = by_kind()
        return found if found.keys() == wanted and "tcp" in found["edge-controllers"] else {}

    listed = documented()
    wanted = {"start", "shard", "front-proxy", "event-gateway", "nats-server", "edge-controllers"}
    found = eventually(serving, "all run, and the last one serves", START_S)
    assert found == {name: listed[name] for name in wanted}


def listens(directory: Path, *arguments: str) -> set[str]:
    """What a command listens on once it serves."""
    out, err = directory / "out", directory / "err"
    process = launch(
        [sys.executable, "-m", "atoll.cli", *arguments], out, err, environment=ENVIRONMENT, directory=directory
    )

    def served() -> bool:
        assert process.poll() is None, err.read_text()[-3000:]
        return "serves http" in out.read_text()

    try:
        eventually(served, "it serves", START_S)
        return sockets(process.pid)
    finally:
        process.kill()
        process.wait(60)


def cache_server(site: ShardProcess, directory: Path) -> set[str]:
    here = layout.of(str(site.root))
    nats = msgspec.json.decode((here.shard(ROOT_SHARD) / "stream.json").read_bytes())["connect"]["servers"][0]
    files = {
        "tls-cert-file": here.certificate("serving-root"),
        "tls-private-key-file": here.key("serving-root"),
        "client-ca-file": here.certificate(CLIENT_CA),
        "nats-credentials-file": credential_path(here.pki, CACHE_USER),
    }
    flags = {"root-directory": "cache", "secure-port": "0", "nats-url": nats, "allow-any-filesystem": "true", **files}
    return listens(directory, "cache-server", *(f"--{name}={value}" for name, value in flags.items()))


def syncer(site: ShardProcess, directory: Path) -> set[str]:
    """It serves without its clusters, too."""
    config = yaml.safe_dump(
        {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": site.url}}],
            "users": [{"name": "u", "user": {"token": "none"}}],
        }
    )
    (directory / "config").write_text(config)
    files = ("--from-kubeconfig", "config", "--to-kubeconfig", "config")
    return listens(directory, "syncer", *files, "--sync-target-name", "n", "--sync-target-uid", "u")


@pytest.mark.parametrize(("name", "sockets_of"), [("cache-server", cache_server), ("syncer", syncer)])
def test_what_runs_beside_a_site_listens_on_what_is_listed(
    site: ShardProcess, tmp_path: Path, name: str, sockets_of: Callable[[ShardProcess, Path], set[str]]
) -> None:
    assert sockets_of(site, tmp_path) == documented()[name]


async def test_nats_servers_of_a_cluster_listen_on_what_is_listed(tmp_path: Path) -> None:
    async with NatsCluster(tmp_path) as nats:

        def found() -> list[set[str]]:
            pids = nats.pids.values()
            return [
                sockets(pid, clients=port, route=route) for pid, (port, route) in zip(pids, nats.ports, strict=True)
            ]

        listed = documented()["nats-server of a cluster"]
        eventually(lambda: all(listed <= each for each in found()), "each takes clients and servers")
        assert found() == [listed] * 3
