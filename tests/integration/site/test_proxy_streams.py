"""Streams at real shards: the watches of a site's proxy come as such, and nobody else may open one."""

from __future__ import annotations

import contextlib
import socket
from urllib.parse import urlsplit

from atoll.machinery.process import pki
from atoll.machinery.process.private_files import Pair
from atoll.machinery.process.tls import client_context
from atoll.machinery.wire.multiplex import frames
from atoll.machinery.wire.multiplex.frames import ALPN, DATA, OPEN, FrameReader
from atoll.standalone.site.credentials import CLIENT_CA
from harness.clients.api import Api
from harness.clients.tenants import CONFIGMAPS
from harness.servers.site import ServingProcess, Site

REQUEST = b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"
#: More than the connections that others make to a shard meanwhile.
WATCHES = 40


def first_data(site: Site, shard: ServingProcess, pair: Pair) -> bytes:
    """What a shard answers on a stream of a client; empty if it closes the connection instead."""
    context = client_context(site.authority, pair)
    context.set_alpn_protocols([ALPN])
    found = urlsplit(shard.url)
    assert found.hostname is not None
    with (
        socket.create_connection((found.hostname, found.port or 443), 30) as plain,
        context.wrap_socket(plain, server_hostname=found.hostname) as line,
    ):
        assert line.selected_alpn_protocol() == ALPN
        reader = FrameReader()
        try:
            line.sendall(frames.head(OPEN, 1) + frames.head(DATA, 1, len(REQUEST)) + REQUEST)
            while data := line.recv(65536):
                for kind, number, payload in reader.feed(data):
                    assert (kind, number) == (DATA, 1)
                    return payload
        except OSError:
            pass  # It was cut.
    return b""


def pair_of(site: Site, name: str) -> Pair:
    return Pair(site.layout.certificate(name).read_bytes(), site.layout.key(name).read_bytes())


def test_a_shard_takes_streams_of_proxies_alone(site: Site) -> None:
    user = pki.make_client(pair_of(site, CLIENT_CA), "shard-admin", ("system:kcp:admin", "system:masters"))
    for shard in site.shards.values():
        assert first_data(site, shard, pair_of(site, "proxy-front-proxy")).startswith(b"HTTP/1.1 "), shard.name
        assert first_data(site, shard, user) == b"", shard.name


def test_watches_of_a_proxy_are_connections_that_need_no_handshake(site: Site) -> None:
    root = site.root.api("", "prometheus", "system:masters")
    before = _metrics(root)
    with contextlib.ExitStack() as stack:
        for _ in range(WATCHES):
            stack.enter_context(site.proxy.api("root").watch(f"{CONFIGMAPS}?watch=1"))
        after = _metrics(root)
    assert after["atoll_connections"] - before["atoll_connections"] >= WATCHES
    assert after["atoll_handshakes_total"] - before["atoll_handshakes_total"] < WATCHES / 2


def _metrics(root: Api) -> dict[str, float]:
    """The metrics of a shard without labels."""
    lines = [line.split() for line in root.get("/metrics").body.decode().splitlines()]
    return {line[0]: float(line[1]) for line in lines if len(line) == 2}
