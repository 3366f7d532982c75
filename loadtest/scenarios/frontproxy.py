"""What does the front proxy add to a GET, and how soon does it route again after a restart with 100,000 workspaces?

A site of two shards, asked for the same object at its shard and through the proxy, which has a core of its own; shards
and load share the other, both ways. Then a proxy whose store holds the rows of that many workspaces is started with
nobody there but one shard: the time from the new process to the first answer that was routed.
"""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import socket
import ssl
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import repeat
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from atoll.frontproxy.process import STORE, STORE_NAME
from atoll.machinery.meta.names import ROOT, ObjectKey
from atoll.machinery.meta.objects import encode_json
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.storage.contract import ClusterRoute, Mutation
from atoll.machinery.storage.lmdb_store import open_store
from atoll.machinery.storage.options import StoreOptions
from harness.data.front_proxy_rows import WORKSPACES, ProxyRows
from harness.data.stores import replica
from harness.servers.in_process.front_proxy import BEARER, client_tls, echoing, files_in, publish
from loadtest import processes
from loadtest.bench import Bench, config_map, sound
from loadtest.http import Load, Origin, closed_loop
from loadtest.report import Row
from loadtest.server import Cost, Server

CPU_US, RATIO, RESTART_MS = 65, 2, 1000
PATH = "/clusters/root/api/v1/namespaces/default/configmaps"
_BATCH = 1500
#: Entries of a site's kubeconfig: the proxy, and the root shard itself.
_CLUSTERS = ("base", "shard-base")
#: The longest wait for a proxy.
TIMEOUT_S = 60.0
_SERVICES = Path(__file__).parents[2] / "services"


async def run(bench: Bench) -> list[Row]:
    rows = await _compared(bench)
    if not bench.in_process:
        return rows
    count = bench.size(10_000, 100_000)
    took_ms, cpu_ms = await _restarted(bench.place(), count)
    note = f"{count:,} workspaces, nobody there but one shard"
    return [
        *rows,
        Row("proxy: new process to the first routed answer", took_ms, "ms", RESTART_MS, note=note),
        Row("  its CPU until then", cpu_ms, "ms"),
    ]


class _Proxy(msgspec.Struct, frozen=True):
    """The front proxy among the processes of a site."""

    pid: int


async def _compared(bench: Bench) -> list[Row]:
    """The same GET at the shard and through the proxy."""
    seconds = bench.seconds(3, 15)
    async with bench.server("--shards", "2", cores=set(processes.USABLE)) as site:
        pid = next(each for each in processes.tree(site.pid) if processes.name(each) == "front-proxy")
        os.sched_setaffinity(pid, processes.cores()[0])
        tls = _certified(site)
        proxied_at, direct_at = (_origin(str(site.entry("cluster", name)["server"]), tls) for name in _CLUSTERS)
        created = proxied_at.request("POST", PATH, encode_json(config_map("hot")))
        sound(await closed_loop(proxied_at, iter([created]), 1, TIMEOUT_S))
        rows: list[Row] = []
        for connections in (1, 16):
            direct, _ = await _load(_Proxy(pid), direct_at, connections, seconds)
            proxied, cpu_us = await _load(_Proxy(pid), proxied_at, connections, seconds)
            ratio = proxied.percentile_ms(0.5) / direct.percentile_ms(0.5)
            note = f"p50 {direct.percentile_ms(0.5):.2f} ms direct, {proxied.percentile_ms(0.5):.2f} ms proxied"
            rows += [
                Row(f"proxy: GET, {connections} clients", proxied.rate, "/s", more=True),
                Row(f"proxy: GET p50 over the direct one, {connections} clients", ratio, "times", RATIO, note=note),
                Row("  CPU of the proxy a request", cpu_us, "us", CPU_US),
            ]
        return rows


def _certified(site: Server) -> ssl.SSLContext:
    """TLS with the client certificate of kcp-admin."""
    tls, user = site.tls(), site.entry("user", "kcp-admin")
    with tempfile.TemporaryDirectory() as place:
        files = [Path(place) / name for name in ("client-certificate-data", "client-key-data")]
        for file in files:
            file.write_bytes(base64.b64decode(user[file.name]))
        tls.load_cert_chain(files[0], files[1])
    return tls


def _origin(url: str, tls: ssl.SSLContext) -> Origin:
    return Origin("127.0.0.1", urlsplit(url).port or 0, tls, "")


async def _load(proxy: _Proxy, origin: Origin, connections: int, seconds: float) -> tuple[Load, float]:
    request = origin.request("GET", f"{PATH}/hot")
    await closed_loop(origin, repeat(request), connections, min(0.5, seconds))
    with Cost(proxy) as cost:
        load = sound(await closed_loop(origin, repeat(request), connections, seconds))
    return load, cost.cpu_s / load.answers * 1e6


async def _restarted(place: Path, count: int) -> tuple[float, float]:
    """Milliseconds to the first routed answer of a new process, and those of CPU that it spent."""
    try:
        async with echoing() as shard:
            await _fill(place / STORE, count, shard.url)
            command = [sys.executable, "-m", "atoll.cli", "front-proxy", "--root-directory", str(place)]
            settings = {**files_in(place), "nats_url": "nats://127.0.0.1:1", "secure_port": str(_free_port())}
            command += [f"--{name.replace('_', '-')}={_flag(value)}" for name, value in settings.items()]
            began = time.monotonic()
            process = await asyncio.create_subprocess_exec(
                *command,
                "--allow-any-filesystem",
                env={**os.environ, "PYTHONPATH": str(_SERVICES)},
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
            )
            try:
                await _answered(int(settings["secure_port"]), f"root:w{count - 1}")
                return (time.monotonic() - began) * 1000, processes.cpu_s(process.pid) * 1000
            finally:
                process.terminate()
                await process.wait()
    finally:
        shutil.rmtree(place, ignore_errors=True)


async def _fill(directory: Path, count: int, url: str) -> None:
    """Write the rows that the shards of a site publish for `count` workspaces."""
    await asyncio.to_thread(directory.mkdir, parents=True)
    store = open_store(StoreOptions(directory=str(directory), shard=STORE_NAME, allow_any_filesystem=True))
    try:
        await publish(ProxyRows(store), {ROOT: url, "east": url, "west": url})
        batch: list[Mutation] = []
        for number in range(count):
            cluster, shard = f"c{number:015}", ("root", "east", "west")[number % 3]
            spec: dict[str, Any] = {"spec": {"cluster": cluster}, "status": {"phase": "Ready"}}
            batch += [
                ClusterRoute(cluster, shard),
                replica(ObjectKey(WORKSPACES, ROOT, "", f"w{number}"), 1000 + number, origin=ROOT, **spec),
                replica(ObjectKey(LOGICAL_CLUSTERS, cluster, "", "cluster"), 1000 + number, origin=shard),
            ]
            if len(batch) >= _BATCH or number == count - 1:
                await store.submit(batch)
                batch = []
    finally:
        await store.close()


def _flag(value: str | Sequence[str]) -> str:
    return value if isinstance(value, str) else ",".join(value)


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


async def _answered(port: int, workspace: str) -> None:
    """Return when a request for a workspace is answered by its shard."""
    request = f"GET /clusters/{workspace}/api HTTP/1.1\r\nHost: a\r\n{BEARER}\r\n".encode()
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_tls())
            except OSError:
                await asyncio.sleep(0.005)
                continue
            writer.write(request)
            line = await reader.readline()
            writer.close()
            if line == b"HTTP/1.1 200 OK\r\n":
                return
