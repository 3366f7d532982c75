"""Requests through the front proxy as clients and shards see them: heads, bodies, ends of connections, order."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from harness.clients.raw_http import RawClient, until
from harness.servers.in_process.front_proxy import BEARER, Front, Line, Shard, bearer, claims, echoing, front, scripted

ORG = "/clusters/root:org"


@pytest.fixture
async def shard() -> AsyncIterator[Shard]:
    async with echoing() as running:
        yield running


@pytest.fixture
async def proxy(tmp_path: Path, shard: Shard) -> AsyncIterator[Front]:
    async with front(tmp_path, {"east": shard.url, "root": shard.url}) as running:
        yield running


async def test_a_path_becomes_the_name_of_its_cluster_and_the_rest_stays_as_it_was(proxy: Front) -> None:
    client = await proxy.connect()
    for sent, seen in (
        ("/api/v1/namespaces?limit=5&x=%2Fy", "/clusters/1org/api/v1/namespaces?limit=5&x=%2Fy"),
        ("/apis/a/v1/things/system%3Afoo/", "/clusters/1org/apis/a/v1/things/system%3Afoo/"),
        ("", "/clusters/1org"),
        ("/", "/clusters/1org/"),
        ("?a=b", "/clusters/1org?a=b"),
    ):
        told = json.loads((await client.ask(ORG + sent, headers=BEARER)).body)
        assert told["target"] == seen
    told = json.loads((await client.ask("//clusters//root%3Aorg//api", headers=BEARER)).body)
    assert told["target"] == "/clusters/1org/api"
    told = json.loads((await client.ask("/clusters/1org/api", headers=BEARER)).body)
    assert told["target"] == "/clusters/1org/api"


async def test_what_names_no_workspace_goes_to_the_root_shard(proxy: Front) -> None:
    client = await proxy.connect()
    for target in ("/version", "/", "/apis?x=y", "/services/apiexport/1org/e/clusters/*/api"):
        assert json.loads((await client.ask(target, headers=BEARER)).body)["target"] == target
    told = json.loads((await client.ask("/services/apiexport/1org/e/clusters/root:org/api", headers=BEARER)).body)
    assert told["target"] == "/services/apiexport/1org/e/clusters/1org/api"


async def test_a_view_is_served_by_the_shard_of_its_cluster(tmp_path: Path) -> None:
    async with echoing() as east, echoing() as west, echoing() as root:
        urls = {"east": east.url, "west": west.url, "root": root.url}
        async with front(tmp_path, urls) as proxy:
            client = await proxy.connect()
            for sent, url, seen in (
                (
                    "/services/apiexport/1org/e/clusters/root:other/api",
                    west.url,
                    "apiexport/1org/e/clusters/2other/api",
                ),
                (
                    "/services/apiexport/2other/e/clusters/1org/api?a=b",
                    east.url,
                    "apiexport/2other/e/clusters/1org/api?a=b",
                ),
                ("/services/view/clusters/root:other", west.url, "view/clusters/2other"),
                ("/services/apiexport/2other/e/clusters/*/api", root.url, "apiexport/2other/e/clusters/*/api"),
                ("/services/cache/shards/west/clusters/2other/api", root.url, "cache/shards/west/clusters/2other/api"),
                ("/clusters/root:other/services/view/clusters/*/api?a=%2Fb", west.url, "view/clusters/*/api?a=%2Fb"),
                ("/clusters/1org/services/view/1org/api", east.url, "view/1org/api"),
            ):
                told = json.loads((await client.ask(sent, headers=BEARER)).body)
                assert told["headers"]["host"] == [url.removeprefix("https://")], sent
                assert told["target"] == f"/services/{seen}", sent
                assert claims(told["headers"]["atoll-assertion"][0])["cluster"] == "", sent
            # Events are those of a workspace, whose own users follow them.
            told = json.loads((await client.ask("/services/events/clusters/root:other/token", headers=BEARER)).body)
            assert told["target"] == "/services/events/clusters/2other/token"
            assert claims(told["headers"]["atoll-assertion"][0])["cluster"] == "2other"


async def test_a_view_of_an_unknown_cluster_is_refused_as_the_cluster_is(proxy: Front) -> None:
    client = await proxy.connect()
    plain = await client.ask("/clusters/*/api", headers=BEARER)
    for target in ("/clusters/*/services/view/api", "/clusters/root:none/services/view/api"):
        for credential in (BEARER, ""):
            answer = await client.ask(target, headers=credential)
            assert answer.status == 403, (target, answer)
    assert plain.status == 403


async def test_headers_of_the_hop_stay_on_it(proxy: Front) -> None:
    client = await proxy.connect()
    hop = "Connection: X-Secret, keep-alive\r\nX-Secret: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\n"
    more = "X-Kept: a\r\nX-Kept: b\r\nX-Forwarded-For: 1.2.3.4\r\n"
    told = json.loads((await client.ask(f"{ORG}/api", headers=BEARER + hop + more)).body)
    headers = told["headers"]
    assert not {"x-secret", "keep-alive", "te", "connection", "authorization"} & set(headers)
    assert headers["x-kept"] == ["a", "b"]
    assert headers["x-forwarded-for"] == ["127.0.0.1"]
    assert headers["host"][0].startswith("127.0.0.1:")
    assert claims(headers["atoll-assertion"][0])["cluster"] == "1org"


async def test_answers_without_a_body_leave_the_connection_in_step(proxy: Front) -> None:
    client = await proxy.connect()
    head = await client.ask(f"{ORG}/api", method="HEAD", headers=BEARER)
    assert (head.status, head.body) == (200, b"")
    assert int(head.headers["content-length"]) > 0
    for status in (204, 304):
        answer = await client.ask(f"{ORG}/api?status={status}", headers=BEARER)
        assert (answer.status, answer.body) == (status, b"")
    assert (await client.ask(f"{ORG}/api", headers=BEARER)).status == 200
    assert proxy.backend_connections == 1


async def test_one_kept_connection_serves_clients_one_after_the_other(proxy: Front, shard: Shard) -> None:
    for _ in range(3):
        client = await proxy.connect()
        for _ in range(3):
            assert (await client.ask(f"{ORG}/api", headers=BEARER)).status == 200
    assert len({told["port"] for told in shard.seen}) == 1


async def test_pipelined_requests_are_answered_in_order(proxy: Front) -> None:
    client = await proxy.connect()
    requests = [f"GET {ORG}/{n} HTTP/1.1\r\nHost: a\r\n{BEARER}\r\n" for n in range(20)]
    await client.send("".join(requests).encode())
    targets = [json.loads((await client.answer()).body)["target"] for _ in requests]
    assert targets == [f"/clusters/1org/{n}" for n in range(20)]


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
async def test_bodies_arrive_whole_however_they_are_cut(proxy: Front, chunked: bool) -> None:
    client = await proxy.connect()
    body = "".join(f"{n:07}," for n in range(40_000)).encode()
    framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(body)}"
    await client.send(f"POST {ORG}/api HTTP/1.1\r\nHost: a\r\n{BEARER}{framing}\r\n\r\n".encode())
    for at in range(0, len(body), 30_011):
        piece = body[at : at + 30_011]
        await client.send(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
        await asyncio.sleep(0)
    if chunked:
        await client.send(b"0\r\nX-Remote-User: admin\r\n\r\n")
    told = json.loads((await client.answer()).body)
    assert told["body"].encode() == body
    assert "x-remote-user" not in told["headers"]
    assert (await client.ask(f"{ORG}/api", headers=BEARER)).status == 200


async def test_an_empty_body_stays_one(proxy: Front) -> None:
    client = await proxy.connect()
    told = json.loads((await client.ask(f"{ORG}/api", method="POST", headers=f"{BEARER}Content-Length: 0\r\n")).body)
    assert (told["body"], told["headers"]["content-length"]) == ("", ["0"])
    assert "transfer-encoding" not in told["headers"]


async def test_who_waits_to_be_invited_is_invited_by_the_shard(proxy: Front) -> None:
    client = await proxy.connect()
    head = f"POST {ORG}/api HTTP/1.1\r\nHost: a\r\n{BEARER}Content-Length: 5\r\nExpect: 100-continue\r\n\r\n"
    await client.send(head.encode())
    assert (await client.head())[0] == 100
    await client.send(b"hello")
    assert json.loads((await client.answer()).body)["body"] == "hello"


async def test_old_clients_get_no_chunks_and_a_closed_connection(proxy: Front) -> None:
    client = await proxy.connect()
    await client.send(f"GET {ORG}/api HTTP/1.0\r\n{BEARER}\r\n".encode())
    answer = await client.answer()
    assert (answer.status, answer.headers["connection"]) == (200, "close")
    assert "transfer-encoding" not in answer.headers
    assert await client.rest() == b""


async def test_requests_of_two_users_never_cross(proxy: Front, shard: Shard) -> None:
    """One request waits halfway, and requests of another user overtake it on the same idle connections."""
    slow, quick = await proxy.connect(), await proxy.connect()
    for turn in range(5):
        head = f"POST {ORG}/slow{turn} HTTP/1.1\r\nHost: a\r\n{bearer('alice')}Content-Length: 4\r\n\r\nab"
        await slow.send(head.encode())
        for _ in range(3):
            assert (await quick.ask(f"{ORG}/quick{turn}", headers=bearer("bob"))).status == 200
        await slow.send(b"cd")
        assert (await slow.answer()).status == 200
        assert (await slow.ask(f"{ORG}/quick-by-alice", headers=bearer("alice"))).status == 200
    by = {"slow": "alice", "quick-by": "alice", "quick": "bob"}
    for told in shard.seen:
        name = told["target"].rpartition("/")[2].rstrip("0123456789").removesuffix("-alice")
        assert claims(told["headers"]["atoll-assertion"][0])["user"] == by[name]
    assert len(shard.seen) == 25


# A shard never sends these; other backends may.


@asynccontextmanager
async def answered(tmp_path: Path, answer: bytes, *, method: str = "GET", more: str = "") -> AsyncIterator[RawClient]:
    """A client with the response of a backend that sends these bytes and closes."""

    async def script(line: Line) -> None:
        await line.head()
        await line.say(answer)

    async with scripted(script) as backend, front(tmp_path, {"east": backend.url}) as proxy:
        client = await proxy.connect()
        await client.send(f"{method} {ORG}/api HTTP/1.1\r\nHost: a\r\n{BEARER}{more}\r\n".encode())
        yield client


async def test_chunks_and_trailers_pass_as_they_are(tmp_path: Path) -> None:
    body = b"4;ext=1\r\nabcd\r\n0\r\nX-Sum: 1\r\n\r\n"
    head = b"HTTP/1.1 200 Fine\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"
    async with answered(tmp_path, head + body) as client:
        assert await client.reader.readexactly(len(head) + len(body)) == head + body


async def test_early_hints_pass_and_an_invitation_nobody_waits_for_does_not(tmp_path: Path) -> None:
    early = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    async with answered(tmp_path, early + b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") as client:
        assert await client.head() == (103, {"link": "x"})
        assert (await client.answer()).body == b"ok"


async def test_an_answer_that_ends_with_its_connection_ends_the_clients(tmp_path: Path) -> None:
    async with answered(tmp_path, b"HTTP/1.1 200 OK\r\n\r\nall of it") as client:
        assert (await client.head())[1]["connection"] == "close"
        assert await client.rest() == b"all of it"


@pytest.mark.parametrize(
    "answer",
    [
        b"rubbish\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000 + b"\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\n\r\n" * 17 + b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    ],
    ids=["rubbish", "two-framings", "two-lengths", "endless-head", "unasked-upgrade", "endless-hints"],
)
async def test_what_is_no_answer_is_a_bad_gateway(tmp_path: Path, answer: bytes) -> None:
    async with answered(tmp_path, answer) as client:
        status, headers = await client.head()
        while status == 103:
            status, headers = await client.head()
        assert status == 502
        assert "retry-after" not in headers


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("GET", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    ],
    ids=["second-answer", "body-of-head", "behind-204"],
)
async def test_nothing_behind_an_answer_gets_to_the_client(tmp_path: Path, method: str, answer: bytes) -> None:
    async with answered(tmp_path, answer, method=method, more="Connection: close\r\n") as client:
        assert (await client.rest()).count(b"HTTP/1.1 ") == 1


async def test_a_shard_that_answers_before_it_heard_all_is_believed(tmp_path: Path) -> None:
    async def script(line: Line) -> None:
        await line.head()
        await line.say(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
        await line.reader.read()

    async with scripted(script) as backend, front(tmp_path, {"east": backend.url}) as proxy:
        client = await proxy.connect()
        await client.send(f"POST {ORG}/api HTTP/1.1\r\nHost: a\r\n{BEARER}Content-Length: 100000\r\n\r\nabc".encode())
        answer = await client.answer()
        assert (answer.status, answer.body, answer.headers["connection"]) == (403, b"no", "close")
        await until(lambda: proxy.backend_connections == 0, "the half-told request's link is closed")
