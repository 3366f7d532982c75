"""`--workers 2`: the same API from two processes beside the writer, each of which may die."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import ssl
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from atoll.machinery.process.host_resources import usable
from atoll.standalone.worker_count import choose
from harness.clients.api import Api, Events, configmap, eventually, workspace_under
from harness.clients.kubectl import Kubectl
from harness.clients.put_back import check_put_back
from harness.servers.memory import Returns
from harness.servers.mutant_shard import patched
from harness.servers.processes import atoll, children, is_alive
from harness.servers.shard_process import ShardProcess

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardProcess]:
    with ShardProcess(tmp_path_factory.mktemp("shard"), "--workers", "2") as shard:
        yield shard


@pytest.mark.long
def test_the_writer_and_its_workers_return_freed_memory(tmp_path: Path) -> None:
    returns = Returns(tmp_path)
    with ShardProcess(tmp_path, "--workers", "2", environment=patched(tmp_path, returns.code)) as shard:
        for pid in (shard.pid, *workers(shard)):
            eventually(lambda: returns.by(pid), "it returns memory")  # noqa: B023 - called at once


def workers(shard: ShardProcess) -> list[int]:
    return sorted(pid for pid, command in children(shard.pid).items() if "atoll.shard.worker" in command)


def sockets_of(pid: int) -> set[str]:
    """The inodes of a process's sockets."""
    found = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.add(str(link.readlink()))
    return found


def served_by(shard: ShardProcess, api: Api) -> int:
    """The worker with the server end of this client's connection among its sockets."""
    connection = api._connection
    assert connection is not None
    return serving(shard, connection.sock)


def serving(shard: ShardProcess, sock: socket.socket) -> int:
    """The worker with the other end of a socket among its own."""
    ours = sock.getsockname()[1]
    port = urlsplit(shard.url).port
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        local, remote = (int(address.rpartition(":")[2], 16) for address in fields[1:3])
        if (local, remote) == (port, ours):
            return next(pid for pid in workers(shard) if f"socket:[{fields[9]}]" in sockets_of(pid))
    raise AssertionError("no such connection")


def one_at_each(shard: ShardProcess, cluster: str) -> list[Api]:
    """A client of each worker, made by connecting until there is one: the worker with the fewest gets a connection."""
    found: dict[int, Api] = {}

    def met() -> bool:
        api = Api(shard, cluster)
        api.get(CONFIGMAPS)
        found.setdefault(served_by(shard, api), api)
        return len(found) == 2

    eventually(met, "both workers were met")
    return list(found.values())


@pytest.mark.long
def test_kubectl_finds_everything_as_it_is(shard: ShardProcess, tmp_path: Path) -> None:
    kubectl = Kubectl(tmp_path, shard.kubeconfig)
    kubectl.ok("create", "workspace", "around", "--enter")
    kubectl.ok("create", "configmap", "c", "--from-literal=a=b")
    kubectl.ok("label", "configmap", "c", "tier=front")
    kubectl.ok("patch", "configmap", "c", "--type=merge", "-p", '{"data":{"a":"c"}}')
    assert kubectl.ok("get", "configmap", "c", "-o", "jsonpath={.data.a}{.metadata.labels.tier}") == "cfront"
    kubectl.ok("create", "namespace", "n")
    kubectl.ok("delete", "namespace", "n", "--wait", "--timeout=60s")
    kubectl.ok("delete", "configmap", "c")
    assert kubectl.run("get", "configmap", "c").code == 1
    kubectl.ok("ws", "root")
    kubectl.ok("delete", "workspace", "around")


def watching(api: Api, revision: str) -> Events:
    """A watch over the client's own connection, so at the worker that holds it."""
    connection = api._connection
    assert connection is not None
    path = f"{api.prefix}{CONFIGMAPS}?watch=1&resourceVersion={revision}&timeoutSeconds=60"
    connection.request("GET", path, headers=api.headers())
    return Events(connection.getresponse())


