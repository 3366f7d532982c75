"""Shards that are unreachable, stop or hang: requests fail at once, for their workspaces only, and are not repeated."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from atoll.machinery.process import pki, tls
from atoll.machinery.wire.limits import Limits
from atoll.machinery.wire.proxy.backend import Backend, BackendLimits
from atoll.machinery.wire.proxy.backend_connection import BackendConnection
from atoll.machinery.wire.server import Server
from harness.clients.raw_http import Raw, until
from harness.servers.in_process.front_proxy import BEARER, Line, echoing, front, scripted

ORG, OTHER = "/clusters/root:org", "/clusters/root:other"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.fixture
def port() -> Iterator[int]:
    """A port without a listener, reserved until the end of the test."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield int(holder.getsockname()[1])


def reports_unavailable(answer: Raw) -> bool:
    status = json.loads(answer.body)
    assert (answer.status, status["reason"], answer.headers["retry-after"]) == (503, "ServiceUnavailable", "1")
    assert (status["kind"], status["details"]["retryAfterSeconds"]) == ("Status", 1)
    assert answer.headers["audit-id"]
    return True


async def test_only_the_workspaces_of_a_shard_that_is_down_are_down(tmp_path: Path, port: int) -> None:
    async with echoing() as west, front(tmp_path, {"east": f"https://127.0.0.1:{port}", "west": west.url}) as proxy:
        client = await proxy.connect()
        for _ in range(3):
            assert reports_unavailable(await client.ask(f"{ORG}/api", headers=BEARER))
            assert (await client.ask(f"{OTHER}/api", headers=BEARER)).status == 200


async def test_a_shard_that_comes_back_is_asked_again(tmp_path: Path) -> None:
    async with echoing() as before:
        port = before.port
    async with front(tmp_path, {"east": f"https://127.0.0.1:{port}"}) as proxy:
        client = await proxy.connect()
        assert reports_unavailable(await client.ask(f"{ORG}/api", headers=BEARER))
        async with echoing(port), asyncio.timeout(60):
            while (await client.ask(f"{ORG}/api", headers=BEARER)).status != 200:  # noqa: ASYNC110 - as clients do
                await asyncio.sleep(0.02)


async def test_a_want_of_files_is_no_shard_that_is_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def none_left(backend: Backend, **_: bool) -> BackendConnection:
        raise OSError(errno.EMFILE, "Too many open files")

    pauses = BackendLimits(first_pause_s=60, longest_pause_s=60)
    async with echoing() as east, front(tmp_path, {"east": east.url}, backends=pauses) as proxy:
        client = await proxy.connect()
        with monkeypatch.context() as patch:
            patch.setattr(Backend, "_connect", none_left)
            assert reports_unavailable(await client.ask(f"{ORG}/api", headers=BEARER))
        assert (await client.ask(f"{ORG}/api", headers=BEARER)).status == 200


