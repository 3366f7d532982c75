"""Proxies that send users in headers: accepted with a certificate of their own authority and an allowed name.

Such headers of other clients are rejected, whatever other credential the request has.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from atoll.machinery.process import pki
from harness.servers.shard_process import ShardProcess

REVIEWS = "/clusters/root/apis/authentication.k8s.io/v1/selfsubjectreviews"
REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
ALICE = {"X-Remote-User": "alice", "X-Remote-Group": "devs"}


class Authority:
    """A certificate authority and a folder of client certificates of it."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory, self._ca = directory, pki.make_ca(name)
        self.file = directory / f"{name}.crt"
        self.file.write_bytes(self._ca.certificate)

    def client(self, name: str, *organizations: str) -> Path:
        pair = pki.make_client(self._ca, name, organizations)
        path = self._directory / f"{self.file.stem}-{name}.pem"
        path.write_bytes(pair.certificate + pair.key)
        return path


class Peer:
    """Requests with one certificate, or with none."""

    def __init__(self, shard: ShardProcess, certificate: Path | None) -> None:
        self._shard, self._context = shard, shard.new_tls()
        if certificate is not None:
            self._context.load_cert_chain(certificate)

    def ask(self, headers: dict[str, str], token: str = "") -> tuple[int, Any]:
        parts = urlsplit(self._shard.url)
        connection = http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=60, context=self._context)
        sent = {"Content-Type": "application/json", **headers}
        if token:
            sent["Authorization"] = f"Bearer {token}"
        with contextlib.closing(connection):
            connection.request("POST", REVIEWS, json.dumps(REVIEW), sent)
            response = connection.getresponse()
            return response.status, json.loads(response.read())

    def user(self, headers: dict[str, str], token: str = "") -> Any:
        code, body = self.ask(headers, token)
        assert code == 201, body
        return body["status"]["userInfo"]


@pytest.fixture(scope="module")
def proxies(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("proxies"), "proxies")


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("clients"), "clients")


@pytest.fixture(scope="module")
def fronted(tmp_path_factory: pytest.TempPathFactory, proxies: Authority, clients: Authority) -> Iterator[ShardProcess]:
    flags = (
        "--requestheader-client-ca-file",
        str(proxies.file),
        "--requestheader-allowed-names",
        "front-proxy, other",
        "--requestheader-username-headers",
        "X-Remote-User,X-Second-User",
        "--client-ca-file",
        str(clients.file),
    )
    with ShardProcess(tmp_path_factory.mktemp("fronted"), *flags) as running:
        yield running


def test_a_proxy_names_the_user_its_groups_and_more(fronted: ShardProcess, proxies: Authority) -> None:
    peer = Peer(fronted, proxies.client("front-proxy"))
    headers = {
        "X-Remote-User": "kcp-admin",
        "X-Remote-Group": "system:kcp:admin",
        "X-Remote-Uid": "u-1",
        "X-Remote-Extra-Example.com%2Fteam": "red",
    }
    found = peer.user(headers)
    assert (found["username"], found["uid"]) == ("kcp-admin", "u-1")
    assert found["extra"] == {"example.com/team": ["red"]}
    assert set(found["groups"]) == {"system:kcp:admin", "system:authenticated"}


def test_the_second_header_names_the_user_where_the_first_is_silent(fronted: ShardProcess, proxies: Authority) -> None:
    peer = Peer(fronted, proxies.client("other"))
    group = {"X-Remote-Group": "system:kcp:admin"}
    assert peer.user({"X-Second-User": "second", **group})["username"] == "second"
    assert peer.user({"X-Remote-User": "first", "X-Second-User": "second", **group})["username"] == "first"


@pytest.mark.parametrize(
    "headers",
    [
        ALICE,
        {"X-Remote-Group": "system:masters"},
        {"X-Second-User": "alice"},
        {"X_Remote_User": "alice"},
        {"X-Remote-Extra-A": "b"},
    ],
)
def test_nobody_else_is_believed(
    fronted: ShardProcess, proxies: Authority, clients: Authority, headers: dict[str, str]
) -> None:
    admin = fronted.token("shard-admin")
    for certificate, token in (
        (None, ""),
        (None, admin),
        (clients.client("front-proxy"), ""),
        (clients.client("front-proxy"), admin),
        (proxies.client("stranger"), ""),
        (proxies.client("stranger"), admin),
    ):
        peer = Peer(fronted, certificate)
        (code, answer), plain = peer.ask(headers, token), peer.ask({}, token)
        assert code == plain[0]
        if code == 201:
            assert answer["status"]["userInfo"] == plain[1]["status"]["userInfo"]


def test_a_proxy_that_names_nobody_or_in_a_spelling_of_its_own_is_refused(
    fronted: ShardProcess, proxies: Authority
) -> None:
    peer = Peer(fronted, proxies.client("front-proxy"))
    for headers in (
        {"X-Remote-Group": "devs"},
        {"X-Remote-User": ""},
        {**ALICE, "X_Remote_Group": "system:masters"},
        {**ALICE, "Connection": "x-remote-group"},
    ):
        assert peer.ask(headers)[0] == 401, headers


def test_a_proxys_certificate_is_no_users_and_a_users_no_proxys(
    fronted: ShardProcess, proxies: Authority, clients: Authority
) -> None:
    code, status = Peer(fronted, proxies.client("front-proxy", "system:masters")).ask({})
    assert (code, status["reason"]) == (403, "Forbidden")
    assert 'User "system:anonymous"' in status["message"]
    found = Peer(fronted, clients.client("carol", "system:kcp:admin")).user({})
    assert found["username"] == "carol"


def test_a_certificate_of_nobody_known_does_not_get_in(fronted: ShardProcess, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "strangers").client("front-proxy")
    with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
        Peer(fronted, stranger).ask(ALICE)
