"""The certificate of an embedded NATS server and its authority are replaced while it runs."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import msgspec
import pytest

from atoll.machinery.process.pki import make_ca, make_serving
from atoll.machinery.process.private_files import Pair, write_pair
from atoll.machinery.stream.connection import Access, Connection, Unavailable
from atoll.machinery.stream.server.config import TlsFiles
from atoll.machinery.stream.server.embedded import EmbeddedServer, ServerOptions
from harness.waits import until

pytestmark = pytest.mark.long

PATIENCE_S = 60.0


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