async def test_who_cannot_be_reached_is_waited_for_once(tmp_path: Path) -> None:
    """A host accepts connections and sends nothing: one request waits, the others fail at once."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://127.0.0.1:{silent.getsockname()[1]}"
        timing = BackendLimits(connect_timeout_s=0.5, first_pause_s=600, longest_pause_s=600)
        async with front(tmp_path, {"east": url}, backends=timing) as proxy:
            client = await proxy.connect()
            for _ in range(20):
                assert reports_unavailable(await client.ask(f"{ORG}/api", headers=BEARER))
        silent.settimeout(60)
        silent.accept()[0].close()
        silent.settimeout(0)
        with pytest.raises(BlockingIOError):
            silent.accept()


async def test_a_shard_that_says_nothing_is_given_up_and_nothing_is_promised(tmp_path: Path) -> None:
    async def script(line: Line) -> None:
        await line.head()
        await asyncio.Event().wait()

    async with (
        scripted(script) as backend,
        front(tmp_path, {"east": backend.url}, backends=BackendLimits(head_timeout_s=0.2)) as proxy,
    ):
        client = await proxy.connect()
        answer = await client.ask(f"{ORG}/api", headers=BEARER)
        assert (answer.status, json.loads(answer.body)["reason"]) == (504, "Timeout")
        assert "retry-after" not in answer.headers
        assert backend.connections == 1
        await until(lambda: proxy.backend_connections == 0)


async def begins_and_stops(line: Line) -> None:
    """Send the head and a part of the body, as a shard does that is stopped."""
    await line.head()
    await line.say(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
    await asyncio.Event().wait()


@pytest.mark.long
async def test_a_body_that_stalls_is_cut_and_never_taken_for_whole(tmp_path: Path) -> None:
    limits = BackendLimits(body_timeout_s=0.2)
    async with scripted(begins_and_stops) as backend, front(tmp_path, {"east": backend.url}, backends=limits) as proxy:
        client = await proxy.connect()
        with pytest.raises(asyncio.IncompleteReadError):
            await client.ask(f"{ORG}/api", headers=BEARER)
        await until(lambda: proxy.backend_connections == 0)


@pytest.mark.long
async def test_a_watch_may_be_silent_for_longer_than_a_body(tmp_path: Path) -> None:
    events = asyncio.Event()

    async def script(line: Line) -> None:
        await line.head()
        await line.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        await events.wait()
        await line.say(b"3\r\ntwo\r\n")
        await asyncio.Event().wait()

    limits = BackendLimits(body_timeout_s=0.1)
    async with (
        scripted(script) as backend,
        scripted(begins_and_stops) as stopped,
        front(tmp_path, {"east": backend.url, "west": stopped.url}, backends=limits) as proxy,
    ):
        client, other = await proxy.connect(), await proxy.connect()
        await client.send(f"GET {ORG}/api/v1/pods?watch=true HTTP/1.1\r\nHost: a\r\n{BEARER}\r\n".encode())
        await client.head()
        assert await client.chunk() == b"one"
        # The sweep that cuts this body has looked at the watch too, which began before.
        with pytest.raises(asyncio.IncompleteReadError):
            await other.ask(f"{OTHER}/api", headers=BEARER)
        events.set()
        assert await client.chunk() == b"two"
        client.close()


class Dying:
    """A backend that answers the first request of each connection, and closes it on the next."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []

    async def __call__(self, line: Line) -> None:
        self.heads.append(await line.head())
        await line.say(OK)
        self.heads.append(await line.head())


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_kept_connection_that_was_dead_before_is_no_concern_of_the_client(tmp_path: Path, method: str) -> None:
    async def script(line: Line) -> None:
        await line.head()
        await line.say(OK)

    async with scripted(script) as backend, front(tmp_path, {"east": backend.url}) as proxy:
        client = await proxy.connect()
        assert (await client.ask(f"{ORG}/1", headers=BEARER)).status == 200
        # Wait until the shard has closed the connection; the proxy notices now or on the next request.
        line = backend.lines[0]
        await until(line.writer.is_closing)
        await line.writer.wait_closed()
        assert (await client.ask(f"{ORG}/2", method=method, headers=BEARER)).status == 200
        assert backend.connections == 2


async def test_what_may_be_asked_twice_is_asked_again_when_a_kept_connection_dies_of_it(tmp_path: Path) -> None:
    dying = Dying()
    async with scripted(dying) as backend, front(tmp_path, {"east": backend.url}) as proxy:
        client = await proxy.connect()
        assert (await client.ask(f"{ORG}/1", headers=BEARER)).status == 200
        assert (await client.ask(f"{ORG}/2", headers=BEARER)).status == 200
        assert backend.connections == 2
        assert [head.split(b" ")[1].rpartition(b"/")[2] for head in dying.heads] == [b"1", b"2", b"2"]


@pytest.mark.parametrize(
    ("method", "body"), [("POST", b"x"), ("DELETE", b""), ("PUT", b"x"), ("PATCH", b"x"), ("GET", b"x")]
)
async def test_what_may_have_been_done_is_never_asked_again(tmp_path: Path, method: str, body: bytes) -> None:
    dying = Dying()
    async with scripted(dying) as backend, front(tmp_path, {"east": backend.url}) as proxy:
        client = await proxy.connect()
        assert (await client.ask(f"{ORG}/1", headers=BEARER)).status == 200
        answer = await client.ask(f"{ORG}/2", method=method, body=body, headers=BEARER)
        assert answer.status == 502
        assert "retry-after" not in answer.headers, "clients repeat whatever they are told to"
        assert (backend.connections, len(dying.heads)) == (1, 2)


async def test_a_new_connection_that_dies_unanswered_is_not_tried_again(tmp_path: Path) -> None:
    async def script(line: Line) -> None:
        await line.head()

    async with scripted(script) as backend, front(tmp_path, {"east": backend.url}) as proxy:
        client = await proxy.connect()
        assert (await client.ask(f"{ORG}/1", headers=BEARER)).status == 502
        assert backend.connections == 1


async def test_an_answer_that_began_is_not_asked_for_again(tmp_path: Path) -> None:
    async def script(line: Line) -> None:
        await line.head()
        if backend.connections == 1:
            await line.say(OK)
            await line.head()
        await line.say(b"HTTP/1.1 200 O")

    async with scripted(script) as backend, front(tmp_path, {"east": backend.url}) as proxy:
        client = await proxy.connect()
        assert (await client.ask(f"{ORG}/1", headers=BEARER)).status == 200
        assert (await client.ask(f"{ORG}/2", headers=BEARER)).status == 502
        assert backend.connections == 1


