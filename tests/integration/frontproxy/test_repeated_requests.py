"""Requests of one client that repeat their headers: each gets its own cluster, user and shard; sessions are resumed."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path

from atoll.machinery.process import pki
from atoll.machinery.wire.server_exchange import ServerExchange
from harness.garbage import left_over
from harness.servers.in_process.front_proxy import (
    BEARER,
    CLIENT_CA,
    NOWHERE,
    Line,
    bearer,
    claims,
    client_tls,
    echoing,
    front,
    publish,
    scripted,
)

API = "/clusters/root:org/api"


async def test_each_gets_an_assertion_for_its_own_cluster(tmp_path: Path) -> None:
    async with echoing() as shard, front(tmp_path, {"east": shard.url, "west": shard.url}) as proxy:
        client = await proxy.connect()
        for workspace, cluster in 3 * (("root:org", "1org"), ("root:other", "2other"), ("1org", "1org")):
            answer = await client.ask(f"/clusters/{workspace}/api", headers=BEARER)
            said = claims(json.loads(answer.body)["headers"]["atoll-assertion"][0])
            assert (said["user"], said["cluster"]) == ("alice", cluster)


async def test_they_leave_no_cycles(tmp_path: Path) -> None:
    async with echoing() as shard, front(tmp_path, {"east": shard.url}) as proxy:
        client = await proxy.connect()
        with left_over() as found:
            for _ in range(3):
                assert (await client.ask(API, headers=BEARER)).status == 200
        assert not [each for each in found if isinstance(each, ServerExchange)]


async def test_each_gets_an_assertion_for_its_own_user(tmp_path: Path) -> None:
    async with echoing() as shard, front(tmp_path, {"east": shard.url}) as proxy:
        client = await proxy.connect()
        for user in 3 * ("alice", "bob"):
            headers = json.loads((await client.ask(API, headers=bearer(user))).body)["headers"]
            assert claims(headers["atoll-assertion"][0])["user"] == user
            assert "authorization" not in headers


async def test_they_follow_their_workspaces_shard(tmp_path: Path) -> None:
    async with echoing() as first, echoing() as second, front(tmp_path, {"east": first.url}) as proxy:
        client = await proxy.connect()
        for _ in range(2):
            assert (await client.ask(API, headers=BEARER)).status == 200
        await publish(proxy.rows, {"east": second.url, "west": NOWHERE, "root": NOWHERE})
        assert (await client.ask(API, headers=BEARER)).status == 200
        assert second.seen[0]["headers"]["host"] == [second.url.removeprefix("https://")]


async def test_a_plain_response_arrives_as_the_shard_sent_it(tmp_path: Path) -> None:
    plain = b"HTTP/1.1 201 As it Is\r\nX-Odd-CASE: a  b\r\ncontent-Length: 2\r\nX-Odd-CASE: c\r\n\r\n{}"

    async def answer(line: Line) -> None:
        for _ in range(2):
            await line.head()
            await line.say(plain)

    async with scripted(answer) as backend, front(tmp_path, {"east": backend.url}) as proxy:
        client = await proxy.connect()
        request = f"GET {API} HTTP/1.1\r\nHost: a\r\n{BEARER}\r\n".encode()
        await client.send(request)
        assert await client.reader.readexactly(len(plain)) == plain
        await client.send(request.replace(b"Host: a\r\n", b"Host: a\r\nConnection: close\r\n"))
        last = await client.reader.read()
        assert last.endswith(b"Connection: close\r\n\r\n{}")


async def test_a_resumed_session_keeps_its_user(tmp_path: Path) -> None:
    async with echoing() as shard, front(tmp_path, {"east": shard.url}) as proxy:
        context = client_tls(pki.make_client(CLIENT_CA, "carol"))

        def twice() -> list[tuple[bool | None, str]]:
            session, found = None, []
            for _ in range(2):
                plain = socket.create_connection(("127.0.0.1", proxy.port))
                with context.wrap_socket(plain, server_hostname="127.0.0.1", session=session) as wrapped:
                    wrapped.sendall(f"GET {API} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
                    data = b""
                    while piece := wrapped.recv(65536):
                        data += piece
                    session = wrapped.session
                    headers = json.loads(data.partition(b"\r\n\r\n")[2])["headers"]
                    found.append((wrapped.session_reused, claims(headers["atoll-assertion"][0])["user"]))
            return found

        assert await asyncio.to_thread(twice) == [(False, "carol"), (True, "carol")]