def test_what_one_worker_acknowledged_the_other_reads_and_watches(shard: ShardProcess) -> None:
    one, other = one_at_each(shard, workspace_under(Api(shard, "root")))
    made = [one.post(CONFIGMAPS, configmap("a")).json, other.post(CONFIGMAPS, configmap("b")).json]
    assert [other.get(f"{CONFIGMAPS}/a").json, one.get(f"{CONFIGMAPS}/b").json] == made
    events = watching(one, made[1]["metadata"]["resourceVersion"])
    written = [other.post(CONFIGMAPS, configmap(f"c{number}")).json["metadata"] for number in range(20)]
    assert [(e.type, e.name, e.revision) for e in events.take(20)] == [
        ("ADDED", metadata["name"], int(metadata["resourceVersion"])) for metadata in written
    ]
    check_put_back(other, f"{CONFIGMAPS}/c1")
    other.delete(f"{CONFIGMAPS}/c0")
    assert (events.next().type, other.get(f"{CONFIGMAPS}/c0", expect=404).code) == ("DELETED", 404)
    one.close()


def test_a_worker_that_dies_is_replaced_and_serving_goes_on(shard: ShardProcess) -> None:
    one, other = one_at_each(shard, workspace_under(Api(shard, "root")))
    first = one.post(CONFIGMAPS, configmap("first")).json["metadata"]
    events = watching(other, first["resourceVersion"])
    dead = served_by(shard, one)
    os.kill(dead, signal.SIGKILL)
    eventually(lambda: not is_alive(dead), "it died")
    for number in range(10):
        Api(shard, one.cluster).post(CONFIGMAPS, configmap(f"m{number}"))
    assert [event.name for event in events.take(10)] == [f"m{number}" for number in range(10)]
    eventually(lambda: len(workers(shard)) == 2, "there are two again")
    assert dead not in workers(shard)
    other.close()
    for api in one_at_each(shard, one.cluster):
        assert len(api.get(CONFIGMAPS).json["items"]) == 12
        assert api.get("/readyz").code == 200


def test_a_shard_is_ready_when_all_workers_serve_and_not_before(tmp_path: Path) -> None:
    shard = ShardProcess(tmp_path, "--workers", "2")
    shard.spawn()
    try:
        late = eventually(lambda: workers(shard)[1:], "two workers were started", timeout_s=60)[0]
        os.kill(late, signal.SIGSTOP)
        try:
            code, body = eventually(lambda: _readiness(shard), "the other one answers", timeout_s=60)
            assert (code, "[-]workers failed" in body) == (500, True)
            assert shard.stdout_path.read_text() == ""
        finally:
            os.kill(late, signal.SIGCONT)
        eventually(lambda: _readiness(shard) == (200, "ok"), "ready", timeout_s=60)
        answer = _readiness(shard, "/readyz?verbose")
        assert answer is not None and "[+]controllers ok" in answer[1] and "[+]store-space ok" in answer[1]
        eventually(lambda: "atoll serves" in shard.stdout_path.read_text(), "the announcement")
    finally:
        assert shard.stop() == 0


def _readiness(shard: ShardProcess, path: str = "/readyz") -> tuple[int, str] | None:
    """Status and body of /readyz; None while no process answers."""
    context = ssl._create_unverified_context()
    try:
        port = int((shard.root / "secure-port").read_text())
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=context)
        with contextlib.closing(connection):
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
    except OSError:
        return None


@pytest.mark.long
def test_auto_starts_the_workers_that_its_cores_allow_and_the_doctor_knows_them(tmp_path: Path) -> None:
    expected = choose(usable())
    with ShardProcess(tmp_path, "--workers", "auto") as shard:
        assert len(workers(shard)) == expected
        Api(shard, "root").post(CONFIGMAPS, configmap("auto"))
        result = atoll("doctor", "--root-directory", str(shard.root), "--allow-any-filesystem")
        (line,) = (line for line in result.stdout.splitlines() if "cores:" in line)
        assert (expected > 1) == ("the shard of this directory has workers" in line), line


