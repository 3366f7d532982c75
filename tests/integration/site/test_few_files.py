"""A front proxy that may have few files: it accepts no more than it can serve, and serves those whom it has."""

from __future__ import annotations

import asyncio
import json
import resource
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from urllib.parse import urlsplit

import pytest

from atoll.machinery.process import open_files
from harness.clients.raw_http import RawClient
from harness.servers.site import ServingProcess, Site

FILES, ACCEPTED, MORE = 200, 133, 60
WATCH = "/clusters/root/api/v1/namespaces/default/configmaps?watch=true&fieldSelector=metadata.name=few"
MADE = {"metadata": {"name": "few", "namespace": "default"}}


@contextmanager
def started(site: Site, limits: str) -> Iterator[ServingProcess]:
    """The proxy of the site, started with other limits of a shell."""
    command = list(site.proxy.command)
    site.proxy.stop()
    try:
        site.proxy.command = ["bash", "-c", f'{limits} && exec "$@"', "bash", *command]
        site.proxy.start()
        yield site.proxy
    finally:
        site.proxy.command = command
        site.proxy.restart()


@pytest.fixture
def proxy(site: Site) -> Iterator[ServingProcess]:
    with started(site, f"ulimit -n {FILES}") as found:
        yield found


@pytest.mark.long
def test_a_process_takes_all_files_that_it_may_have(site: Site) -> None:
    with started(site, f"ulimit -Sn {FILES}") as proxy:
        soft, hard = resource.prlimit(proxy.pid, resource.RLIMIT_NOFILE)
    assert FILES < soft == min(hard, open_files.MOST)


@pytest.mark.long
async def test_connections_beyond_its_files_wait_and_those_before_are_served(proxy: ServingProcess, site: Site) -> None:
    port, tls = urlsplit(proxy.url).port or 0, proxy.endpoint("kcp-admin").tls()
    async with AsyncExitStack() as stack:

        async def connect() -> RawClient:
            client = await RawClient.connect(port, tls)
            stack.callback(client.writer.close)
            assert (await client.ask("/livez")).status == 200
            return client

        watch = await connect()
        await watch.send(f"GET {WATCH} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        assert (await watch.head())[0] == 200
        clients = [await connect() for _ in range(ACCEPTED - 1)]
        waiting = [asyncio.create_task(connect()) for _ in range(MORE)]
        # Each of those that were accepted has a watch at a shard: watches share connections.
        for client in clients:
            await client.send(f"GET {WATCH} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        assert {(await client.head())[0] for client in clients} == {200}
        assert not any(task.done() for task in waiting)
        root = site.root.api("root")
        root.post("/api/v1/namespaces/default/configmaps", MADE)
        for client in (watch, *clients):
            assert json.loads(await client.chunk())["object"]["metadata"]["name"] == "few"
        root.delete("/api/v1/namespaces/default/configmaps/few")
        for client in clients:
            client.writer.close()
        await asyncio.gather(*waiting)
    assert "Traceback" not in proxy.log()
