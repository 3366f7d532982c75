"""TLS: the client certificate of a request, rejected clients, and the low cost of garbage and silence."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from pathlib import Path

import pytest

from atoll.machinery.process import pki, tls
from atoll.machinery.process.client_identity import client_identity
from atoll.machinery.process.private_files import Pair
from atoll.machinery.wire.client import HttpClient, Origin, Unreachable
from atoll.machinery.wire.exchange import Exchange
from atoll.machinery.wire.limits import Limits
from harness.clients.raw_http import RawClient, until
from harness.servers.in_process.wire_server import Serve, echo


def whoami(exchange: Exchange) -> None:
    certificate = exchange.request.peer.certificate
    name = client_identity(certificate).common_name if certificate else "nobody"
    exchange.reply(200, [], name.encode())


async def ask(port: int, context: ssl.SSLContext) -> str:
    client = HttpClient(Origin("127.0.0.1", port, context))
    try:
        return (await client.request("GET", "/")).body.decode()
    finally:
        await client.close()


async def test_a_client_certificate_is_visible_and_optional(serve: Serve, ca: Pair, server_tls: ssl.SSLContext) -> None:
    running = await serve(whoami, tls=server_tls)
    alice = tls.client_context(ca.certificate, pki.make_client(ca, "alice"))
    assert await ask(running.port, alice) == "alice"
    assert await ask(running.port, tls.client_context(ca.certificate)) == "nobody"


async def refused(port: int, context: ssl.SSLContext) -> None:
    # TLS 1.3 reports it to the client after its handshake: the first read fails then.
    with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
        client = await RawClient.connect(port, context)
        try:
            await client.ask("/")
        finally:
            client.close()


async def test_a_certificate_of_another_ca_is_refused(serve: Serve, ca: Pair, server_tls: ssl.SSLContext) -> None:
    running = await serve(whoami, tls=server_tls)
    mallory = pki.make_client(pki.make_ca("test ca"), "alice")
    await refused(running.port, tls.client_context(ca.certificate, mallory))
    await until(lambda: running.server.connections == 0)


async def test_a_serving_certificate_is_no_client_certificate(
    serve: Serve, ca: Pair, server_tls: ssl.SSLContext
) -> None:
    running = await serve(whoami, tls=server_tls)
    await refused(running.port, tls.client_context(ca.certificate, pki.make_serving(ca, ["alice"])))


async def test_an_expired_certificate_is_refused(serve: Serve, ca: Pair, server_tls: ssl.SSLContext) -> None:
    running = await serve(whoami, tls=server_tls)
    old = pki.make_client(ca, "alice", days=0)
    await refused(running.port, tls.client_context(ca.certificate, old))


async def test_without_a_client_ca_no_certificate_is_asked_for(serve: Serve, ca: Pair) -> None:
    context = tls.server_context(pki.make_serving(ca, ["127.0.0.1"]))
    running = await serve(whoami, tls=context)
    assert await ask(running.port, tls.client_context(ca.certificate, pki.make_client(ca, "alice"))) == "nobody"


async def test_a_resumed_session_keeps_its_identity(serve: Serve, ca: Pair, server_tls: ssl.SSLContext) -> None:
    running = await serve(whoami, tls=server_tls)
    context = tls.client_context(ca.certificate, pki.make_client(ca, "alice"))

    def twice() -> list[tuple[bool | None, bytes]]:
        session, seen = None, []
        for _ in range(2):
            plain = socket.create_connection(("127.0.0.1", running.port))
            with context.wrap_socket(plain, server_hostname="127.0.0.1", session=session) as wrapped:
                wrapped.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                data = b""
                while piece := wrapped.recv(4096):
                    data += piece
                session = wrapped.session
                seen.append((wrapped.session_reused, data.partition(b"\r\n\r\n")[2]))
        return seen

    assert await asyncio.to_thread(twice) == [(False, b"alice"), (True, b"alice")]


async def test_http_1_1_is_what_alpn_agrees_on(serve: Serve, ca: Pair, server_tls: ssl.SSLContext) -> None:
    running = await serve(whoami, tls=server_tls)
    context = tls.client_context(ca.certificate)
    context.set_alpn_protocols(["h2", "http/1.1"])
    client = await running.connect(context)
    assert client.writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"


async def test_a_client_that_insists_on_http_2_is_refused_in_http_1(
    serve: Serve, ca: Pair, server_tls: ssl.SSLContext
) -> None:
    running = await serve(whoami, tls=server_tls)
    context = tls.client_context(ca.certificate)
    context.set_alpn_protocols(["h2"])
    client = await running.connect(context)
    await client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    assert (await client.answer()).status == 400


async def test_a_server_of_another_name_or_ca_is_not_talked_to(
    serve: Serve, ca: Pair, client_tls: ssl.SSLContext
) -> None:
    elsewhere = await serve(whoami, tls=tls.server_context(pki.make_serving(ca, ["elsewhere"])))
    with pytest.raises(Unreachable):
        await ask(elsewhere.port, client_tls)
    named = HttpClient(Origin("127.0.0.1", elsewhere.port, client_tls, server_name="elsewhere"))
    assert (await named.request("GET", "/")).status == 200
    await named.close()
    other = await serve(whoami, tls=tls.server_context(pki.make_serving(pki.make_ca("x"), ["127.0.0.1"])))
    with pytest.raises(Unreachable):
        await ask(other.port, client_tls)


@pytest.mark.parametrize("data", [b"\x16\x03\x01\xff\xff" + b"\xff" * 300, b"\x00" * 100, b"\x16", b""])
async def test_garbage_instead_of_a_handshake_closes_that_connection_only(
    serve: Serve, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext, data: bytes
) -> None:
    running = await serve(whoami, Limits(handshake_timeout_s=0.3), server_tls)
    client = await running.connect()
    if data:
        await client.send(data)
    await client.rest()
    await until(lambda: running.server.connections == 0)
    begun = data[:1] == b"\x16"
    assert (running.server.counts.handshakes, running.server.counts.failed_handshakes) == (begun, begun)
    assert await ask(running.port, client_tls) == "nobody"


async def test_plain_http_on_a_tls_port_is_told_so(serve: Serve, server_tls: ssl.SSLContext) -> None:
    running = await serve(whoami, tls=server_tls)
    client = await running.connect()
    await client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    assert (await client.rest()).endswith(b"Client sent an HTTP request to an HTTPS server.\n")
    await until(lambda: running.server.connections == 0)


async def test_silent_connections_hold_no_place_among_the_handshakes(
    serve: Serve, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    running = await serve(whoami, Limits(handshakes=1), server_tls)
    for _ in range(20):
        await running.connect()
    await until(lambda: running.server.connections == 20)
    assert await ask(running.port, client_tls) == "nobody"


async def test_a_stalled_handshake_gives_way_to_one_that_waits(
    serve: Serve, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    running = await serve(whoami, Limits(handshakes=1), server_tls)
    stalled = await running.connect()
    await stalled.send(b"\x16\x03\x01\x02\x00\x01")
    await until(lambda: running.server.connections == 1)
    assert await ask(running.port, client_tls) == "nobody"
    assert await stalled.rest() == b""


async def test_draining_gives_up_handshakes(
    serve: Serve, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    running = await serve(whoami, Limits(handshake_timeout_s=300), server_tls)
    silent, stalled = await running.connect(), await running.connect()
    hello = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        client_tls.wrap_bio(ssl.MemoryBIO(), hello, server_hostname="127.0.0.1").do_handshake()
    await stalled.send(hello.read())
    assert await stalled.reader.read(1), "the server's half of the handshake"
    await until(lambda: running.server.connections == 2)
    async with asyncio.timeout(60):
        await running.server.drain(300)
    await stalled.rest()
    assert await silent.rest() == b""
    assert running.server.connections == 0


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def test_refused_handshakes_leave_no_descriptor_open(
    serve: Serve, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    running = await serve(whoami, tls=server_tls)
    assert await ask(running.port, client_tls) == "nobody"
    await until(lambda: running.server.connections == 0)
    before = descriptors()
    for number in range(30):
        client = await running.connect()
        await client.send(b"\x16\x03\x01\x00\x05" + os.urandom(40 + number))
        await client.rest()
        client.close()
    await until(lambda: running.server.connections == 0)
    await until(lambda: descriptors() <= before, "descriptors to be closed")


async def test_old_tls_is_refused(serve: Serve, server_tls: ssl.SSLContext) -> None:
    running = await serve(echo, tls=server_tls)
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning):
        old.minimum_version = ssl.TLSVersion.TLSv1
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    await refused(running.port, old)


async def test_big_replies_and_bodies_pass_through_tls(
    serve: Serve, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    running = await serve(lambda exchange: exchange.reply(200, [], [exchange.request.body] * 4), tls=server_tls)
    client = HttpClient(Origin("127.0.0.1", running.port, client_tls))
    body = os.urandom(3 << 20)
    assert (await client.request("PUT", "/", body=body)).body == body * 4
    await client.close()