@pytest.mark.long
def test_on_sigterm_all_leave_and_streams_end_cleanly(tmp_path: Path) -> None:
    with ShardProcess(tmp_path, "--workers", "2") as shard:
        one, other = one_at_each(shard, "root")
        streams = [watching(api, "") for api in (one, other)]
        family, url = children(shard.pid), shard.url
        assert shard.stop() == 0
        # A cut connection would raise IncompleteRead.
        assert [len(stream.rest()) for stream in streams] == [1, 1]
        assert ([pid for pid in family if is_alive(pid)], len(family)) == ([], 3)
        for api in (one, other):
            api.close()
        shard.start()
        assert shard.url == url
        assert len(workers(shard)) == 2


@pytest.mark.long
def test_the_socket_of_the_workers_lies_in_the_root_directory_or_where_there_is_room(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as short:
        with ShardProcess(Path(short), "--workers", "1") as shard:
            assert (shard.root / "submit").is_socket()
        environment, temporary = {"TMPDIR": f"{short}/t"}, Path(short, "t")
        temporary.mkdir()
        with ShardProcess(tmp_path / ("d" * 100), "--workers", "1", environment=environment) as shard:
            Api(shard, "root").post(CONFIGMAPS, configmap("far-down"))
            assert sorted(path.name for path in temporary.glob("*/*")) == ["m0", "m1", "submit"]
        assert list(temporary.iterdir()) == []


def test_workers_of_two_shards_do_not_share_a_port(shard: ShardProcess, tmp_path: Path) -> None:
    port = str(urlsplit(shard.url).port)
    result = atoll(
        "start",
        "--root-directory",
        str(tmp_path / "atoll"),
        "--allow-any-filesystem",
        "true",
        "--secure-port",
        port,
        "--workers",
        "2",
    )
    assert (result.code, "in use" in result.stderr) == (1, True), result.stderr


def test_writers_at_both_workers_get_each_name_once(shard: ShardProcess) -> None:
    one, other = one_at_each(shard, workspace_under(Api(shard, "root")))
    codes: dict[int, list[int]] = {0: [], 1: []}

    def write(index: int, api: Api) -> None:
        for number in range(50):
            codes[index].append(api.send("POST", CONFIGMAPS, configmap(f"m{number}")).code)

    threads = [threading.Thread(target=write, args=(index, api)) for index, api in enumerate((one, other))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [sorted(pair) for pair in zip(codes[0], codes[1], strict=True)] == [[201, 409]] * 50


@pytest.mark.long
def test_a_start_takes_the_port_while_workers_of_a_killed_one_hold_connections(tmp_path: Path) -> None:
    with ShardProcess(tmp_path, "--workers", "2") as shard:
        url, orphans = shard.url, workers(shard)
        kept = one_at_each(shard, "root")
        for pid in orphans:
            os.kill(pid, signal.SIGSTOP)
        try:
            shard.kill()
            shard.spawn()
            eventually(lambda: shard._announced() and shard._ready(), "it serves", 60)
        finally:
            for pid in orphans:
                os.kill(pid, signal.SIGCONT)
        assert shard.url == url
        eventually(lambda: not any(map(is_alive, orphans)), "the orphans left")
        for api in kept:
            api.close()


def test_a_tls_session_is_resumed_where_it_began_and_served_at_any_worker(shard: ShardProcess) -> None:
    context, address = ssl._create_unverified_context(), ("127.0.0.1", urlsplit(shard.url).port)

    def livez(session: ssl.SSLSession | None) -> ssl.SSLSocket:
        connection = context.wrap_socket(socket.create_connection(address), session=session)
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 200")
        return connection

    with contextlib.ExitStack() as stack:
        first = stack.enter_context(livez(None))
        found: set[tuple[bool, bool]] = set()

        def met() -> bool:
            later = stack.enter_context(livez(first.session))
            found.add((serving(shard, later) == serving(shard, first), bool(later.session_reused)))
            return len(found) > 1

        eventually(met, "both workers were met")
    assert found == {(True, True), (False, False)}


def spread(shard: ShardProcess, apis: list[Api]) -> list[int]:
    """How many of these connections each worker serves, the fewest first."""
    return sorted(Counter(dict.fromkeys(workers(shard), 0) | Counter(served_by(shard, api) for api in apis)).values())


def connected(shard: ShardProcess, count: int) -> list[Api]:
    """Clients with one connection each."""
    found = [Api(shard, "root") for _ in range(count)]
    for api in found:
        api.get("/livez")
    return found


@pytest.mark.long
def test_connections_are_spread_evenly_and_again_after_some_were_closed(shard: ShardProcess) -> None:
    first = connected(shard, 32)
    fewest, most = spread(shard, first)
    assert (fewest + most, most < 2 * fewest) == (32, True)
    emptied = served_by(shard, first[0])
    kept = [api for api in first if served_by(shard, api) != emptied]
    for api in first:
        if api not in kept:
            api.close()
    found: list[Api] = []

    def is_even() -> bool:
        for api in found:
            api.close()
        found[:] = connected(shard, 16)
        fewest, most = spread(shard, [*kept, *found])
        return most < 2 * fewest

    eventually(is_even, "new connections go to the worker that has none")
    for api in (*kept, *found):
        api.close()


def scraped(api: Api) -> list[str]:
    """A scrape of the worker at the other end of the client's connection."""
    prefix, api.prefix = api.prefix, ""
    lines: list[str] = api.get("/metrics").body.decode().splitlines()
    api.prefix = prefix
    return lines


def counted(api: Api, *parts: str) -> float:
    """The sum of the series of a scrape whose lines have these parts."""
    series = (line for line in scraped(api) if not line.startswith("#") and all(part in line for part in parts))
    return sum(float(line.rpartition(" ")[2]) for line in series)


def created(resource: str, metric: str = "apiserver_request_total{") -> tuple[str, ...]:
    return metric, f'resource="{resource}"', 'verb="create"'


def test_a_scrape_of_any_worker_shows_what_every_process_counted(shard: ShardProcess) -> None:
    one, other = one_at_each(shard, workspace_under(Api(shard, "root")))
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    for number in range(3):
        one.post(accounts, {"metadata": {"name": f"one-{number}"}})
        other.post(accounts, {"metadata": {"name": f"other-{number}"}})
    durations = created("serviceaccounts", "apiserver_request_duration_seconds_count{")
    for client in (one, other):
        for metric in (created("serviceaccounts"), durations):
            eventually(lambda: counted(client, *metric) == 6, "all are counted")  # noqa: B023 - called at once
        # The writer alone has controllers.
        eventually(lambda: any("workqueue_depth{" in line for line in scraped(client)), "the writer's")  # noqa: B023
    one.close()
    other.close()


@pytest.mark.long
def test_a_worker_that_is_stuck_is_left_out_of_a_scrape_and_counted(shard: ShardProcess) -> None:
    one, other = one_at_each(shard, workspace_under(Api(shard, "root")))
    other.post("/api/v1/namespaces/default/secrets", {"metadata": {"name": "s"}})
    eventually(lambda: counted(one, *created("secrets")) == 1, "all are counted")
    stuck = served_by(shard, other)
    os.kill(stuck, signal.SIGSTOP)
    try:
        eventually(lambda: counted(one, *created("secrets")) == 0, "it is left out")
        missing = [counted(one, "atoll_shard_metrics_missing_total ") for _ in range(2)]
        assert missing[0] < missing[1]
    finally:
        os.kill(stuck, signal.SIGCONT)
    eventually(lambda: counted(one, *created("secrets")) == 1, "it is back")
    one.close()
    other.close()
