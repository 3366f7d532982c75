"""Identity headers of clients are removed in every spelling: raw requests, and the request that the backend receives.

The attacks are those of an advisory; `test_the_trial_tells` removes the guard and expects them to succeed.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from atoll.frontproxy import authentication
from atoll.machinery.apiserver import forwarded_identity
from atoll.machinery.process import pki, tls
from harness.clients.raw_http import RawClient
from harness.data.front_proxy_rows import WORKSPACES
from harness.servers.in_process.front_proxy import (
    BEARER,
    CLIENT_CA,
    SERVING_CA,
    Front,
    Line,
    Scripted,
    claims,
    front,
    scripted,
)

ORG = "/clusters/root:org/api"
OPEN = "127.0.0.0/8"
#: Header lines of an attacker, in spellings that a lenient backend might read as identity headers.
ATTEMPTS = (
    "X-Remote-User: root",
    "x-remote-user: root",
    "X-REMOTE-USER: root",
    "X-rEmOtE-uSeR: root",
    "X_Remote_User: root",
    "X-Remote_User: root",
    "X%2DRemote-User: root",
    "X%2dRemote%2DUser: root",
    "X%252DRemote-User: root",
    "%58-Remote-User: root",
    "X.Remote.User: root",
    "X-Remote-User: a\r\nX-Remote-User: root",
    "X-Remote-Group: system:masters",
    "X-Remote-Group: a\r\nX-Remote-Group: system:masters",
    "X_REMOTE_GROUP: a",
    "X-Remote-Uid: 1",
    "X-Remote-Extra-Authorization.kcp.io%2Fwarrant: {}",
    "X-Remote-Extra-A%20b: 1",
    "X_Remote_Extra_Scopes: cluster:a",
    "X-Remote-Anything: 1",
    "Connection: X-Remote-User\r\nX-Remote-User: root",
    "X-Remote-User: root\r\nConnection: keep-alive, x-remote-user",
    "X-Sso-User: root",
    "x_sso_user: root",
    "X-Sso-Group: system:masters",
    "X%2DSso-More-A: 1",
    "Atoll-Assertion: a.b.c",
    "atoll_assertion: a.b.c",
    "ATOLL-ASSERTION: a.b.c\r\nAtoll-Assertion: a.b.c",
    "Atoll%2DAssertion: a.b.c",
    "Connection: Atoll-Assertion\r\nAtoll-Assertion: a.b.c",
    "Atoll-Assertion-2: a",
    "Forwarded: for=1.2.3.4",
    "X-Forwarded-For: 1.2.3.4",
    "X-Forwarded-Client-Cert: x",
    "X_Forwarded_For: 1.2.3.4",
)
#: Lines that are no valid header, or continue one.
BROKEN = (
    "X-Other: a\r\n X-Remote-User: root",
    "X-Other: a\r\n\tX-Remote-User: root",
    "X-Remote-User : root",
    "X-Remote-User",
    "X-Other: a\rX-Remote-User: root",
    "X-Other: a\nX-Remote-User: root\n\tb: c",
    ": root",
    "X-Remote-User\x00: root",
)
NAMES: dict[str, Any] = {
    "requestheader_username_headers": "X-Remote-User,X-Sso-User",
    "requestheader_group_headers": "X-Sso-Group",
    "requestheader_extra_headers_prefix": "X-Sso-More-",
    "egress_allow_cidr": OPEN,
}
_LINE = re.compile(r"^(?P<name>[^:]+):", re.MULTILINE)


async def identity_reply(line: Line) -> None:
    """Answer each request with its own head."""
    while True:
        head = await line.head()
        await line.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(head), head))


@pytest.fixture
async def shard() -> AsyncIterator[Scripted]:
    async with scripted(identity_reply) as running:
        yield running


@asynccontextmanager
async def fronted(directory: Path, shard: Scripted) -> AsyncIterator[Front]:
    async with front(directory, {"east": shard.url, "root": shard.url}, **NAMES) as running:
        spec = {"mount": {"ref": {"kind": "Thing"}}, "URL": f"https://localhost:{shard.port}/there"}
        await running.rows.write(WORKSPACES, "root", "mounted", {"spec": spec, "status": {"phase": "Ready"}})
        yield running


@pytest.fixture
async def proxy(tmp_path: Path, shard: Scripted, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Front]:
    (tmp_path / "mounts.crt").write_bytes(SERVING_CA.certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "mounts.crt"))
    # The CAs of the system are read once a process.
    tls._public.cache_clear()
    async with fronted(tmp_path, shard) as running:
        yield running
    tls._public.cache_clear()


def seen(head: bytes) -> Iterator[str]:
    """Names of headers in a head that could be read as stating an identity, without those of the proxy itself."""
    text = head.decode("latin-1").partition("\r\n")[2]
    for found in _LINE.finditer(text):
        plain = found["name"].lower()
        for escape, sign in (("%25", "%"), ("%2d", "-"), ("%58", "x"), ("_", "-"), (".", "-")):
            plain = plain.replace(escape, sign)
        if plain.startswith(("x-remote", "x-sso", "atoll-assertion", "forwarded", "x-forwarded", "x%2d")):
            yield found["name"]


async def passed(client: RawClient, target: str, attempt: str, credential: str, more: str = "") -> list[str]:
    answer = await client.ask(target, headers=f"{credential}{attempt}\r\n{more}")
    assert answer.status == 200, answer
    assert not [line for line in answer.body.split(b"\r\n") if line.endswith((b" root", b"system:masters", b"1.2.3.4"))]
    return list(seen(answer.body))


async def tried(proxy: Front, attempts: tuple[str, ...] = ATTEMPTS) -> None:
    """Every attempt, with and without a valid credential, on every kind of target."""
    known, unknown = await proxy.connect(), await proxy.connect()
    certified = await proxy.connect(pki.make_client(CLIENT_CA, "carol"))
    for attempt in attempts:
        for target, more in (
            (ORG, ""),
            ("/version", ""),
            ("/services/x/clusters/root:org/api", ""),
            ("/clusters/root:none/api", ""),
            (ORG, "Upgrade: websocket\r\n"),
        ):
            assert await passed(unknown, target, attempt, "", more) == ["x-forwarded-for"], (target, attempt)
            if "none" not in target:
                ours = ["atoll-assertion", "x-forwarded-for"]
                assert await passed(known, target, attempt, BEARER, more) == ours, (target, attempt)
                assert await passed(certified, target, attempt, "", more) == ours, (target, attempt)


async def test_no_backend_sees_who_a_client_says_it_is(proxy: Front) -> None:
    await tried(proxy)


async def test_no_mount_does_either(proxy: Front) -> None:
    client = await proxy.connect()
    for attempt in ATTEMPTS:
        for credential in ("", BEARER):
            found = await passed(client, "/clusters/root:mounted/api", attempt, credential)
            assert found == [], attempt


@pytest.mark.parametrize("lines", BROKEN)
async def test_what_is_no_header_is_no_request(proxy: Front, shard: Scripted, lines: str) -> None:
    client = await proxy.connect()
    await client.send(f"GET {ORG} HTTP/1.1\r\nHost: a\r\n{BEARER}{lines}\r\n\r\n".encode())
    status, _ = await client.head()
    assert status == 400
    assert shard.connections == 0


async def test_what_the_proxy_says_is_what_it_knows(proxy: Front) -> None:
    client = await proxy.connect()
    headers = f"{BEARER}X-Remote-User: root\r\nAtoll-Assertion: a.b.c\r\nImpersonate-User: bob\r\n"
    body = (await client.ask(ORG, headers=headers)).body.decode()
    said = re.findall(r"^atoll-assertion: (\S+)\r$", body, re.MULTILINE)
    assert len(said) == 1
    found = claims(said[0])
    assert (found["user"], found["uid"], found["cluster"]) == ("alice", "alice-uid", "1org")
    assert found["groups"] == ["team-alice", "system:authenticated"]
    assert "impersonate-user: bob" in body
    assert "authorization" not in body


async def test_groups_of_power_do_not_come_in_with_a_certificate(proxy: Front) -> None:
    groups = ["devs", "system:masters", "system:kcp:logical-cluster-admin", "system:kcp:initializer:root:x"]
    client = await proxy.connect(pki.make_client(CLIENT_CA, "carol", groups))
    for target in (ORG, "/services/view/clusters/root:org/api", "/clusters/root:org/services/view/clusters/*/api"):
        body = (await client.ask(target)).body.decode()
        said = claims(re.findall(r"^atoll-assertion: (\S+)\r$", body, re.MULTILINE)[0])
        assert (said["user"], said["groups"]) == ("carol", ["devs", "system:authenticated"])


async def test_two_users_on_their_way_at_once_are_never_taken_for_each_other(proxy: Front) -> None:
    clients = [(await proxy.connect(), user) for user in ("alice", "bob") * 4]

    async def ask(client: RawClient, user: str) -> None:
        for _ in range(10):
            body = (await client.ask(ORG, headers=f"Authorization: Bearer {user}-token\r\n")).body.decode()
            assert claims(re.findall(r"^atoll-assertion: (\S+)\r$", body, re.MULTILINE)[0])["user"] == user

    await asyncio.gather(*(ask(client, user) for client, user in clients))


async def test_the_trial_tells(tmp_path: Path, shard: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard is `speaking.passed_on`, which filters every header that is forwarded."""
    monkeypatch.setattr(forwarded_identity, "belongs", lambda name, dropped: False)
    async with fronted(tmp_path, shard) as unguarded:
        for attempt in ("X-Remote-Group: a", "Atoll-Assertion: a.b.c", "x_sso_user: a"):
            with pytest.raises(AssertionError):
                await tried(unguarded, (attempt,))


async def test_the_trial_of_groups_tells(tmp_path: Path, shard: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "_matches", lambda group, listed: False)
    async with fronted(tmp_path, shard) as unguarded:
        with pytest.raises(AssertionError):
            await test_groups_of_power_do_not_come_in_with_a_certificate(unguarded)


async def test_bytes_of_answers_are_json_of_nothing_that_was_said(proxy: Front) -> None:
    """An error of the proxy itself names the authenticated user, never one from a header."""
    client = await proxy.connect()
    for attempt in ATTEMPTS:
        answer = await client.ask("/clusters/*/api", headers=f"{attempt}\r\n")
        assert answer.status == 403
        assert 'User "system:anonymous"' in json.loads(answer.body)["message"]