async def test_a_certificate_of_somebody_else_is_a_shard_that_is_not_there(tmp_path: Path) -> None:
    asked: list[Any] = []
    other = tls.server_context(pki.make_serving(pki.make_ca("others"), ["127.0.0.1"]))
    server = Server(asked.append, Limits(), other)
    try:
        port = await server.start("127.0.0.1", 0)
        async with front(tmp_path, {"east": f"https://127.0.0.1:{port}"}) as proxy:
            assert reports_unavailable(await (await proxy.connect()).ask(f"{ORG}/api", headers=BEARER))
        assert not asked
    finally:
        await server.drain(0)


async def test_requests_that_go_in_circles_end(tmp_path: Path) -> None:
    async with echoing() as shard, front(tmp_path, {"east": shard.url}) as proxy:
        client = await proxy.connect()
        via = "Via: 1.1 atoll-front-proxy\r\n"
        assert (await client.ask(f"{ORG}/api", headers=BEARER + 3 * via)).status == 200
        assert (await client.ask(f"{ORG}/api", headers=BEARER + 4 * via)).status == 508


async def test_a_client_that_leaves_while_a_shard_is_called_is_counted_out(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://127.0.0.1:{silent.getsockname()[1]}"
        async with front(tmp_path, {"east": url}, backends=BackendLimits(connect_timeout_s=600)) as proxy:
            client = await proxy.connect()
            await client.send(f"POST {ORG}/api HTTP/1.1\r\nHost: a\r\n{BEARER}Content-Length: 5\r\n\r\nab".encode())

            def in_flight() -> float | None:
                return proxy.proxy.registry.get_sample_value("atoll_frontproxy_requests_under_way")

            await until(lambda: in_flight() == 1)
            client.close()
            await until(lambda: in_flight() == 0)
            await until(lambda: proxy.server.connections == 0)


async def test_a_body_that_is_none_ends_the_request_at_the_shard_too(tmp_path: Path) -> None:
    ended = asyncio.Event()

    async def script(line: Line) -> None:
        await line.head()
        try:
            await line.reader.read()
        finally:
            ended.set()

    async with scripted(script) as backend, front(tmp_path, {"east": backend.url}) as proxy:
        client = await proxy.connect()
        await client.send(f"POST {ORG}/a HTTP/1.1\r\nHost: a\r\n{BEARER}Transfer-Encoding: chunked\r\n\r\n".encode())
        await until(lambda: backend.connections)
        await client.send(b"5\r\nhello\r\nzz\r\n")
        answer = await client.answer()
        assert (answer.status, answer.headers["connection"]) == (400, "close")
        await asyncio.wait_for(ended.wait(), 30)
        await until(lambda: proxy.backend_connections == 0)


async def test_a_body_that_does_not_come_in_time_is_not_waited_for(tmp_path: Path) -> None:
    async def script(line: Line) -> None:
        await line.head()
        await line.reader.read()

    limits = Limits(body_timeout_s=0.3)
    async with scripted(script) as backend, front(tmp_path, {"east": backend.url}, limits=limits) as proxy:
        client = await proxy.connect()
        await client.send(f"POST {ORG}/a HTTP/1.1\r\nHost: a\r\n{BEARER}Content-Length: 9\r\n\r\nabc".encode())
        answer = await client.answer()
        assert (answer.status, answer.headers["connection"]) == (408, "close")
        await until(lambda: proxy.backend_connections == 0)
        assert backend.connections == 1


async def test_what_bodies_take_is_counted_and_given_back(tmp_path: Path) -> None:
    async with echoing() as shard, front(tmp_path, {"east": shard.url}, limits=Limits(bodies_bytes=100_000)) as proxy:
        for _ in range(8):
            client = await proxy.connect()
            told = await client.ask(f"{ORG}/a", method="POST", body=b"x" * 60_000, headers=BEARER)
            assert (told.status, len(json.loads(told.body)["body"])) == (200, 60_000)
            refused = await client.ask("/clusters/root:other/a", method="POST", body=b"x" * 60_000, headers=BEARER)
            assert refused.status == 503
            client.close()
        await until(lambda: proxy.server.connections == 0)
        client = await proxy.connect()
        for _ in range(20):
            refused = await client.ask("/clusters/*/a", method="POST", body=b"x" * 10_000, headers=BEARER)
            assert refused.status == 403
        assert (await client.ask(f"{ORG}/a", method="POST", body=b"x" * 60_000, headers=BEARER)).status == 200
