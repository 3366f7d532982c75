"""The certificates of NATS servers and their authority are replaced while they run and are published to."""

from __future__ import annotations

import asyncio
import ssl
from functools import partial
from pathlib import Path

import msgspec
import pytest

from atoll.machinery.process.pki import make_ca, make_peer, make_serving
from atoll.machinery.process.private_files import Pair, write_pair
from atoll.machinery.stream.connection import Access, Connection, Unavailable
from atoll.machinery.stream.server.config import TlsFiles
from atoll.machinery.stream.server.embedded import EmbeddedServer, ServerOptions
from harness.models.shard_log import ShardLog
from harness.servers.nats_cluster import SERVERS, NatsCluster
from harness.waits import until
from integration.stream.cluster_publishing import CHANGES, busy, drained, publishing, whole, write

pytestmark = pytest.mark.long

PATIENCE_S = 60.0
#: Until a server refuses an authority that was removed: four times the promise.
REFUSED_S = 40.0


async def lets_in(access: Access, authority: Pair) -> bool:
    """Whether all servers of an access let a client in that trusts this authority alone."""
    for server in access.servers:
        one = msgspec.structs.replace(access, servers=[server], ca_file="", ca=authority.certificate.decode())
        try:
            await (await Connection.open(one, "test")).close()
        except Unavailable:
            return False
    return True


async def test_the_embedded_server_reads_its_certificate_again_and_connections_stay(tmp_path: Path) -> None:
    old, new = make_ca("old"), make_ca("new")
    write_pair(tmp_path, "serving", make_serving(old, ["127.0.0.1"]))
    authority = tmp_path / "ca.crt"
    authority.write_bytes(old.certificate + new.certificate)
    tls = TlsFiles(tmp_path / "serving.crt", tmp_path / "serving.key", authority)
    options = ServerOptions(directory=tmp_path / "nats", shard="root", tls=tls)
    async with EmbeddedServer(options) as server:
        kept = await Connection.open(server.access, "kept")
        try:
            assert await lets_in(server.access, old)
            pid = server.pid
            write_pair(tmp_path, "serving", make_serving(new, ["127.0.0.1"]))
            await until(partial(lets_in, server.access, new), "it has the new certificate", PATIENCE_S)
            assert not await lets_in(server.access, old)
            authority.write_bytes(new.certificate)
            await (await Connection.open(server.access, "new")).close()
            await kept.client.flush()
            assert (server.pid, server.restarts) == (pid, 0)
        finally:
            await kept.close()


async def test_three_servers_and_their_authority_are_replaced_under_a_publisher(tmp_path: Path) -> None:
    log, new = ShardLog(), make_ca("new")
    async with NatsCluster(tmp_path) as nats, publishing(log, nats) as running:
        write(log, 50)
        await drained(running)
        old = nats.authority
        async with busy(log) as written:
            nats.trust(old, new)
            nats.reload()
            await until(partial(all_take_routes, nats, new, tmp_path / "peer"), "servers believe both", PATIENCE_S)
            for name in SERVERS:
                nats.certify(name, new)
                nats.reload(name)
                await written(100)
            await until(partial(lets_in, nats.access, new), "all have new certificates", PATIENCE_S)
            nats.trust(new)
            nats.reload()
            await until(partial(none_takes_routes, nats, old, tmp_path / "peer"), "the old one is refused", REFUSED_S)
            assert await all_take_routes(nats, new, tmp_path / "peer")
            # What is opened from now on is verified anew: routes, and the connection of the publisher.
            for name in SERVERS:
                await nats.stop(name)
                nats.start(name)
                await nats.info(CHANGES)
                await written(100)
        await drained(running)
        assert await whole(log, nats) == []
        assert running.publisher.changes.stats.restarts == 0


async def routes_taken(nats: NatsCluster, authority: Pair, directory: Path) -> list[bool]:
    """Whether each server takes a certificate of this authority from one that opens a route."""
    write_pair(directory, "route", make_peer(authority, ["127.0.0.1"]))
    context = ssl.create_default_context(cafile=nats.directory / "ca.crt")
    context.load_cert_chain(directory / "route.crt", directory / "route.key")
    return [await _takes_route(port, context) for _, port in nats.ports]


async def all_take_routes(nats: NatsCluster, authority: Pair, directory: Path) -> bool:
    return all(await routes_taken(nats, authority, directory))


async def none_takes_routes(nats: NatsCluster, authority: Pair, directory: Path) -> bool:
    return not any(await routes_taken(nats, authority, directory))


async def _takes_route(port: int, context: ssl.SSLContext) -> bool:
    # A server that refuses the certificate ends the connection once the handshake is over here; another one speaks.
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    except (ssl.SSLError, ConnectionError):
        return False
    try:
        return await reader.readline() != b""
    except (ssl.SSLError, ConnectionError):
        return False
    finally:
        writer.close()
